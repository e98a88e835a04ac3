"""Pairs and rules -> a pack that was tried on the source, and what it does not explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from remap.authoring.inference.align import by_name
from remap.authoring.inference.content import by_content
from remap.authoring.inference.generalise import NAMES, Proposed, generalise
from remap.authoring.inference.pairs import Pair, apart
from remap.authoring.inference.shown import example
from remap.authoring.write import to_yaml
from remap.errors import RemapError
from remap.packs import read
from remap.plan import make_plan
from remap.types import Catalog


@dataclass(frozen=True)
class Inferred:
    """A proposed pack.

    text       the pack's YAML
    explained  target keys that it makes, with the right spec, out of all
    proved     those among them that content proves
    unused     source keys that no rule uses; the pack drops them, for the author to look at
    missing    target keys that nothing makes
    confirm    rule -> what its author has to make sure of: names and shapes don't say it
    problem    why the pack does not run on the source; None where it does
    """

    text: str
    explained: int
    targets: int
    proved: int
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    confirm: Mapping[str, str]
    problem: str | None


def infer(source: Catalog, target: Catalog, name: str = "local/inferred") -> Inferred:
    """Propose a pack that makes ``target``'s keys of ``source``'s, by content where both have weights."""
    pairs = by_content(source, target) if _has_data(source) and _has_data(target) else []
    used = {s for p in pairs for s in p.sources}
    made = {t for p in pairs for t in p.targets}
    pairs += by_name(
        [e for k, e in source.entries.items() if k not in used],
        [e for k, e in target.entries.items() if k not in made],
        ops=not pairs,
    )
    used |= {s for p in pairs for s in p.sources}
    unused = [k for k in source.entries if k not in used]
    rules = generalise(pairs, unused)
    moved = _named(r for r in rules if not r.same)
    same = [text for r in rules if r.same for text in r.sources]
    proved = bool(rules) and all(r.proof == "content" for r in rules)
    text = to_yaml(_document(name, moved, same, unused, source, target, proved=proved))
    confirm = {n: r.confirm for n, r in moved.items() if r.confirm}
    return replace(_tried(text, source, target, pairs, unused), confirm=confirm)


def _has_data(catalog: Catalog) -> bool:
    return all(e.location is not None for e in catalog.entries.values())


def _tried(text: str, source: Catalog, target: Catalog, pairs: Iterable[Pair], unused: list[str]) -> Inferred:
    """Run the pack on the source: what it makes is what counts."""
    problem: str | None = None
    found: dict[str, object] = {}
    try:
        plan = make_plan(source, [read(text.encode(), "inferred.yaml")])
        found = {o.key: o.expr.spec for o in plan.outputs}
    except RemapError as e:
        problem = str(e)
    right = [k for k, e in target.entries.items() if found.get(k) == e.spec]
    by_bytes = {t for p in pairs if p.proof == "content" for t in p.targets}
    return Inferred(
        text=text,
        explained=len(right),
        targets=len(target.entries),
        proved=len(by_bytes.intersection(right)),
        unused=tuple(unused),
        confirm={},
        missing=tuple(k for k in target.entries if k not in set(right)),
        problem=problem,
    )


def _named(rules: Iterable[Proposed]) -> dict[str, Proposed]:
    """The rules by ids: the last words of what they write."""
    found: dict[str, Proposed] = {}
    for rule in rules:
        segments = [s for s in rule.targets[0].split(".") if s.isidentifier()]
        words = [s for s in segments if s not in ("weight", "bias")] or segments or ["all"]
        name = "-".join(words[-2:]).replace("_", "-").strip("-") or "all"
        count = next(n for n in range(1, len(found) + 2) if (name if n == 1 else f"{name}-{n}") not in found)
        found[name if count == 1 else f"{name}-{count}"] = rule
    return found


def _document(
    name: str,
    moved: Mapping[str, Proposed],
    same: list[str],
    unused: list[str],
    source: Catalog,
    target: Catalog,
    *,
    proved: bool,
) -> dict[str, object]:
    stage = [_rule(n, r) for n, r in moved.items()]
    if same:
        stage.append({"keep": same[0] if len(same) == 1 else same})
    if unused:
        because = "inference found nothing in the target that it is; look at it"
        stage.append({"id": "unexplained", "drop": _templates(unused, source), "because": because})
    note = "by content" if proved else "by names and shapes; check it"
    found: dict[str, object] = {
        "remap": 1,
        "pack": name,
        "version": "0.1.0",
        "title": f"{source.root.name} to {target.root.name}, inferred",
        "evidence": [{"project": f"{source.root.name} and {target.root.name}", "note": f"inferred {note}"}],
        "stages": [{"rules": stage}],
    }
    written = partial(_rule, "shown")
    examples = [example(r, written, source.entries, target.entries) for r in moved.values()]
    return {**found, "examples": examples} if examples else found


def _rule(name: str, rule: Proposed) -> dict[str, object]:
    found: dict[str, object] = {
        "id": name,
        "from": rule.sources[0] if len(rule.sources) == 1 else list(rule.sources),
        "to": rule.targets[0] if len(rule.targets) == 1 else list(rule.targets),
    }
    if rule.steps:
        found["do"] = rule.steps[0] if len(rule.steps) == 1 else list(rule.steps)
    if any(isinstance(s, dict) and "cast" in s and _narrows(s["cast"]) for s in rule.steps):
        found |= {"inverse": "none", "because": "the cast rounds"}
    if rule.confirm:
        found["confirm"] = rule.confirm
    return found


def _narrows(arguments: object) -> bool:
    from remap.ops.base import NoInverse
    from remap.ops.registry import read_op

    return isinstance(arguments, dict) and isinstance(read_op("cast", arguments).inverse(), NoInverse)


def _templates(unused: list[str], source: Catalog) -> list[str]:
    """The keys; as one template where all keys of the source that differ only in numbers are among them."""
    together = Counter(apart(k)[0] for k in source.entries)
    mine = Counter(apart(k)[0] for k in unused)
    found: dict[str, None] = {}
    for key in unused:
        skeleton, numbers = apart(key)
        if mine[skeleton] == together[skeleton] and mine[skeleton] > 1 and len(numbers) <= len(NAMES):
            names = iter(NAMES)
            key = ".".join(f"{{{next(names)}:int}}" if s == "#" else s for s in skeleton.split("."))
        found[key] = None
    return list(found)
