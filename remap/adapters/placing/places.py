"""Where an adapter's tensors belong: the base's keys, with what is known of their shapes.

One module may have several places: a LoRA on its weight and a bias that was trained along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

from remap.adapters.model import Adapter
from remap.adapters.placing.naming import by_segments
from remap.adapters.placing.orientation import Orientation
from remap.adapters.placing.parameters import parameter
from remap.adapters.scaling import by_pattern as value_of
from remap.dialects.base import AdapterTensor
from remap.dialects.peft_model import depth
from remap.errors import UsageError
from remap.types import Catalog, TensorSpec

Kind = Literal["lora", "experts", "embedding", "ia3", "whole", "other"]
LINEAR = ("lora_A.weight", "lora_B.weight")
EMBEDDING = ("lora_embedding_A", "lora_embedding_B")
LORA = frozenset({*LINEAR, *EMBEDDING, "lora_B.bias", "lora_magnitude_vector", "alpha"})
WHOLE = ("modules_to_save", "ln_tuning_layers", "base_layer")
"""Heads of leaves that hold a tensor of the base itself, trained in full."""


@dataclass(frozen=True)
class Place:
    """What an adapter has for one tensor of its base.

    key      of the base's tensor
    module   path of its module
    kind     what the adapter does to it
    tensors  by leaf
    spec     of the base's tensor, as far as the adapter tells: None where it doesn't
    exact    the whole shape is known
    flipped  the weight lies [in, out]
    """

    key: str
    module: str
    kind: Kind
    tensors: Mapping[str, AdapterTensor] = field(hash=False)
    spec: TensorSpec | None = None
    exact: bool = False
    flipped: bool = False


def places(adapter: Adapter, base: Catalog | None = None) -> Iterator[Place]:
    """The places of an adapter's tensors, in order; what belongs to no module has none.

    base  where it is known, tells how weights lie. Raises UsageError for factors without their other half.
    """
    groups: dict[tuple[str, Kind, str], dict[str, AdapterTensor]] = {}
    for t in (*adapter.tensors, *_base_tensors(adapter)):
        if t.module:
            kind = _kind(t.leaf)
            groups.setdefault((t.module, kind, t.leaf if kind == "whole" else ""), {})[t.leaf] = t
    lies = Orientation(adapter.config, {k: e.spec for k, e in base.entries.items()} if base else None)
    for (module, kind, leaf), tensors in groups.items():
        yield _place(adapter, base, lies, module, kind, leaf, tensors)


def _base_tensors(adapter: Adapter) -> Iterator[AdapterTensor]:
    """Weights of the base that PEFT saved along: embeddings that were resized."""
    for key in adapter.base:
        path = key.removeprefix("base_model.model.")
        module, _, name = path.rpartition(".")
        if path != key and module:
            inner = module.endswith(".base_layer")
            leaf = f"base_layer.{name}" if inner else name
            yield AdapterTensor(key, module.removesuffix(".base_layer"), leaf, wrapper="base_model.model")


def _kind(leaf: str) -> Kind:
    head = leaf.partition(".")[0]
    if leaf in LORA:
        return "lora"
    if head in ("weight", "bias") or head in WHOLE:
        return "whole"
    return "ia3" if leaf == "ia3_l" else "other"


def _place(
    adapter: Adapter,
    base: Catalog | None,
    lies: Orientation,
    module: str,
    kind: Kind,
    leaf: str,
    tensors: Mapping[str, AdapterTensor],
) -> Place:
    if kind == "whole":
        (tensor,) = tensors.values()
        name = leaf if leaf in ("weight", "bias") else leaf.partition(".")[2]
        return Place(f"{module}.{name}", module, kind, tensors, adapter.expr(tensor).spec, exact=True)
    if kind == "ia3":
        return _multiplied(adapter, lies, module, tensors)
    if kind == "other":
        return _other(adapter, lies, module, tensors)
    return _low_rank(adapter, base, lies, module, tensors)


def _other(adapter: Adapter, lies: Orientation, module: str, tensors: Mapping[str, AdapterTensor]) -> Place:
    """A method whose factors aren't LoRA's; where outputs have a vector or rows of their own, they tell how
    the weight lies."""
    key = f"{module}.weight"
    rows = next((tensors[n] for n in ("lora_B", "vera_lambda_b") if n in tensors), None)
    outputs = adapter.expr(rows).spec.shape[0] if rows and adapter.expr(rows).spec.shape else None
    return Place(key, module, "other", tensors, flipped=lies.flipped(key, outputs))


def _multiplied(
    adapter: Adapter, lies: Orientation, module: str, tensors: Mapping[str, AdapterTensor]
) -> Place:
    """IA3: [out, 1], or [1, in] of a feed-forward module, however the weight lies."""
    spec = adapter.expr(tensors["ia3_l"]).spec
    if len(spec.shape) != 2 or 1 not in spec.shape:
        raise UsageError(f"ia3_l of shape {list(spec.shape)} is not of outputs, nor of inputs", where=module)
    key = f"{module}.weight"
    behind = spec.shape[0] != 1
    flipped = lies.flipped(key, spec.numel if behind else None, None if behind else spec.numel)
    shape = spec.shape[::-1] if flipped else spec.shape
    return Place(key, module, "ia3", tensors, TensorSpec(spec.dtype, shape), flipped=flipped)


def _low_rank(
    adapter: Adapter,
    base: Catalog | None,
    lies: Orientation,
    module: str,
    tensors: Mapping[str, AdapterTensor],
) -> Place:
    embedding = any(n in tensors for n in EMBEDDING)
    names = EMBEDDING if embedding else LINEAR
    lost = [n for n in names if n not in tensors]
    if lost:
        raise UsageError(f"{lost[0]} is not there", where=module, remedy="save the adapter again")
    a, b = (adapter.expr(tensors[n]).spec for n in names)
    outputs, inputs = b.shape[0], a.shape[1:]
    if embedding:
        spec = TensorSpec(a.dtype, (*inputs, outputs))
        return Place(f"{module}.weight", module, "embedding", tensors, spec, exact=True, flipped=True)
    owner, key = parameter_of(adapter, module, base)
    if key:
        shape, flipped = _stacked(adapter, base, key, a.shape[0], outputs, inputs[0])
        kind: Kind = "experts" if len(shape) == 3 else "lora"
        return Place(key, owner, kind, tensors, TensorSpec(a.dtype, shape), exact=True, flipped=flipped)
    key = f"{module}.weight"
    flipped = len(inputs) == 1 and lies.flipped(key, outputs, inputs[0])
    shape = (*inputs, outputs) if flipped else (outputs, *inputs)
    return Place(key, module, "lora", tensors, TensorSpec(a.dtype, shape), exact=True, flipped=flipped)


def parameter_of(adapter: Adapter, module: str, base: Catalog | None = None) -> tuple[str, str]:
    """The base's module, and the key of its bare parameter whose factors lie at ``module``; an empty key for
    a module's own weight."""
    owner, count = depth(module)
    name = parameter(_targets(adapter), owner, count, _parameters(adapter, base, owner))
    return owner, "" if name is None else f"{owner}.{name}"


