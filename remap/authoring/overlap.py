"""Can two templates match one key? Two templates -> such a key; and whether one matches all another does.

Each template is an automaton over characters: what it reads next and how it goes on. The key is the
shortest that both read to the end; characters that stand for any are written as ``x``, numbers as ``0``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from remap.packs.language.pack import Param
from remap.packs.language.template import Capture, Element, Index, Ref, Template, Text
from remap.packs.matching.matcher import Matcher

DIGIT, INNER = "\0", "\1"
"""Labels that stand for any digit, and for any character of a segment; every other is itself."""
SHOWN = str.maketrans({DIGIT: "0", INNER: "x"})
MOST = 64
"""Combinations of names that are tried of a template."""


@dataclass
class _Automaton:
    """``edges[state]`` are (label, next state); ``ends`` is the state after the last character."""

    edges: list[list[tuple[str, int]]] = field(default_factory=lambda: [[]])
    ends: int = 0

    def add(self, text: str) -> None:
        """Read a text."""
        for label in text:
            self.ends = self._step(self.ends, label)

    def either(self, texts: Sequence[str]) -> None:
        """Read one of several texts; one that is empty is not tried."""
        start, after = self.ends, self._new()
        for text in texts:
            at = start
            for label in text[:-1]:
                at = self._step(at, label)
            self.edges[at].append((text[-1:], after))
        self.ends = after

    def some(self, label: str, *, dotted: bool = False) -> None:
        """Read a label once or more often; ``dotted``: and more segments of it."""
        self.ends = self._step(self.ends, label)
        self.edges[self.ends].append((label, self.ends))
        if dotted:
            dot = self._step(self.ends, ".")
            self.edges[dot].append((label, self.ends))

    def _new(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def _step(self, at: int, label: str) -> int:
        after = self._new()
        self.edges[at].append((label, after))
        return after


def meet(one: Template, other: Template, params: Mapping[str, Param]) -> str | None:
    """A key that both match; None where there is none."""
    a, b = _automaton(one, params), _automaton(other, params)
    waiting = deque([(0, 0, "")])
    seen = {(0, 0)}
    while waiting:
        p, q, text = waiting.popleft()
        if (p, q) == (a.ends, b.ends):
            return text.translate(SHOWN)
        for left, after in a.edges[p]:
            for right, behind in b.edges[q]:
                label = _both(left, right)
                if label and (after, behind) not in seen:
                    seen.add((after, behind))
                    waiting.append((after, behind, text + label))
    return None


def covers(wide: Template, narrow: Template, params: Mapping[str, Param]) -> bool:
    """Does ``wide`` match whatever ``narrow`` does? Tried with names that no pack has."""
    if wide.names or narrow.names & params.keys():
        return False
    matcher = Matcher(wide)
    return all(matcher.match(key) is not None for key in _samples(narrow))


def _samples(template: Template) -> Iterator[str]:
    """Keys of the template: a segment is a strange word, a path one and two of them, a name each of its."""
    parts = [_spellings(e, n) for n, e in enumerate(template.elements)]
    several = product(*parts)
    for _, texts in zip(range(MOST), several, strict=False):
        yield "".join(texts)


def _spellings(e: Element, n: int) -> list[str]:
    if isinstance(e, Text):
        return [e.text]
    if isinstance(e, Index) or (isinstance(e, Capture) and e.kind == "int"):
        return [str(90817263 + n)]
    if isinstance(e, Capture) and e.table:
        return [left for left, _ in e.table]
    word = f"~{n}~"
    return [word, f"{word}.{word}"] if isinstance(e, Capture) and e.kind == "path" else [word]


def _both(left: str, right: str) -> str | None:
    """What both labels read."""
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if (one == INNER and other != ".") or (one == DIGIT and other.isdigit()):
            return other
    return None


def _automaton(template: Template, params: Mapping[str, Param]) -> _Automaton:
    refs = [e for e in template.elements if isinstance(e, Ref) and params[e.param].choices]
    return _built(template, tuple((e, _texts(params[e.param], e)) for e in refs))


@lru_cache(maxsize=10_000)
def _built(template: Template, named: tuple[tuple[Ref, tuple[str, ...]], ...]) -> _Automaton:
    """The automaton; ``named`` are the texts of parameters that are names."""
    made = _Automaton()
    for e in template.elements:
        if isinstance(e, Text):
            made.add(e.text)
        elif isinstance(e, Capture) and e.table:
            made.either([left for left, _ in e.table])
        elif isinstance(e, Ref) and e in dict(named):
            made.either(dict(named)[e])
        elif isinstance(e, Capture) and e.kind != "int":
            made.some(INNER, dotted=e.kind == "path")
        else:
            made.some(DIGIT)
    return made


def _texts(param: Param, ref: Ref) -> tuple[str, ...]:
    return tuple(c if isinstance(c, str) else c[ref.field or ""] for c in param.choices.values())
