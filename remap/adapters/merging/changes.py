"""What an adapter makes of the tensors of its base: base key -> change, in float32.

    LoRA    W + s B A                      DoRA   rows of W + s B A, scaled to the lengths that it learned
    IA3     W and its bias, times l        whole  the tensor that was trained in its place

A change is added (factors) or takes the tensor's place. What takes a place is weighed between the old and the
new: weight 0.8 is 0.2 of the base and 0.8 of the adapter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from remap.adapters.merging.products import product
from remap.adapters.model import Adapter
from remap.adapters.placing.naming import by_text
from remap.adapters.placing.places import EMBEDDING, LINEAR, Place, parameter_scale, places
from remap.adapters.placing.variants import beyond_factors
from remap.adapters.scaling import scale
from remap.dialects.peft import SAVED
from remap.dtypes import dtype
from remap.errors import UsageError
from remap.expr import Affine, Cast, Concat, Expr, LowRank, Normed, Permute, Reshape, Slice, Sum, Times
from remap.types import Catalog

FLOAT = dtype("float32")
New = Callable[[Expr], Expr]
"""The base's tensor in float32 -> what it becomes."""


@dataclass(frozen=True)
class Change:
    """What becomes of one tensor of the base.

    added   what is added to it; None where it is replaced
    new     what takes its place, made of it; None where something is added
    keys    the adapter's
    apart   the module was copied for training (``modules_to_save``): what it was tied to stays as it is
    """

    key: str
    keys: tuple[str, ...]
    added: Expr | None = None
    new: New | None = None
    apart: bool = False


def changes(adapter: Adapter, base: Catalog, problems: list[str]) -> Iterator[Change]:
    """The changes of an adapter whose base was found right. What can't be merged is added to ``problems``."""
    more = beyond_factors(adapter)
    if more:
        problems.append(more)
    for place in sorted(
        places(adapter, base), key=lambda p: p.kind != "whole"
    ):  # what was saved, then changed
        make = MAKERS[place.kind]
        try:
            yield from make(adapter, base, place)
        except UsageError as e:
            problems.append(f"{e.where or place.key}: {e.what}")
    problems.extend(
        f"{t.key}: a prompt is no change of a weight"
        for t in adapter.tensors
        if not t.module and t.leaf not in ("vera_A", "vera_B")
    )


def apart(place: Place) -> bool:
    """Is it a module that PEFT copied to train it? What it was tied to stays as it is."""
    return any(leaf.startswith(f"{SAVED}.") for leaf in place.tensors)


def single(expr: Expr) -> Expr:
    """In float32."""
    return expr if expr.spec.dtype == FLOAT else Cast(expr, FLOAT)