def _targets(adapter: Adapter) -> list[str]:
    said = adapter.config.get("target_parameters")
    return [str(t) for t in said] if isinstance(said, list) else []


def _parameters(adapter: Adapter, base: Catalog | None, module: str) -> Callable[[str], bool]:
    """Could a module have a bare parameter of this name? The base knows; else one whose module is targeted
    itself has none."""
    if base is not None:
        return lambda name: f"{module}.{name}" in base.entries
    said = adapter.config.get("target_modules")
    if isinstance(said, str):
        targeted = value_of({said: True}, module) is True
    else:
        targeted = any(by_segments(str(t), module) for t in said) if isinstance(said, list) else False
    return lambda name: not targeted


def _stacked(
    adapter: Adapter, base: Catalog | None, key: str, rows: int, outputs: int, inputs: int
) -> tuple[tuple[int, ...], bool]:
    """Shape of a parameter, and whether it lies [..., in, out]."""
    entry = base.entries.get(key) if base else None
    if entry is not None:
        shape = entry.spec.shape
        return shape, shape[-2:] == (inputs, outputs) != (outputs, inputs)
    rank = parameter_rank(adapter, key)
    if not rank or rows % rank:
        raise UsageError(
            f"its factor has {rows} rows, and the configuration gives it rank {rank}",
            where=key,
            remedy="give the base: --base",
        )
    count = rows // rank
    return ((count, outputs, inputs) if count > 1 else (outputs, inputs)), False


def parameter_rank(adapter: Adapter, key: str) -> int:
    """Rank of each expert: what the configuration says of the parameter."""
    said = value_of(adapter.config.get("rank_pattern"), key)
    said = adapter.config.get("r") if said is None else said
    return said if isinstance(said, int) else 0


def parameter_scale(adapter: Adapter, key: str) -> float:
    """What the product is multiplied by, for the parameter ``key``."""
    config = adapter.config
    rank = parameter_rank(adapter, key)
    said = value_of(config.get("alpha_pattern"), key)
    said = config.get("lora_alpha") if said is None else said
    if not rank or not isinstance(said, (int, float)):
        return 1.0
    return said / sqrt(rank) if config.get("use_rslora") else said / rank
