"""Which way a weight lies: ``[out, in]`` as a linear layer's, or ``[in, out]`` as a Conv1D's.

``fan_in_fan_out`` of the configuration is one word for all modules, and PEFT writes the last module's there:
with GPT-2's head among the targets it is false, though the other targets are Conv1D. So a base is believed
first: its sizes, then the biases of what lies beside a weight that is square (GPT-2's ``attn.c_proj`` beside
``attn.c_attn``, whose bias is as long as the weight has columns). Source: peft 0.21 ``tuners/lora/model.py``
(``_create_new_module``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from remap.types import TensorSpec


class Orientation:
    """How the weights of a base lie; without one, or where it doesn't tell, as the configuration says."""

    def __init__(self, config: Mapping[str, object], base: Mapping[str, TensorSpec] | None = None) -> None:
        self._said = bool(config.get("fan_in_fan_out"))
        self._base = base or {}
        self._seen: dict[str, set[bool]] = {}
        for key in self._base:
            for prefix, flipped in _votes(self._base, key):
                self._seen.setdefault(prefix, set()).add(flipped)

    def flipped(self, key: str, outputs: int | None = None, inputs: int | None = None) -> bool:
        """Does the weight ``key`` lie [in, out]? ``outputs`` and ``inputs`` as far as an adapter knows."""
        spec = self._base.get(key)
        if spec is None or len(spec.shape) != 2:
            return self._said
        rows, columns = spec.shape
        if rows != columns and outputs in (rows, columns):
            return outputs == columns
        if rows != columns and inputs in (rows, columns):
            return inputs == rows
        for prefix in _parents(key):
            if prefix in self._seen:
                found = self._seen[prefix]
                return found == {True} if len(found) == 1 else self._said
        return self._said


def _votes(base: Mapping[str, TensorSpec], key: str) -> Iterator[tuple[str, bool]]:
    """What a weight's bias tells of it, for every module around it."""
    module, _, name = key.rpartition(".")
    shape = base[key].shape
    bias = base.get(f"{module}.bias")
    if name != "weight" or len(shape) != 2 or shape[0] == shape[1] or bias is None:
        return
    if bias.shape in ((shape[0],), (shape[1],)):
        for prefix in _parents(key):
            yield prefix, bias.shape == (shape[1],)


def _parents(key: str) -> Iterator[str]:
    """The modules around a weight's own, the nearest first."""
    module = key.rpartition(".")[0]
    while module := module.rpartition(".")[0]:
        yield module