def _lora(adapter: Adapter, base: Catalog, place: Place) -> Iterator[Change]:
    names = EMBEDDING if place.kind == "embedding" else LINEAR
    a, b = (adapter.expr(place.tensors[n]) for n in names)
    shape = base.entries[place.key].spec.shape
    bare = not place.key.endswith(".weight")
    by = parameter_scale(adapter, place.key) if bare else scale(adapter, place.tensors[names[0]].module)
    flat = LowRank(
        Reshape(b, b.spec.shape[:2]), Reshape(a, (a.spec.shape[0], a.spec.numel // a.spec.shape[0])), by
    )
    added = Permute(flat, (1, 0)) if place.flipped else Reshape(flat, shape)
    keys = tuple(t.key for t in place.tensors.values())
    lengths = place.tensors.get("lora_magnitude_vector")
    if lengths is None:
        yield Change(place.key, keys, added)
    else:
        yield Change(place.key, keys, new=_dora(flat, adapter.expr(lengths), place.flipped))
    offset = place.tensors.get("lora_B.bias")
    if offset is not None:
        bias = f"{place.module}.bias"
        if bias not in base.entries:
            raise UsageError("lora_B has a bias, and the base's module has none to add it to")
        yield Change(bias, (offset.key,), Affine(single(adapter.expr(offset)), by))


def _dora(flat: Expr, lengths: Expr, flipped: bool) -> New:
    rows = Reshape(lengths, (lengths.spec.numel, 1))

    def new(weight: Expr) -> Expr:
        matrix = Permute(weight, (1, 0)) if flipped else Reshape(weight, flat.spec.shape)
        made = Normed(Sum((matrix, flat)), rows)
        return Permute(made, (1, 0)) if flipped else Reshape(made, weight.spec.shape)

    return new


def _experts(adapter: Adapter, base: Catalog, place: Place) -> Iterator[Change]:
    a, b = (adapter.expr(place.tensors[n]) for n in LINEAR)
    count = base.entries[place.key].spec.shape[0]
    rank = a.spec.shape[0] // count
    left = Permute(Reshape(b, (b.spec.shape[0], rank, count)), (2, 0, 1))
    right = Reshape(a, (count, rank, a.spec.shape[1]))
    added: Expr = LowRank(left, right, parameter_scale(adapter, place.key))
    if place.flipped:
        added = Permute(added, (0, 2, 1))
    yield Change(place.key, tuple(t.key for t in place.tensors.values()), added)


def _ia3(adapter: Adapter, base: Catalog, place: Place) -> Iterator[Change]:
    (tensor,) = place.tensors.values()
    by = adapter.expr(tensor)
    if place.flipped:
        by = Permute(by, (1, 0))
    yield Change(place.key, (tensor.key,), new=lambda weight: Times(weight, by))
    bias = f"{place.module}.bias"
    if adapter.spec(tensor).shape[0] != 1 and bias in base.entries:
        flat = Reshape(by, (by.spec.numel,))
        yield Change(bias, (tensor.key,), new=lambda old: Times(old, flat))


def _whole(adapter: Adapter, base: Catalog, place: Place) -> Iterator[Change]:
    (tensor,) = place.tensors.values()
    value = single(adapter.expr(tensor))
    yield Change(place.key, (tensor.key,), new=lambda old: value, apart=apart(place))


def _other(adapter: Adapter, base: Catalog, place: Place) -> Iterator[Change]:
    keys = tuple(t.key for t in place.tensors.values())
    tensors = {leaf: adapter.expr(t) for leaf, t in place.tensors.items()}
    shape = base.entries[place.key].spec.shape
    tokens = next((v for leaf, v in tensors.items() if leaf.endswith("trainable_tokens_delta")), None)
    if tokens is not None:
        rows = _rows(adapter, place.module)
        if len(rows) != tokens.spec.shape[0]:
            raise UsageError(f"{tokens.spec.shape[0]} rows for {len(rows)} tokens of the configuration")
        values = single(tokens)
        yield Change(place.key, keys, new=lambda old: _with_rows(old, rows, values))
        return
    added = product(adapter, place.module, tensors, shape, flipped=place.flipped)
    yield Change(place.key, keys, added)


def _rows(adapter: Adapter, module: str) -> list[int]:
    """The tokens whose rows were trained."""
    said = adapter.config.get("trainable_token_indices", adapter.config.get("token_indices"))
    if isinstance(said, Mapping):
        said = next((v for name, v in said.items() if by_text(str(name), module)), None)
    if not isinstance(said, list) or not all(isinstance(n, int) for n in said):
        raise UsageError("adapter_config.json does not say which tokens were trained")
    return said


def _with_rows(old: Expr, rows: list[int], values: Expr) -> Expr:
    parts: list[Expr] = []
    at = 0
    for row, n in sorted((row, n) for n, row in enumerate(rows)):
        parts += [Slice(old, 0, at, row)] * (row > at)
        parts.append(Slice(values, 0, n, n + 1))
        at = row + 1
    parts += [Slice(old, 0, at, old.spec.shape[0])] * (at < old.spec.shape[0])
    return Concat(tuple(parts))


MAKERS: Mapping[str, Callable[[Adapter, Catalog, Place], Iterator[Change]]] = {
    "lora": _lora,
    "embedding": _lora,
    "experts": _experts,
    "ia3": _ia3,
    "whole": _whole,
    "other": _other,
}
