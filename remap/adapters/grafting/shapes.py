"""Do the factors of an adapter fit the weights of a base? By sizes only: values can't tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from remap.adapters.model import Adapter
from remap.dialects.magma import is_prefix
from remap.types import TensorSpec


def misfits(adapter: Adapter, weights: Mapping[str, TensorSpec]) -> Iterator[str]:
    """One line for each module whose sizes are others. ``weights`` are the base's, by their bare names."""
    for module in adapter.modules:
        leaves = adapter.of(module)
        weight = weights.get(f"{module}.weight")
        if "lora_A.weight" in leaves and "lora_B.weight" in leaves and weight is not None:
            a, b = (adapter.expr(leaves[leaf]).spec.shape for leaf in ("lora_A.weight", "lora_B.weight"))
            sizes = {b[0], *a[1:]}
            if len(weight.shape) == len(a) and not sizes <= set(weight.shape):
                yield f"{module}: the adapter is for {b[0]} outputs and {a[1]} inputs, the weight is {weight}"
        for leaf, t in leaves.items():
            if leaf.startswith("modules_to_save."):
                name = f"{module}.{leaf.partition('.')[2]}"
                if name in weights and weights[name].shape != adapter.spec(t).shape:
                    yield f"{name}: the adapter has {adapter.spec(t)}, the base {weights[name]}"
    yield from _bottlenecks(adapter, weights)


def _bottlenecks(adapter: Adapter, weights: Mapping[str, TensorSpec]) -> Iterator[str]:
    """The size that a bottleneck adapter takes in and gives back is one of the wrapped module's."""
    sizes: dict[str, set[int]] = {}
    for key, spec in weights.items():
        segments = key.split(".")
        for n in range(1, len(segments)):
            sizes.setdefault(".".join(segments[:n]), set()).update(spec.shape)
    for t in adapter.tensors:
        down = t.leaf.endswith((".0.weight", ".1.weight")) and "adapter." in t.leaf
        shape = adapter.spec(t).shape
        if down and len(shape) == 2 and not is_prefix(t) and shape[1] not in sizes.get(t.module, {shape[1]}):
            yield f"{t.module}: the adapter is for size {shape[1]}, the base's weights have none of it"
