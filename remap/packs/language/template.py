"""A template's text -> its elements; and elements with parameters put in.

{x}            one dot-separated segment, or a part of one between literals
{i:int}        digits, without leading zeros
{a:one|two}    an alternation; {a:gamma=weight|beta=bias} is a table, read left, written right
{a:@names}     the table ``names`` of the pack
{rest:path}    one or more whole segments
{i+2}          arithmetic on an int capture
{layers}       a parameter; {mlp.up} a name that its choice carries
* and **       the same as {x} and {rest:path}, nothing captured
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Union

from remap.errors import PackError
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic

LONGEST = 1000
"""Characters a template may have."""
MOST_PATHS = 3
"""``path`` captures a template may have: each one more multiplies the ways to match."""

Kind = Literal["segment", "int", "path", "names"]
_NAME = re.compile(r"[A-Za-z_]\w*")
_DOTTED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_PIECES = re.compile(r"\{([^{}]*)\}|(\*\*|\*)|([^{}*]+)|(.)")


@dataclass(frozen=True, slots=True)
class Text:
    """Literal characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Capture:
    """A hole. ``table`` pairs what is read with what is written, for kind ``names``."""

    name: str | None
    kind: Kind
    table: tuple[tuple[str, str], ...] = ()
    typed: bool = True

    @property
    def dotted(self) -> bool:
        """Can it take more than one segment?"""
        return self.kind == "path" or any("." in left for left, _ in self.table)


@dataclass(frozen=True, slots=True)
class Index:
    """A number worked out from int captures and parameters (``params``)."""

    tree: Arithmetic
    params: frozenset[str] = frozenset()

    @property
    def captures(self) -> frozenset[str]:
        """The captures that it needs."""
        return arithmetic.names(self.tree) - self.params


@dataclass(frozen=True, slots=True)
class Ref:
    """A parameter, or one of the names that its choice carries."""

    param: str
    field: str | None


