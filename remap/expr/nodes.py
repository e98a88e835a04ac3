"""The nodes of an expression. Building one checks it: ``spec`` is right, or UsageError is raised.

Take      a source tensor, by key and location
Slice     [start, stop) along one dimension
Concat    parts joined along one dimension
Reshape   the same elements in row-major order, another shape
Permute   dimensions reordered (transpose is the two-dimensional case)
Cast      another element type
Pad       elements added before and after along one dimension
Same      one tensor in several copies, which must agree
Affine    every element times a number, plus a number
Sum       parts added element by element
Constant  a new tensor of one value
Normal    a new tensor of random values, the same for the same seed

Those that multiply lie in ``products``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TypeGuard, Union, get_args

from remap.dtypes import DType
from remap.errors import UsageError
from remap.expr.products import Lengths, LowRank, Normed, Times
from remap.types import Entry, TensorSpec


def _check(ok: bool, what: str) -> None:
    if not ok:
        raise UsageError(what)


def _dim(dim: int, shape: tuple[int, ...], what: str) -> None:
    if not 0 <= dim < len(shape):
        raise UsageError(f"{what} along dimension {dim} of a tensor of shape {list(shape)}")


@dataclass(frozen=True, slots=True)
class Take:
    """A source tensor as it is."""

    entry: Entry

    @property
    def spec(self) -> TensorSpec:
        return self.entry.spec

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements ``start`` to ``stop`` (exclusive) along ``dim``."""

    of: Expr
    dim: int
    start: int
    stop: int
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        shape = self.of.spec.shape
        _dim(self.dim, shape, "slice")
        if not 0 <= self.start <= self.stop <= shape[self.dim]:
            what = f"slice [{self.start}:{self.stop}] of dimension {self.dim}"
            raise UsageError(f"{what}, which has {shape[self.dim]} elements")
        size = self.stop - self.start
        _set(self, self.of.spec.dtype, (*shape[: self.dim], size, *shape[self.dim + 1 :]))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Concat:
    """Parts joined along ``dim``: one dtype, equal shapes but for that dimension."""

    parts: tuple[Expr, ...]
    dim: int = 0
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        _check(bool(self.parts), "concat of nothing")
        first = self.parts[0].spec
        _dim(self.dim, first.shape, "concat")
        d = self.dim
        for p in self.parts:
            shape = p.spec.shape
            if p.spec.dtype != first.dtype:
                raise UsageError(f"concat of {first.dtype.name} and {p.spec.dtype.name}")
            same = shape[:d] == first.shape[:d] and shape[d + 1 :] == first.shape[d + 1 :]
            if len(shape) != len(first.shape) or not same:
                what = f"concat along dimension {d} of shapes"
                raise UsageError(f"{what} {list(first.shape)} and {list(shape)}")
        size = sum(p.spec.shape[d] for p in self.parts)
        _set(self, first.dtype, (*first.shape[:d], size, *first.shape[d + 1 :]))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in row-major order under another shape."""

    of: Expr
    shape: tuple[int, ...]
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        spec = self.of.spec
        if prod(self.shape) != spec.numel:
            raise UsageError(f"reshape of {list(spec.shape)} ({spec.numel} elements) to {list(self.shape)}")
        _set(self, self.of.spec.dtype, tuple(self.shape))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Permute:
    """Dimensions reordered: output dimension ``i`` is input dimension ``dims[i]``."""

    of: Expr
    dims: tuple[int, ...]
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        shape = self.of.spec.shape
        _check(
            sorted(self.dims) == list(range(len(shape))),
            f"permute by {list(self.dims)} of a tensor of {len(shape)} dimensions",
        )
        _set(self, self.of.spec.dtype, tuple(shape[d] for d in self.dims))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Cast:
    """Every element in another type, rounded as torch rounds."""

    of: Expr
    dtype: DType
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        _set(self, self.dtype, self.of.spec.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Pad:
    """``before`` and ``after`` more elements of ``value`` along ``dim``."""

    of: Expr
    dim: int
    before: int = 0
    after: int = 0
    value: float = 0.0
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        shape = self.of.spec.shape
        _dim(self.dim, shape, "pad")
        _check(self.before >= 0 and self.after >= 0, f"pad by {self.before} and {self.after} elements")
        size = shape[self.dim] + self.before + self.after
        _set(self, self.of.spec.dtype, (*shape[: self.dim], size, *shape[self.dim + 1 :]))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Same:
    """One tensor in several copies (replicas of model-parallel ranks): reading it raises Damaged where a
    copy departs from the first, bit by bit."""

    parts: tuple[Expr, ...]
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        _check(bool(self.parts), "no copies of anything")
        first = self.parts[0].spec
        for p in self.parts:
            _check(p.spec == first, f"copies of one tensor are {first} and {p.spec}")
        _set(self, first.dtype, first.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Affine:
    """``of * scale + offset``, rounded as torch rounds in the tensor's own type."""

    of: Expr
    scale: float = 1.0
    offset: float = 0.0
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        spec = self.of.spec
        _check(spec.dtype.is_float, f"arithmetic on elements of type {spec.dtype.name}")
        _set(self, spec.dtype, spec.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Sum:
    """Parts of one spec added element by element, in double precision, rounded once."""

    parts: tuple[Expr, ...]
    spec: TensorSpec = field(init=False)

    def __post_init__(self) -> None:
        _check(bool(self.parts), "sum of nothing")
        first = self.parts[0].spec
        _check(first.dtype.is_float, f"arithmetic on elements of type {first.dtype.name}")
        for p in self.parts:
            _check(p.spec == first, f"sum of {first} and {p.spec}")
        _set(self, first.dtype, first.shape)

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that no source has: every element is ``value``."""

    spec: TensorSpec
    value: float = 0.0

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Normal:
    """A tensor that no source has: normally distributed around 0. Each row has a generator of its own, so
    the values don't depend on how it is cut into blocks."""

    spec: TensorSpec
    std: float
    seed: int

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


Expr = Union[
    Take,
    Slice,
    Concat,
    Reshape,
    Permute,
    Cast,
    Pad,
    Same,
    Affine,
    Sum,
    Constant,
    Normal,
    LowRank,
    Times,
    Normed,
    Lengths,
]


def _set(node: Expr, dtype: DType, shape: tuple[int, ...]) -> None:
    object.__setattr__(node, "spec", TensorSpec(dtype, shape))


def is_expr(value: object) -> TypeGuard[Expr]:
    """True for a node."""
    return isinstance(value, get_args(Expr))


def takes(expr: Expr) -> Iterator[Take]:
    """Every source tensor that ``expr`` reads, in order, repeated where it is read twice."""
    if isinstance(expr, Take):
        yield expr
    for child in expr.children:
        yield from takes(child)
