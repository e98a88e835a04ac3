"""What methods beside LoRA add to a weight: [out, in] in float32. Sources: peft 0.21, ``get_delta_weight`` of
``tuners/adalora/layer.py``, ``tuners/loha/layer.py``, ``tuners/lokr/layer.py``, ``tuners/vera/layer.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from remap.adapters.model import Adapter
from remap.adapters.scaling import by_pattern
from remap.errors import UsageError
from remap.expr import Expr, LowRank, Permute, Reshape, Slice, Times

Tensors = Mapping[str, Expr]
Product = Callable[[Adapter, str, Tensors, tuple[int, ...]], Expr]
"""(adapter, module, its tensors by leaf, shape of the weight) -> what is added."""


def product(
    adapter: Adapter, module: str, tensors: Tensors, shape: tuple[int, ...], *, flipped: bool = False
) -> Expr:
    """What is added to a module's weight, which lies [in, out] where it is ``flipped``. Raises UsageError for
    a method that does not add."""
    make = next((m for leaf, m in METHODS.items() if leaf in tensors), None)
    if make is None:
        head = min(tensors).partition(".")[0]
        raise UsageError(f"{head} is not merged by remap: it does not add factors to the weight")
    if len(shape) < 2:
        raise UsageError(f"factors for a weight of shape {list(shape)}")
    if flipped and len(shape) == 2:
        return Permute(make(adapter, module, tensors, shape[::-1]), (1, 0))
    return make(adapter, module, tensors, shape)


def _setting(adapter: Adapter, name: str, pattern: str, module: str) -> float:
    said = by_pattern(adapter.config.get(pattern), module)
    said = adapter.config.get(name) if said is None else said
    if not isinstance(said, (int, float)):
        raise UsageError(f"adapter_config.json has no {name}")
    return said


def _scale(adapter: Adapter, module: str) -> float:
    """LyCORIS' alpha / r."""
    r = _setting(adapter, "r", "rank_pattern", module)
    if r <= 0:
        raise UsageError(f"r is {r:g}")
    return _setting(adapter, "alpha", "alpha_pattern", module) / r


def _get(t: Tensors, name: str, dims: int = 2) -> Expr:
    """A tensor of so many dimensions. Raises UsageError."""
    if name not in t:
        raise UsageError(f"{name} is not there")
    shape = t[name].spec.shape
    if len(shape) != dims:
        raise UsageError(f"{name} of shape {list(shape)}")
    return t[name]


def _adalora(adapter: Adapter, module: str, t: Tensors, shape: tuple[int, ...]) -> Expr:
    """B @ (A * E) * alpha / (r + 1e-5); the small number is PEFT's."""
    down = _get(t, "lora_A")
    rank = down.spec.shape[0]
    alpha = _setting(adapter, "lora_alpha", "alpha_pattern", module)
    scale = (alpha if alpha > 0 else float(rank)) / (rank + 1e-5)
    return LowRank(_get(t, "lora_B"), Times(down, _get(t, "lora_E")), scale)


def _loha(adapter: Adapter, module: str, t: Tensors, shape: tuple[int, ...]) -> Expr:
    """(w1_a @ w1_b) * (w2_a @ w2_b) * alpha / r"""
    if "hada_t1" in t:
        raise UsageError("LoHa of a convolution with hada_t1 is not merged by remap")
    first = LowRank(_get(t, "hada_w1_a"), _get(t, "hada_w1_b"), _scale(adapter, module))
    return Reshape(Times(first, LowRank(_get(t, "hada_w2_a"), _get(t, "hada_w2_b"))), shape)


def _lokr(adapter: Adapter, module: str, t: Tensors, shape: tuple[int, ...]) -> Expr:
    """The Kronecker product of w1 and w2, each whole or of two factors, times alpha / r."""
    if "lokr_t2" in t:
        raise UsageError("LoKr of a convolution with lokr_t2 is not merged by remap")
    one, two = (
        _get(t, name) if name in t else LowRank(_get(t, f"{name}_a"), _get(t, f"{name}_b"))
        for name in ("lokr_w1", "lokr_w2")
    )
    (a, b), (c, d) = one.spec.shape, two.spec.shape
    outer = LowRank(Reshape(one, (a * b, 1)), Reshape(two, (1, c * d)), _scale(adapter, module))
    return Reshape(Permute(Reshape(outer, (a, b, c, d)), (0, 2, 1, 3)), shape)


def _vera(adapter: Adapter, module: str, t: Tensors, shape: tuple[int, ...]) -> Expr:
    """diag(b) B @ diag(d) A, with projections that all modules share, as far as this one reaches."""
    shared = {x.leaf: adapter.expr(x) for x in adapter.tensors if x.leaf in ("vera_A", "vera_B")}
    if len(shared) < 2:
        raise UsageError(
            "its projections are drawn anew by PEFT from a seed, and are not in the file",
            remedy="save it with save_projection=True",
        )
    b, d = _get(t, "vera_lambda_b", 1), _get(t, "vera_lambda_d", 1)
    rows = Slice(_get(shared, "vera_B"), 0, 0, shape[0])
    columns = Slice(_get(shared, "vera_A"), 1, 0, shape[1])
    down = Times(columns, Reshape(d, (*d.spec.shape, 1)))
    return LowRank(Times(rows, Reshape(b, (*b.spec.shape, 1))), down)


METHODS: Mapping[str, Product] = {
    "lora_E": _adalora,
    "hada_w1_a": _loha,
    "lokr_w1": _lokr,
    "lokr_w1_a": _lokr,
    "vera_lambda_b": _vera,
}
"""A leaf that tells the method -> what it adds."""
