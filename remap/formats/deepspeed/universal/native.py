"""A universal checkpoint's own view of itself: which folder and which files are what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from remap.errors import Damaged
from remap.formats.deepspeed.universal.folder import PARAM, WEIGHT
from remap.formats.deepspeed.universal.ranks import from_parts
from remap.formats.deepspeed.zero.cut import Shapes
from remap.formats.deepspeed.zero.run import read_shapes
from remap.formats.torch import file as torch_file
from remap.formats.torch.state import TorchFile
from remap.pickles.graph import key_of, mapping_pairs
from remap.pickles.nodes import Value
from remap.types import Entry, TensorSpec

STEP = "step"
NAMES = "remap_keys"
"""In ``optimizer_state.pt``: name of a weight's folder -> its key, where they differ. DeepSpeed does not
look at it."""


@dataclass(frozen=True)
class Universal:
    """A step folder.

    weights  key -> the weight's folder
    models   the files beside ``zero``, read
    state    ``optimizer_state.pt``, read; None where there is none
    """

    folder: Path
    weights: Mapping[str, Path]
    models: Sequence[TorchFile]
    state: TorchFile | None

    @cached_property
    def shapes(self) -> list[Shapes]:
        """``param_shapes`` of all model files, by number: shapes of flat tensors, members of groups."""
        found: list[dict[str, tuple[int, ...]]] = []
        for model in self.models:
            for number, names in enumerate(read_shapes(model)):
                found += [{}] * (number + 1 - len(found))
                found[number] = {**found[number], **names}
        return list(found)

    def around(self, key: str) -> Mapping[str, Value]:
        """What a weight's file says beside the tensor: how ranks divide it. {} where it says nothing."""
        return _said(torch_file.read(self.weights[key] / WEIGHT, state_dict=False))

    def tensor(self, key: str, file: Path) -> Entry:
        """The tensor in a file, a weight or a moment, as ``key``. Flat ones get the weight's shape."""
        read = torch_file.read(file, state_dict=False)
        found = read.tensor_at(PARAM) if PARAM in read.keys else read.tensor_at()
        if found is None:
            raise Damaged("there is no tensor in it", where=file)
        shapes = [names[file.parent.name] for names in self.shapes if file.parent.name in names]
        if PARAM not in read.keys and shapes and found.spec.shape == (prod(shapes[0]),):
            return Entry(key, TensorSpec(found.spec.dtype, shapes[0]), found.location)
        return from_parts(Entry(key, found.spec, found.location), _said(read))


def _said(read: TorchFile) -> dict[str, Value]:
    """What a file says beside its tensor."""
    pairs = ((key_of(k), v) for k, v in mapping_pairs(read.node_at()) or ())
    return {k: v for k, v in pairs if isinstance(k, str) and k != PARAM}
