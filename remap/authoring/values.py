"""Values in examples: ``"f32[4,1] = 0 1 2 3"``, row by row. What reorders needs them, since a wrong
permutation has the right shape and comes back as well.

The given values are laid into a file of their own, the plan's expressions are computed from it as from
any checkpoint, and what comes out is compared number by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

from remap.errors import UsageError
from remap.expr import Expr
from remap.packs.language.pack import Example, Pack
from remap.plan import Plan, make_plan
from remap.stream.read import read_expr
from remap.types import Catalog, Entry, Location, TensorSpec

MEMORY = 1 << 24
CODES = {"float32": "f4", "float64": "f8", "float16": "f2", "int64": "i8", "int32": "i4", "uint8": "u1"}
"""Element types that an example may give values of, as numpy calls them."""


def spec_of(text: str) -> TensorSpec:
    """The spec of an example's tensor, with or without values."""
    return TensorSpec.parse(text.partition("=")[0])


def has_values(given: Mapping[str, str]) -> bool:
    """Has any of the tensors values?"""
    return any("=" in text for text in given.values())


def wrong_values(pack: Pack, example: Example) -> Iterator[str]:
    """What an example's values show to be wrong, one line a tensor."""
    if not has_values(example.expect):
        return
    with TemporaryDirectory() as folder:
        plan = _plan(pack, example, Path(folder))
        made = {o.key: o.expr for o in plan.outputs}
        for key, text in example.expect.items():
            if "=" in text and key in made:
                found = b"".join(map(bytes, read_expr(made[key], MEMORY)))
                if found != _encoded(text):
                    yield f"{key} has the values {_decoded(found, text)}; expected{text.partition('=')[2]}"


def _plan(pack: Pack, example: Example, folder: Path) -> Plan:
    catalog = Catalog("keylist", folder, (), laid(example.given, folder), config=example.config)
    return make_plan(catalog, [pack], inverse=example.inverse, params=example.params, partial=True)


def laid(given: Mapping[str, str], folder: Path) -> dict[str, Entry]:
    """Key -> entry for an example's tensors; those with values lie in a file each."""
    entries: dict[str, Entry] = {}
    for n, (key, text) in enumerate(given.items()):
        location = None
        if "=" in text:
            location = Location(folder / f"{n}.bin", 0)
            location.file.write_bytes(_encoded(text))
        entries[key] = Entry(key, spec_of(text), location)
    return entries


def with_values(expr: Expr) -> str:
    """The tensor as an example gives it: ``f32[2] = 0 1``."""
    text = str(expr.spec)
    return f"{text} = {_decoded(b''.join(map(bytes, read_expr(expr, MEMORY))), text)}"


def _code(spec: TensorSpec) -> str:
    if spec.dtype.name not in CODES:
        raise UsageError(
            f"an example can't give values of type {spec.dtype.name}", remedy=f"use {', '.join(CODES)}"
        )
    return f"<{CODES[spec.dtype.name]}"


def _encoded(text: str) -> bytes:
    """The bytes of an example's values. Raises UsageError where they are not as many as the spec says."""
    import numpy

    spec, values = spec_of(text), text.partition("=")[2].split()
    if len(values) != spec.numel:
        raise UsageError(f"{text!r}: {len(values)} values for {spec.numel} elements")
    code = _code(spec)
    return numpy.array([_number(v, spec) for v in values], dtype=code).tobytes()


def _number(word: str, spec: TensorSpec) -> float:
    """A value. Raises UsageError for one that the type does not hold."""
    try:
        found = float(word) if spec.dtype.is_float else int(word)
    except ValueError:
        raise UsageError(f"{word!r} is no number of type {spec.dtype.name}") from None
    if isfinite(found) and not spec.dtype.holds(found):
        raise UsageError(f"{word} is a number that {spec.dtype.name} does not hold")
    return found


def _decoded(found: bytes, text: str) -> str:
    import numpy

    spec = spec_of(text)
    values = numpy.frombuffer(found, dtype=_code(spec))
    return " ".join(f"{v:g}" if spec.dtype.is_float else str(v) for v in values)
