"""State dicts with everything that torch can save, and how to compare them bit by bit."""

from __future__ import annotations

import collections
from pathlib import Path

import torch

from remap.dtypes import TABLE
from remap.expr import Take
from remap.formats.base import OutFile
from remap.stream import write_files

TYPES = [t.name for t in TABLE if not t.name.endswith(("fnuz", "e8m0fnu"))]


def state_dict() -> dict[str, torch.Tensor]:
    """Ties, views, Parameters, each type, 0-dim and empty tensors."""
    torch.manual_seed(0)
    base = torch.randn(6, 4)
    tensors = collections.OrderedDict(
        {
            "wte.weight": base,
            "lm_head.weight": base,
            "view.row": base[1],
            "view.column": base[:, 2],
            "view.transposed": torch.randn(4, 5).t(),
            "view.expanded": torch.ones(1).expand(3, 2),
            "bias": torch.nn.Parameter(torch.randn(3)),
            "scalar": torch.tensor(3.5),
            "empty": torch.empty(0, 4),
            "deep": torch.randn(1, 2, 3, 2, 1),
        }
    )
    for name in TYPES:
        tensors[f"types.{name}"] = torch.arange(3).to(getattr(torch, name))
    return tensors


def raw(tensor: torch.Tensor) -> bytes:
    """The row-major bytes of a tensor."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Keys in order, types, shapes and bytes are equal."""
    assert list(found) == list(expected)
    for key, tensor in expected.items():
        assert (found[key].dtype, found[key].shape) == (tensor.dtype, tensor.shape), key
        assert raw(found[key]) == raw(tensor), key


def write(out: OutFile, folder: Path) -> Path:
    """Write one file."""
    folder.mkdir(exist_ok=True)
    write_files([out], folder)
    return folder / out.name


def takes(entries) -> dict[str, Take]:
    """Every entry as it is."""
    return {key: Take(entry) for key, entry in entries.items()}
