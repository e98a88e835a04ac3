"""Ops on real bytes: tensors with all values different, saved raw, computed by remap, judged by torch."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import torch

from remap.dtypes import dtype
from remap.expr import Expr, Take, blocks
from remap.ops.base import Op, Parts, Scope
from remap.ops.registry import read_op
from remap.types import Entry, Location, TensorSpec


class Bench:
    """Makes sources in a folder, and computes expressions over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def source(self, *shape: int, kind: str = "f32") -> tuple[torch.Tensor, Take]:
        """A tensor of consecutive numbers, none of which occurs in another source."""
        start = self.count * 10_000
        tensor = (torch.arange(prod(shape)) + start).reshape(shape).to(getattr(torch, dtype(kind).name))
        return tensor, self.put(tensor)

    def put(self, tensor: torch.Tensor) -> Take:
        """A tensor's bytes in a file of their own."""
        file = self.folder / f"{self.count}.bin"
        self.count += 1
        file.write_bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())
        name = str(tensor.dtype).removeprefix("torch.")
        return Take(Entry(file.name, TensorSpec(dtype(name), tuple(tensor.shape)), Location(file, 0)))


def compute(expr: Expr) -> torch.Tensor:
    """What an expression is, whole; shape and type must be those that it says."""
    found = blocks.evaluate(expr)
    assert tuple(found.shape) == expr.spec.shape
    assert str(found.dtype) == f"torch.{expr.spec.dtype.name}"
    return found


def build(op: Op, parts: Parts, wanted: int | None = None, **sizes: int) -> list[torch.Tensor]:
    """What an op makes of its parts."""
    return [compute(e) for e in op.build(parts, Scope(sizes, wanted))]


def op(name: str, arguments: Mapping[str, object] | None = None) -> Op:
    """An op as a pack asks for it."""
    return read_op(name, arguments or {})


def returns(the: Op, parts: Parts, wanted: int | None = None, **sizes: int) -> bool:
    """Does the op's inverse bring every part back, bit for bit?"""
    undo = the.inverse()
    assert hasattr(undo, "build"), undo
    after = the.build(parts, Scope(sizes, wanted))
    if the.shape == "cut":
        back = undo.build(after, Scope(sizes, 1))
    else:
        back = tuple(b for a in after for b in undo.build((a,), Scope(sizes, len(parts))))
    return len(back) == len(parts) and all(
        torch.equal(compute(b), compute(p)) for b, p in zip(back, parts, strict=True)
    )
