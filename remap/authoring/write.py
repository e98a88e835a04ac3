"""A pack as values -> YAML text. What ``invert`` and ``infer`` print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

Value = object
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/-]*")
_UNPRINTABLE = re.compile(
    "[^\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)
"""What a YAML file may not hold as it is. JSON's pairs of escapes for one sign are none of YAML's."""
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""What some reader of YAML takes for something else than text."""


def to_yaml(document: Mapping[str, Value]) -> str:
    """The document, block style; text is quoted where YAML or a reader could take it for something else."""
    return "\n".join(_mapping(document, 0)) + "\n"


def _mapping(mapping: Mapping[str, Value], depth: int) -> Iterator[str]:
    for name, value in mapping.items():
        yield from _entry(f"{'  ' * depth}{_scalar(name)}:", value, depth)


def _entry(head: str, value: Value, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield head
        yield from _mapping(value, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield head
        for member in value:
            yield from _member(member, depth + 1)
    else:
        yield f"{head} {_scalar(value)}"


def _member(member: Value, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if not isinstance(member, Mapping):
        yield f"{pad}- {_scalar(member)}"
        return
    for n, line in enumerate(_mapping(member, depth + 1)):
        yield f"{pad}- {line.lstrip()}" if n == 0 else line


def _scalar(value: Value) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value not in _WORDS else _quoted(value)
    return json.dumps(value) if value not in ({}, []) else ("{}" if value == {} else "[]")


def _quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", shown)