Element = Union[Text, Capture, Index, Ref]
Tables = Mapping[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Template:
    """A whole key with holes."""

    text: str
    elements: tuple[Element, ...]

    @property
    def captures(self) -> dict[str, Capture]:
        """The named captures; an index's names count as int captures."""
        found: dict[str, Capture] = {}
        for e in self.elements:
            if isinstance(e, Capture) and e.name is not None:
                found[e.name] = e
        for e in self.elements:
            if isinstance(e, Index):
                for name in sorted(e.captures):
                    found.setdefault(name, Capture(name, "int"))
        return found

    @property
    def names(self) -> frozenset[str]:
        """The parameters it refers to, and the names in its arithmetic."""
        found = {e.param for e in self.elements if isinstance(e, Ref)}
        return frozenset(
            found.union(*(arithmetic.names(e.tree) for e in self.elements if isinstance(e, Index)))
        )

    @property
    def anonymous(self) -> bool:
        """Does it match something that it doesn't capture?"""
        return any(isinstance(e, Capture) and e.name is None for e in self.elements)

    @property
    def numbered(self) -> bool:
        """Is a number all that it captures?"""
        return [c.kind for c in self.captures.values()] == ["int"]

    def with_kinds(self, kinds: Mapping[str, Capture]) -> Template:
        """The same, with untyped captures declared as in ``kinds``."""
        done = [
            kinds.get(e.name, e) if isinstance(e, Capture) and e.name and not e.typed else e
            for e in self.elements
        ]
        return replace(self, elements=tuple(done))

    def flipped(self) -> Template:
        """The same, with its tables written where they were read."""
        done = [
            replace(e, table=tuple((b, a) for a, b in e.table)) if isinstance(e, Capture) else e
            for e in self.elements
        ]
        return replace(self, elements=tuple(done))

    def bind(self, values: Mapping[str, object]) -> Template:
        """The same with parameters put in. A parameter without a value stays. Raises PackError where the
        arithmetic of parameters gives no number of a key."""
        numbers = {k: v for k, v in values.items() if isinstance(v, int)}
        done: list[Element] = []
        for e in self.elements:
            if isinstance(e, Ref) and e.param in values:
                e = Text(_value(values[e.param], e))
            elif isinstance(e, Index):
                tree = self._put_in(e, numbers)
                e = Text(str(tree.value)) if isinstance(tree, arithmetic.Num) else Index(tree, e.params)
            done.append(e)
        return replace(self, elements=_merged(done))

    def _put_in(self, index: Index, numbers: Mapping[str, int]) -> Arithmetic:
        said = ", ".join(f"{n} = {numbers[n]}" for n in sorted(index.params & numbers.keys()))
        try:
            tree = arithmetic.substitute(index.tree, numbers)
        except PackError as e:
            raise PackError(f"{self.text!r}: {e.what}, with {said}") from None
        if isinstance(tree, arithmetic.Num) and tree.value < 0:
            raise PackError(f"{self.text!r}: {index.tree} is {tree.value}, with {said}")
        return tree

    def unbound(self, params: Mapping[str, object]) -> frozenset[str]:
        """Parameters of the pack (``params``) that still have no value in here."""
        left = {e.param for e in self.elements if isinstance(e, Ref)}
        for e in self.elements:
            if isinstance(e, Index):
                left |= arithmetic.names(e.tree) & params.keys()
        return frozenset(left)


def _value(value: object, ref: Ref) -> str:
    if isinstance(value, Mapping):
        return str(value[ref.field])
    return str(value)


def _merged(elements: list[Element]) -> tuple[Element, ...]:
    done: list[Element] = []
    for e in elements:
        if isinstance(e, Text) and done and isinstance(done[-1], Text):
            done[-1] = Text(done[-1].text + e.text)
        elif not (isinstance(e, Text) and not e.text):
            done.append(e)
    return tuple(done)


def parse_template(text: str, params: Mapping[str, object], tables: Tables) -> Template:
    """Read a template. Raises PackError, without a place: the caller knows it."""
    if not text:
        raise PackError("an empty template")
    if len(text) > LONGEST:
        raise PackError(f"a template of {len(text)} characters; {LONGEST} are allowed")
    elements: list[Element] = []
    for hole, star, literal, stray in _PIECES.findall(text):
        if stray:
            raise PackError(f"{text!r}: {stray!r} without its partner")
        if star:
            elements.append(Capture(None, "path" if star == "**" else "segment"))
        elif literal:
            elements.append(Text(literal))
        else:
            elements.append(_hole(hole, text, params, tables))
    _check(text, elements)
    return Template(text, tuple(elements))


def _hole(hole: str, text: str, params: Mapping[str, object], tables: Tables) -> Element:
    name, colon, kind = hole.partition(":")
    name = name.strip()
    if not hole.strip():
        raise PackError(f"{text!r}: an empty hole", remedy="name what it takes: {x}")
    if colon:
        if not _NAME.fullmatch(name):
            raise PackError(f"{text!r}: {name!r} is no name for a capture")
        if name in params:
            raise PackError(f"{text!r}: {name!r} is a parameter and can't be captured", remedy="rename one")
        return _typed(name, kind, text, tables)
    if _NAME.fullmatch(name):
        return Ref(name, None) if name in params else Capture(name, "segment", typed=False)
    dotted = _DOTTED.fullmatch(name)
    if dotted:
        if dotted[1] not in params:
            raise PackError(f"{text!r}: no parameter is called {dotted[1]!r}")
        return Ref(dotted[1], dotted[2])
    tree = arithmetic.parse(name)
    return Index(tree, arithmetic.names(tree).intersection(params))


def _typed(name: str, kind: str, text: str, tables: Tables) -> Capture:
    if kind == "int":
        return Capture(name, "int")
    if kind == "path":
        return Capture(name, "path")
    if kind.startswith("@"):
        if kind[1:] not in tables:
            raise PackError(f"{text!r}: the pack has no table {kind[1:]!r}")
        return Capture(name, "names", tables[kind[1:]])
    pairs: list[tuple[str, str]] = []
    for choice in kind.split("|"):
        left, equals, right = choice.partition("=")
        pairs.append((left, right if equals else left))
    if len(pairs) == 1 and not pairs[0][0].strip("abcdefghijklmnopqrstuvwxyz") and pairs[0][0] == pairs[0][1]:
        raise PackError(f"{text!r}: {kind!r} is no kind of capture", remedy="int, path, one|two, or @table")
    return Capture(name, "names", check_table(pairs, text))


def check_table(pairs: list[tuple[str, str]], where: str) -> tuple[tuple[str, str], ...]:
    """The pairs, longest first as they are tried. Raises PackError for an empty or double name."""
    for left, right in pairs:
        if not all(part for side in (left, right) for part in side.split(".")):
            raise PackError(f"{where!r}: an empty name between | and |")
    lefts = [left for left, _ in pairs]
    double = sorted({left for left in lefts if lefts.count(left) > 1})
    if double:
        raise PackError(f"{where!r}: {', '.join(double)} stands there twice")
    return tuple(sorted(pairs, key=lambda p: (-len(p[0]), p[0])))


def _check(text: str, elements: list[Element]) -> None:
    for left, right in itertools.pairwise(elements):
        if not isinstance(left, Text) and not isinstance(right, (Text, Ref)) and not isinstance(left, Ref):
            raise PackError(f"{text!r}: two captures touch", remedy="put something between them")
    paths = 0
    for at, e in enumerate(elements):
        if not (isinstance(e, Capture) and e.kind == "path"):
            continue
        paths += 1
        before, after = elements[at - 1 : at], elements[at + 1 : at + 2]
        ok = not any(isinstance(n, Text) and not n.text.endswith(".") for n in before)
        ok = ok and not any(isinstance(n, Text) and not n.text.startswith(".") for n in after)
        if not ok:
            raise PackError(f"{text!r}: a path takes whole segments", remedy="put dots around it")
    if paths > MOST_PATHS:
        raise PackError(f"{text!r}: {paths} paths; {MOST_PATHS} are allowed")
