"""Wrappers that a training library puts around modules -> rules that take them off, and put them back.

    stages:
      - unwrap: [module, _orig_mod, _fsdp_wrapped_module, _checkpoint_wrapped_module]

A wrapper is a whole segment. ``module`` is a name that models have, too, so it is taken off only at the
start of a key; the others at any depth, again and again until none is left. Which keys had which wrappers
is remembered in the receipt: from the names alone nobody could put them back. There ``a>b c>d`` are pairs of
templates; what these signs are in a key is written as in an address, ``%20``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote, unquote

from remap.errors import PackError
from remap.packs.language.pack import Rule
from remap.packs.language.template import Template, Text, parse_template
from remap.packs.matching.keyset import KeySet, numbers, skeleton

NAME = "unwrap"
"""Under which the wrappers are remembered among a pack's parameters."""
LEADING = "module"
_SIGNS = re.compile(r"[\s{}*>%]")
KNOWN = (LEADING, "_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module")


def check_wrappers(wrappers: Sequence[str]) -> tuple[str, ...]:
    """The wrappers, if each is a segment. Raises PackError."""
    for wrapper in wrappers:
        if not wrapper.isidentifier():
            raise PackError(
                f"unwrap: {wrapper!r} is no segment of a key", remedy=f"such as {', '.join(KNOWN)}"
            )
    if not wrappers:
        raise PackError("unwrap: no wrappers", remedy=f"such as {', '.join(KNOWN)}")
    return tuple(wrappers)


def unwrapped(key: str, wrappers: Sequence[str]) -> str:
    """The key without wrappers."""
    segments = key.split(".")
    deep = [w for w in wrappers if w != LEADING]
    while True:
        left = [s for s in segments[:-1] if s not in deep] + segments[-1:]
        if LEADING in wrappers and len(left) > 1 and left[0] == LEADING:
            left = left[1:]
        if left == segments:
            return ".".join(left)
        segments = left


def unwrap_rules(wrappers: Sequence[str], keys: KeySet, line: int) -> tuple[list[Rule], str]:
    """Rules that take the wrappers off these keys, and the text by which they are remembered."""
    found = {g.key: unwrapped(g.key, wrappers) for g in keys.groups.values()}
    prefix = _common_prefix(found)
    if prefix is not None:
        pairs = [(f"{_quoted(prefix)}.{{rest:path}}", "{rest}")]
    else:
        pairs = list(_pairs(found, wrappers, keys))
    return _rules(pairs, line), " ".join(f"{a}>{b}" for a, b in pairs)


def _pairs(found: dict[str, str], wrappers: Sequence[str], keys: KeySet) -> Iterator[tuple[str, str]]:
    """A pair of templates a skeleton; key by key where two skeletons are the same without their wrappers."""
    count = Counter(skeleton(bare) for bare in found.values())
    for group in keys.groups.values():
        bare = found[group.key]
        if bare == group.key:
            continue
        if count[skeleton(bare)] == 1:
            yield _template(group.key, typed=True), _template(bare, typed=False)
        else:
            for place in group.rows.places:
                yield _quoted(keys.keys[place]), _quoted(unwrapped(keys.keys[place], wrappers))


def rewrap_rules(remembered: str, line: int) -> list[Rule]:
    """The rules that were applied when ``remembered`` was written."""
    pairs = [(a, b) for a, _, b in (text.partition(">") for text in remembered.split())]
    return _rules(pairs, line)


def _common_prefix(found: dict[str, str]) -> str | None:
    """What was taken off the front of every key, if it is the same and all that was taken off."""
    prefixes = {key[: -len(bare) - 1] if key.endswith(f".{bare}") else None for key, bare in found.items()}
    (prefix,) = prefixes if len(prefixes) == 1 else (None,)
    return prefix


def _template(key: str, *, typed: bool) -> str:
    literals, found = numbers(key)
    holes = [f"{{n{n}:int}}" if typed else f"{{n{n}}}" for n in range(len(found))]
    quoted = map(_quoted, literals)
    return "".join(part for pair in zip(quoted, [*holes, ""], strict=True) for part in pair)


def _rules(pairs: Iterable[tuple[str, str]], line: int) -> list[Rule]:
    rules = [Rule("unwrapped", line, "keep", (_parsed("**"),), optional=True)]
    for n, (a, b) in enumerate(pairs):
        source = _parsed(a)
        target = _parsed(b).with_kinds(source.captures)
        rules.append(Rule(f"unwrap-{n}", line, "rename", (source,), (target,)))
    return rules


def _quoted(key: str) -> str:
    """The key without what means something in a template or among what is remembered."""
    return _SIGNS.sub(lambda sign: quote(sign[0], safe=""), key)


def _parsed(text: str) -> Template:
    template = parse_template(text, {}, {})
    elements = [replace(e, text=unquote(e.text)) if isinstance(e, Text) else e for e in template.elements]
    return replace(template, elements=tuple(elements))
