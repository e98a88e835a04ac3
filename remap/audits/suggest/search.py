"""The search: every kind of change is tried, what helps is told, most keys first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from remap.audits.comparison import Comparison
from remap.audits.suggest import packs, prefix, segments, wrapper
from remap.audits.suggest.pack_text import pack_text, prefix_text
from remap.audits.suggest.score import fitting, unchanged
from remap.audits.suggest.suggestion import Suggestion
from remap.errors import RemapError
from remap.packs import read
from remap.plan import make_plan

TOLD = 3
RULES = 400
"""Rules that a suggested pack may have."""
KINDS = ("wrapper", "pack", "prefix", "segments")
"""Of two that make as many keys match, the first is told."""
FIX = "fix.yaml"


def suggest(
    table: Comparison, policy: str = "strict", options: Sequence[str] | None = None
) -> tuple[Suggestion, ...]:
    """The changes that would make more of the target's keys match, best first. ``policy`` is for the
    commands."""
    if not table.absent or not table.excess:
        return ()
    before = unchanged(table)
    command = _command(table, policy, options)
    found = [
        s for s in (*_packs(table, before, command), *_names(table, before, command)) if s.after > s.before
    ]
    found.sort(key=lambda s: (-s.after, KINDS.index(s.kind)))
    best: list[Suggestion] = []
    for one in found:
        if not any(set(one.names.values()) <= set(b.names.values()) for b in best):
            best.append(one)
    return tuple(best[:TOLD])


def _names(table: Comparison, before: dict[str, str], command: str) -> Iterator[Suggestion]:
    taken = frozenset(before.values())
    for kind, look in (("wrapper", wrapper.names), ("prefix", prefix.names), ("segments", segments.names)):
        what, raw = look(table)
        changed = fitting(table, {k: n for k, n in raw.items() if k not in before})
        names = before | {k: n for k, n in changed.items() if n not in taken}
        if len(names) <= len(before):
            continue
        text = next((t for t in _texts(kind, names, table, what) if _works(table, t, names)), "")
        if text:
            fix = f"{command} --write-fix {FIX}\n{command} -r {FIX}"
            yield Suggestion(kind, what, len(before), len(names), len(table.target.specs), fix, text, names)
            if len(names) == min(len(table.target.specs), len(table.offered)):
                return  # the simplest that explains everything is enough


def _texts(kind: str, names: dict[str, str], table: Comparison, what: str) -> Iterator[str]:
    """Packs that may do it, the simplest first."""
    if kind == "prefix" and len(names) == len(table.offered):
        key, name = next(iter(names.items()))
        if key.endswith(name):
            yield prefix_text(key[: -len(name)], "", what)
        else:
            yield prefix_text("", name[: -len(key)], what)
    yield pack_text(names, table.offered, what)


def _works(table: Comparison, text: str, names: dict[str, str]) -> bool:
    """Does the pack give these names? It is tried, not believed."""
    if text.count("- id:") > RULES:
        return False  # no change that a person would call one
    try:
        plan = make_plan(packs.as_catalog(table), [read(text.encode(), FIX)])
    except RemapError:
        return False
    made = {o.sources[0]: o.key for o in plan.outputs}
    return all(made.get(k) == n for k, n in names.items())


def _packs(table: Comparison, before: dict[str, str], command: str) -> Iterator[Suggestion]:
    of = len(table.target.specs)
    for tried in packs.names(table):
        run = f"{command} -r {tried.pack}{' --inverse' if tried.inverse else ''}"
        what = f"the pack {tried.pack}{', backwards' if tried.inverse else ''}"
        if tried.through_wrappers:
            what += ", and the target's wrappers put in"
        yield Suggestion("pack", what, len(before), tried.after, of, run, "", tried.names)


def _command(table: Comparison, policy: str, options: Sequence[str] | None) -> str:
    """The audit as a command; without ``options`` its packs and policy are called by their names."""
    if options is None:
        packs_used = [w for step in (table.plan.steps if table.plan else ()) for w in ("-r", step.pack)]
        options = [*packs_used, *(("--policy", policy) if policy != "strict" else ())]
    return shlex.join(["remap", "audit", str(table.source.root), "--against", table.target.name, *options])
