"""Wrappers on either side: names compared without them."""

from __future__ import annotations

from collections import Counter

from remap.audits.comparison import Comparison
from remap.audits.names.wrappers import is_wrapped, unwrap, wrappers


def names(table: Comparison) -> tuple[str, dict[str, str]]:
    """(what, offered key -> the target's key that is the same without wrappers)."""
    ours = Counter(w for k in table.offered if is_wrapped(k) for w in wrappers(k))
    theirs = Counter(w for k in table.target.specs if is_wrapped(k) for w in wrappers(k))
    if not ours and not theirs:
        return "", {}
    plain = {unwrap(k): k for k in table.target.specs}
    found = {k: plain[u] for k in table.offered if (u := unwrap(k)) in plain}
    what = []
    if ours:
        what.append(f"take the wrapper {_listed(ours)} out of the source's names")
    if theirs:
        what.append(f"put the wrapper {_listed(theirs)} into them, as the target has it")
    return " and ".join(what), found


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{w}." for w, _ in found.most_common())
