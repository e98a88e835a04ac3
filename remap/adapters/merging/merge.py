"""Base + adapters -> the plan of the merged checkpoint: W + w1 * change1 + w2 * change2, rounded once.

Everything is computed in float32, block by block, and cast to the base's own type at the end. Tensors that no
adapter changes are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from remap.adapters.check import check
from remap.adapters.merging.changes import Change, apart, changes, single
from remap.adapters.merging.ties import Tied
from remap.adapters.model import Adapter
from remap.adapters.placing.base import base_of
from remap.adapters.placing.heads import head_of, tied_silently, with_heads
from remap.adapters.placing.places import places
from remap.audits.names.ties import role
from remap.errors import UsageError
from remap.expr import Affine, Cast, Expr, Sum, Take
from remap.plan import Output, Plan
from remap.types import Catalog


@dataclass(frozen=True, eq=False)
class Weighed:
    """An adapter and how much of its change is taken; a negative weight takes it out."""

    adapter: Adapter
    weight: float = 1.0


def merged(base: Catalog, adapters: Sequence[Weighed]) -> Plan:
    """The plan of the merged checkpoint. An output that is changed has the op ``merge``.

    Raises UsageError naming everything that is not in the base, or can't be merged; Damaged for an adapter
    that is not whole.
    """
    problems: list[str] = []
    found: dict[str, list[tuple[Weighed, Change]]] = {}
    given, base = base, _headed(base, adapters)
    for weighed in adapters:
        check(weighed.adapter)
        base_of(weighed.adapter, base)
        for change in changes(weighed.adapter, base, problems):
            found.setdefault(change.key, []).append((weighed, change))
    problems += _not_numbers(base, found)
    made = _made(base, found, problems)
    if problems:
        raise UsageError("this can't be merged", where=base.root, problems=problems)
    if not made:
        raise UsageError("nothing is changed: the adapters have no tensors", where=base.root)
    tied = Tied(base, {k for k, several in found.items() if any(c.apart for _, c in several)})
    made |= tied.followers(made, problems)
    if problems:
        raise UsageError(
            "tensors that are one in the base would become two",
            where=base.root,
            problems=problems,
            remedy="give a base that has them apart: in its files, and in config.json (tie_word_embeddings)",
        )
    keys = [k for k in base.entries if k in given.entries or tied.parted(k)]
    outputs = tuple(_output(base, k, made.get(k), found.get(k, ())) for k in keys)
    added = [k for k, several in found.items() if not any(_tokens(c) for _, c in several)]
    return Plan(base, outputs, notes=tuple(tied.notes(given, added, keys)))


def _tokens(change: Change) -> bool:
    """Rows for trained tokens: PEFT gives them to a tied head, too."""
    return any(key.endswith("trainable_tokens_delta") for key in change.keys)


def _headed(base: Catalog, adapters: Sequence[Weighed]) -> Catalog:
    """The base with the head that its files leave out, since it is the embedding, if an adapter parts them or
    changes it. Raises UsageError where an embedding was trained apart from a head of unknown name."""
    found = [p for w in adapters for p in places(w.adapter, base)]
    wanted = [p.key for p in found]
    parted = [p.key for p in found if p.kind == "whole" and role(p.key) == "embedding" and apart(p)]
    name = head_of(base.config)
    if parted and tied_silently(base) and not any(role(k) == "head" for k in wanted):
        if not name:
            raise UsageError(
                "the embedding was trained apart from the output head, to which it is tied in the base; what "
                "the head is to be called is not known",
                where=base.root,
                problems=parted,
                remedy="give a base whose files have the head, too",
            )
        wanted.append(name)
    return with_heads(base, wanted)


def taken_out(base: Catalog, adapters: Sequence[Weighed]) -> Plan:
    """The plan of the checkpoint before the merge. What was rounded then is not known again, so a weight is
    right up to its type's precision. Raises UsageError for changes that replaced something."""
    headed = _headed(base, adapters)
    for weighed in adapters:
        check(weighed.adapter)
        base_of(weighed.adapter, headed)
    problems = [
        f"{change.key}: it was replaced, and what was there before is not known"
        for weighed in adapters
        for change in changes(weighed.adapter, headed, [])
        if change.new is not None
    ]
    if problems:
        raise UsageError(
            "this can't be taken out again",
            where=base.root,
            problems=problems,
            remedy="only what was added (LoRA and its like) can be; go back to the base itself",
        )
    return merged(base, [Weighed(w.adapter, -w.weight) for w in adapters])


def _not_numbers(base: Catalog, found: Mapping[str, object]) -> Iterator[str]:
    """Tensors of quantised bases."""
    for key in found:
        entry = base.entries.get(key)
        if entry is not None and not entry.spec.dtype.is_float:
            yield f"{key}: {entry.spec.dtype.name} holds quantised values; merge into the base before that"


def _made(
    base: Catalog, found: Mapping[str, Sequence[tuple[Weighed, Change]]], problems: list[str]
) -> dict[str, Expr]:
    made: dict[str, Expr] = {}
    for key, several in found.items():
        entry = base.entries[key]
        try:
            value = _value(single(Take(entry)), several)
        except UsageError as e:
            problems.append(f"{key}: {e.what}")
            continue
        made[key] = value if value.spec.dtype == entry.spec.dtype else Cast(value, entry.spec.dtype)
    return made


def _value(old: Expr, several: Sequence[tuple[Weighed, Change]]) -> Expr:
    """The new value in float32. What an adapter adds is added to what it put in the place of the old."""
    terms: list[Expr] = [old]
    for weighed in dict.fromkeys(w for w, _ in several):
        mine = [c for w, c in several if w is weighed]
        replaced = old
        for change in (c for c in mine if c.new):
            assert change.new is not None
            replaced = change.new(replaced)
        if replaced is not old and len(mine) == len(several) and weighed.weight == 1:
            terms = [replaced]
        elif replaced is not old:
            terms += [Affine(replaced, weighed.weight), Affine(old, -weighed.weight)]
        terms += [_times(c.added, weighed.weight) for c in mine if c.added]
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def _times(added: Expr, weight: float) -> Expr:
    return added if weight == 1 else Affine(added, weight)


def _output(base: Catalog, key: str, made: Expr | None, several: Sequence[tuple[Weighed, Change]]) -> Output:
    if made is None:
        return Output(key, Take(base.entries[key]), "", (key,), "copy")
    keys = [k for _, c in several for k in c.keys]
    return Output(key, made, "", (key, *keys), "merge")
