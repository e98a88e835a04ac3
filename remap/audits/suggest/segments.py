"""Segments that have another name on the other side: ``embed_out`` and ``lm_head``.

Missing and unexpected keys are paired skeleton by skeleton (names without their numbers). What is left of a
pair without its common beginning and end is a substitution; the one that explains most keys counts, then
the one that explains most of the rest, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from remap.audits.comparison import Comparison
from remap.audits.names.adapters import is_adapter
from remap.audits.names.ties import role
from remap.audits.suggest.skeletons import Digits, Pieces, group

ROUNDS = 6
"""Substitutions that are looked for."""
PAIRS = 60_000
"""Pairs of skeletons that are looked at."""

Run = tuple[str, ...]
Change = tuple[Run, Run]


def names(table: Comparison) -> tuple[str, dict[str, str]]:
    """(what, offered key -> new name) for the substitutions that make most keys match."""
    missing, excess = dict.fromkeys(_places(table)), dict.fromkeys(table.excess)
    done: list[Change] = []
    found: dict[str, str] = {}
    while len(done) < ROUNDS and missing and excess:
        change, hits = _best(table, missing, excess, done)
        if not hits:
            break
        done.append(change)
        found |= hits
        for key, name in hits.items():
            excess.pop(key)
            missing.pop(name, None)
    what = ", ".join(f"{'.'.join(a)} -> {'.'.join(b) or '(nothing)'}" for a, b in done)
    return f"rename {what}" if done else "", found


def _places(table: Comparison) -> Iterable[str]:
    """The missing keys; for a file with adapters without those of the base weights, which are not in such a
    file."""
    if any(is_adapter(k) for k in table.offered) and not any(_is_base(k) for k in table.offered):
        return (k for k in table.absent if not _is_base(k))
    return table.absent


def _is_base(key: str) -> bool:
    return ".base_layer." in key or ".original_module." in key


def _best(
    table: Comparison, missing: Mapping[str, None], excess: Mapping[str, None], done: list[Change]
) -> tuple[Change, dict[str, str]]:
    votes = _votes(table, group(missing), group(excess))
    best: tuple[Change, dict[str, str]] = (((), ()), {})
    for change, _ in votes.most_common(8):
        if change in done:
            continue
        hits = _apply(table, change, missing, excess)
        if len(hits) > len(best[1]):
            best = change, hits
    return best


Groups = Mapping[Pieces, Mapping[Digits, str]]


def _votes(table: Comparison, missing: Groups, excess: Groups) -> Counter[Change]:
    votes: Counter[Change] = Counter()
    weak: list[tuple[str, str, Change, int]] = []
    pairs = 0
    for there_pieces, there in missing.items():
        for here_pieces, here in excess.items():
            pairs += 1
            if pairs > PAIRS:
                return votes
            common = there.keys() & here.keys() if len(there_pieces) == len(here_pieces) else set()
            if not common:
                continue
            digits = min(common)
            if _same_shape(table, here[digits], there[digits]):
                ours, theirs = here[digits], there[digits]
                change = difference(ours, theirs)
                if role(ours) != role(theirs):
                    continue
                if change and _akin(ours, theirs, change):
                    votes[change] += len(common)
                elif change:
                    weak.append((ours, theirs, change, len(common)))
    here_partners = Counter(ours for ours, *_ in weak)
    there_partners = Counter(theirs for _, theirs, *_ in weak)
    for ours, theirs, change, count in weak:
        if here_partners[ours] == there_partners[theirs] == 1:
            votes[change] += count
    return votes


def _akin(ours: str, theirs: str, change: Change) -> bool:
    """Have they more in common than the last segment? If not, their shape has to tell, and be the only
    one."""
    return len(ours.split(".")) - len(change[0]) > 1 or len(theirs.split(".")) - len(change[1]) > 1


def _same_shape(table: Comparison, ours: str, theirs: str) -> bool:
    return table.unshaped or table.offered[ours].shape == table.target.specs[theirs].shape


def difference(ours: str, theirs: str) -> Change | None:
    """What is left of two keys without their common beginning and end; one segment stays where nothing
    would."""
    x, y = ours.split("."), theirs.split(".")
    head = 0
    while head < min(len(x), len(y)) and x[head] == y[head]:
        head += 1
    tail = 0
    while tail < min(len(x), len(y)) - head and x[-1 - tail] == y[-1 - tail]:
        tail += 1
    if head + tail == 0:
        return None
    if head + tail >= min(len(x), len(y)) and head:  # an insertion, or a deletion: say after what
        head -= 1
    elif head + tail >= min(len(x), len(y)):
        tail -= 1
    left, right = tuple(x[head : len(x) - tail]), tuple(y[head : len(y) - tail])
    if any(s.isdigit() for s in (*left, *right)) or left == right:
        return None
    return left, right


def _apply(
    table: Comparison, change: Change, missing: Mapping[str, None], excess: Iterable[str]
) -> dict[str, str]:
    old, new = change
    hits: dict[str, str] = {}
    taken: set[str] = set()
    for key in excess:
        segments = key.split(".")
        for at in range(len(segments) - len(old) + 1):
            if tuple(segments[at : at + len(old)]) == old:
                name = ".".join((*segments[:at], *new, *segments[at + len(old) :]))
                fits = name in missing and name not in taken and _same_shape(table, key, name)
                if fits and role(key) == role(name):
                    hits[key] = name
                    taken.add(name)
                    break
    return hits
