"""A proposed rule -> its example: real shapes where it renames, small ones with values where it reorders.

The op was proved on the checkpoint's own bytes; the values show the reader, and every later test of the
pack, which order that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from remap.authoring.inference.generalise import Proposed
from remap.authoring.values import laid, with_values
from remap.expr import Take
from remap.ops.base import Scope
from remap.ops.registry import read_op
from remap.types import Entry

LARGEST = 256
"""Values that an example may give; more are no help to a reader."""


def example(rule: Proposed, source: Mapping[str, Entry], target: Mapping[str, Entry]) -> dict[str, object]:
    """The example of a rule, made of the first of its pairs."""
    pair = rule.pairs[0]
    small = _small(rule)
    if small is not None:
        given, made = small
        return {
            "given": dict(zip(pair.sources, given, strict=True)),
            "expect": dict(zip(pair.targets, made, strict=True)),
        }
    return {
        "given": {s: str(source[s].spec) for s in pair.sources},
        "expect": {t: str(target[t].spec) for t in pair.targets},
    }


def _small(rule: Proposed) -> tuple[list[str], list[str]] | None:
    """The tensors of a reordering op with values, before and after; None for what keeps the order."""
    if rule.op is None:
        return None
    name, arguments = (rule.op, {}) if isinstance(rule.op, str) else next(iter(rule.op.items()))
    assert isinstance(arguments, dict)
    given: list[str] = []
    first = 0
    for shape in _shapes(name, arguments, len(rule.sources), len(rule.targets)):
        last = first + prod(shape)
        given.append(f"f32[{','.join(map(str, shape))}] = {' '.join(map(str, range(first, last)))}")
        first = last
    if not given or first > LARGEST:
        return None
    with TemporaryDirectory() as folder:
        entries = laid({str(n): text for n, text in enumerate(given)}, Path(folder))
        parts = tuple(Take(e) for e in entries.values())
        made = read_op(name, arguments).build(parts, Scope({}, len(rule.targets)))
        return given, [with_values(e) for e in made]


def _shapes(name: str, arguments: Mapping[str, object], sources: int, targets: int) -> list[tuple[int, ...]]:
    """Small shapes that the op takes: one element a row, one row a head, or four where they turn."""
    if name == "transpose":
        return [(2, 3)]
    if name == "concat":
        return [(2,)] * sources
    if name == "split":
        return [(2 * targets,)]
    heads, kv = arguments.get("heads"), arguments.get("kv_heads")
    if name == "rotary" and isinstance(heads, int):
        return [(4 * heads,)]
    if isinstance(heads, int) and isinstance(kv, int):
        return [(heads,), (kv,), (kv,)] if name == "fuse_qkv" else [(heads + 2 * kv,)]
    return []
