"""A proposed rule -> its example: real shapes where it renames, small ones with values where it has ops.

The rule itself makes the values, from parts that count up; they show the reader, and every later test of
the pack, which order that is. A rule that cuts is run backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from remap.authoring.inference.generalise import Proposed
from remap.authoring.inference.pairs import Step
from remap.authoring.values import laid, with_values
from remap.authoring.write import to_yaml
from remap.packs import read
from remap.plan import make_plan
from remap.types import Catalog, Entry

LARGEST = 256
"""Values that an example may give; more are no help to a reader."""
MEMBERS = 2
"""Members of a stack that an example has."""


def example(
    rule: Proposed,
    written: Callable[[Proposed], Mapping[str, object]],
    source: Mapping[str, Entry],
    target: Mapping[str, Entry],
) -> dict[str, object]:
    """The example of a rule, made of the first of its pairs; ``written`` is how it stands in a pack."""
    pair = rule.pairs[0]
    members = next((n for s in rule.steps for n in _counts(s)), MEMBERS)
    sources, targets = pair.first("sources", members), pair.first("targets", members)
    cuts = len(targets) > len(sources)
    given = _given(rule.steps, targets if cuts else sources, source if not cuts else target)
    if given is None:
        return {
            "given": {s: str(source[s].spec) for s in pair.sources},
            "expect": {t: str(target[t].spec) for t in pair.targets},
        }
    head = {"remap": 1, "pack": "local/example", "version": "0", "title": "one rule"}
    text = to_yaml({**head, "stages": [{"rules": [written(rule)]}]})
    with TemporaryDirectory() as folder:
        catalog = Catalog("keylist", Path(folder), (), laid(given, Path(folder)))
        plan = make_plan(catalog, [read(text.encode(), "example.yaml")], inverse=cuts, partial=True)
        made = {o.key: with_values(o.expr) for o in plan.outputs}
    return {"given": made, "expect": given} if cuts else {"given": given, "expect": made}


def _counts(step: Step) -> list[int]:
    """How many members the step says that there are."""
    several = [] if isinstance(step, str) else step.values()
    return [a["parts"] for a in several if isinstance(a, dict) and isinstance(a.get("parts"), int)]


def _given(steps: Sequence[Step], keys: Sequence[str], entries: Mapping[str, Entry]) -> dict[str, str] | None:
    """Small tensors with values for the keys that are joined; None for what keeps the order."""
    shapes = _shapes(steps, keys, entries)
    if not shapes or sum(map(prod, shapes)) > LARGEST:
        return None
    given: dict[str, str] = {}
    first = 0
    for key, shape in zip(keys, shapes, strict=True):
        last = first + prod(shape)
        given[key] = f"f32[{','.join(map(str, shape))}] = {' '.join(map(str, range(first, last)))}"
        first = last
    return given


def _shapes(
    steps: Sequence[Step], keys: Sequence[str], entries: Mapping[str, Entry]
) -> list[tuple[int, ...]]:
    """Small shapes that the ops take: one row a head, four where they turn, two elsewhere."""
    rank = max((len(entries[k].spec.shape) for k in keys), default=1) if "transpose" in steps else 1
    rest = tuple(range(3, 2 + rank))
    rows = [2] * len(keys)
    for step in steps:
        name, arguments = (step, {}) if isinstance(step, str) else next(iter(step.items()))
        assert isinstance(arguments, dict)
        heads, kv, sizes = arguments.get("heads"), arguments.get("kv_heads"), arguments.get("sizes")
        if name == "cast" or isinstance(sizes, list):
            return []
        if name == "rotary" and isinstance(heads, int):
            rows = [4 * heads]
        elif isinstance(heads, int) and isinstance(kv, int):
            rows = [heads, kv, kv]
    return [(n, *rest) for n in rows] if steps else []
