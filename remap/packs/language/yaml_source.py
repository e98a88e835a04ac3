"""YAML text -> a tree that knows its lines.

Packs are data: anchors, aliases, tags, duplicate keys and several documents are refused, plain words
are text (``no`` is not False), and every node keeps its line for the messages that come later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from remap.errors import PackError

if TYPE_CHECKING:
    import yaml

LARGEST = 4 << 20
"""Bytes a pack may have."""
DEEPEST = 24
"""Levels a pack may nest."""

Scalar = Union[str, int, float, bool, None]
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18}|(?:\.[0-9]{1,18})?e[-+][0-9]{1,3})")
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True, slots=True)
class Node:
    """One value with its line (from 1); a mapping's keys keep theirs in ``key_lines``."""

    value: Scalar | list[Node] | dict[str, Node]
    line: int
    key_lines: dict[str, int]

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries, {} for anything but a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The members, [] for anything but a list."""
        return self.value if isinstance(self.value, list) else []

    def plain(self) -> object:
        """The value as ordinary dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {k: n.plain() for k, n in self.value.items()}
        if isinstance(self.value, list):
            return [n.plain() for n in self.value]
        return self.value


def read_yaml(data: bytes, file: str) -> Node:
    """Read one document. Raises PackError with file and line."""
    import yaml

    if len(data) > LARGEST:
        raise PackError(f"{len(data)} bytes; a pack may have {LARGEST}", where=file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise PackError(f"not UTF-8: byte {e.start} can't be decoded", where=file) from None
    try:
        return _Builder(file, yaml.parse(text, Loader=_parser())).document()
    except yaml.MarkedYAMLError as e:
        line = _line(e.problem_mark or e.context_mark)
        raise PackError(
            f"not valid YAML: {e.problem or e.context}",
            where=f"{file}:{line}",
            remedy='what holds { } [ ] or * must stand in quotes: "{x}.weight", "f16[8,4]"',
        ) from None
    except yaml.YAMLError as e:
        raise PackError(f"not valid YAML: {str(e).splitlines()[0]}", where=file) from None


def _parser() -> type[yaml.SafeLoader] | type[yaml.CSafeLoader]:
    """libyaml's parser where PyYAML was built with it: ten times as fast, and start-up is mostly packs."""
    import yaml

    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Builder:
    """Turns parser events into nodes."""

    def __init__(self, file: str, events: Iterator[yaml.Event]) -> None:
        self.file = file
        self.events = events

    def document(self) -> Node:
        import yaml

        root: Node | None = None
        for event in self.events:
            if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self._error(event, "a second document; a pack is one")
                continue
            root = self._node(event, 0)
        if root is None:
            raise PackError("an empty file", where=self.file, remedy="see `remap rules new`")
        return root

    def _error(self, event: yaml.Event, what: str, remedy: str | None = None) -> PackError:
        return PackError(what, where=f"{self.file}:{_line(event.start_mark)}", remedy=remedy)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        import yaml

        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._error(event, "anchors and aliases are not part of the language", "write it out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._error(event, f"the tag {tag!r} is not part of the language", "leave it out")
        if depth > DEEPEST:
            raise self._error(event, f"nested deeper than {DEEPEST} levels")
        line = _line(event.start_mark)
        if isinstance(event, yaml.ScalarEvent):
            return Node(_scalar(event.value, plain=not event.style), line, {})
        if isinstance(event, yaml.SequenceStartEvent):
            members: list[Node] = []
            while not isinstance(e := next(self.events), yaml.SequenceEndEvent):
                members.append(self._node(e, depth + 1))
            return Node(members, line, {})
        return self._mapping(line, depth)

    def _mapping(self, line: int, depth: int) -> Node:
        import yaml

        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error(
                    event,
                    "a list or mapping where a name is expected",
                    'a template that holds { } must stand in quotes: "{x}.weight"',
                )
            self._node(event, depth)
            name = event.value
            if name in entries:
                raise self._error(event, f"{name!r} stands here twice, first in line {lines[name]}")
            lines[name] = _line(event.start_mark)
            entries[name] = self._node(next(self.events), depth + 1)
        return Node(entries, line, lines)


def _line(mark: object) -> int:
    """The line of one of the parser's marks, from 1."""
    line = getattr(mark, "line", 0)
    return int(line) + 1


def _scalar(text: str, *, plain: bool) -> Scalar:
    if not plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
