"""Which conversion a run is: what must be the same for another run to go on with what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path

import xxhash

from remap.expr import Expr, Take
from remap.formats.base import CopiedBytes, Literal, OutFile, TensorBytes
from remap.plan import Plan
from remap.types import Derived
from remap.version import __version__

Tell = Callable[[str], None]
Stamp = tuple[int, int, int]


def fingerprint(plan: Plan, files: Sequence[OutFile], again: Iterable[str] = ()) -> dict[str, str]:
    """The key of a conversion: digests of its rules, of its inputs' names and times, and of what its files
    are to be."""
    output = xxhash.xxh3_128()
    sources = set(plan.catalog.files)
    for file in files:
        _describe(file, sources, lambda text: output.update(f"{text}\0".encode(errors="surrogatepass")))
    steps = [(s.pack, s.version, s.digest, s.inverse, sorted(s.params.items())) for s in plan.steps]
    inputs = [(str(f.absolute()), stamp(f)) for f in sorted(sources)]
    return {
        "remap": __version__,
        "rules": _digest([steps, sorted(again)]),
        "inputs": _digest(inputs),
        "output": output.hexdigest(),
    }


def stamp(file: Path) -> Stamp:
    """What tells of a file whether it was changed: size, time and inode."""
    found = file.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _digest(value: object) -> str:
    return xxhash.xxh3_128(repr(value).encode(errors="surrogatepass")).hexdigest()


def _describe(file: OutFile, sources: set[Path], tell: Tell) -> None:
    tell(f"file {file.name} {file.nbytes}")
    for part in file.parts:
        if isinstance(part, Literal):
            tell(f"bytes {xxhash.xxh3_128(part.data).hexdigest()}")
        elif isinstance(part, TensorBytes):
            tell(f"tensor {part.key}")
            _expression(part.expr, sources, tell, {})
        elif isinstance(part, CopiedBytes):
            sources.add(part.file)
            tell(f"copy {part.file} {part.offset} {part.nbytes}")


def _expression(expr: Expr, sources: set[Path], tell: Tell, seen: dict[int, int]) -> None:
    """``seen`` has the nodes that were told already: an expression may have one in several places."""
    if id(expr) in seen:
        tell(f"again {seen[id(expr)]}")
        return
    seen[id(expr)] = len(seen)
    if isinstance(expr, Take):
        where = expr.entry.location
        tell(f"take {expr.entry.key} {expr.spec}")
        if isinstance(where, Derived):
            _expression(where.expr, sources, tell, seen)
        elif where is not None:
            sources.add(where.file)
            tell(f"at {where.file} {where.offset}")
        return
    tell(type(expr).__name__)
    for field in fields(expr):
        value = getattr(expr, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if hasattr(item, "children"):
                _expression(item, sources, tell, seen)
            else:
                tell(f"{field.name} {item}")
