"""A policy's YAML -> Policy. Read by the packs' own reader: duplicate names are refused, errors have lines.

policy: 1
name: ours
extends: magma                      # strict without it
levels: {missing-adapter: allow, missing-buffer: warn}
expect: {missing-adapter: 96, missing-vision: 1..}
coverage: {keys: 0.9, elements: 0.99}
categories: {head: ["classifier.**", "score.**"]}
waivers:
  - {pattern: "lm_head.bias", category: missing-parameter, reason: zero by design, until: 2027-01-31}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Union

import msgspec

from remap.audits import registry
from remap.audits.baseline import ALWAYS, is_pardonable
from remap.audits.finding import LEVELS
from remap.audits.policy import STRICT, Count, Custom, Pattern, Policy, Waiver
from remap.documents import read_document
from remap.errors import InputError, PackError, UsageError
from remap.packs.language.schema import suggestion
from remap.packs.language.yaml_source import Node, read_yaml

if TYPE_CHECKING:
    from importlib.abc import Traversable

VERSION = 1
_RANGE = re.compile(r"(\d+)\.\.(\d*)")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class RawWaiver(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One waiver."""

    pattern: str
    reason: str
    category: str | None = None
    until: str | None = None
    expect: Union[int, str, None] = None


class RawCoverage(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Least shares, 0 to 1."""

    keys: float = 0.0
    elements: float = 0.0


class RawPolicy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole policy."""

    policy: int
    name: str = ""
    title: str = ""
    extends: str = "strict"
    levels: dict[str, str] = {}
    expect: dict[str, Union[int, str]] = {}
    coverage: RawCoverage = RawCoverage()
    categories: dict[str, Union[str, list[str]]] = {}
    waivers: list[RawWaiver] = []


def load_policy(ref: str | Path | Policy | None = None) -> Policy:
    """The policy that ``ref`` names: a shipped one by name, or a YAML file. Strict without one.

    Raises UsageError, with every problem of the file and its line.
    """
    if isinstance(ref, Policy):
        return ref
    if ref is None or str(ref) == "strict":
        return STRICT
    return replace(_load(str(ref), (), Path.cwd()), ref=str(ref))


def shipped() -> dict[str, str]:
    """Name -> title of the policies that come with remap."""
    found = {STRICT.name: STRICT.title}
    for entry in sorted(_folder().iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            policy = load_policy(entry.name.removesuffix(".yaml"))
            found[policy.name] = policy.title
    return found


def _folder() -> Traversable:
    return files("remap.audits").joinpath("policies")


def _load(ref: str, chain: tuple[str, ...], base: Path) -> Policy:
    if ref in chain:
        raise UsageError(f"policies extend each other in a circle: {' -> '.join((*chain, ref))}", where=ref)
    if ref == "strict":
        return STRICT
    if ref.endswith((".yaml", ".yml")):
        path = base / Path(ref).expanduser()
        try:
            data = read_document(path)
        except InputError as e:
            raise UsageError(f"the policy {e.what.removeprefix('it ')}", where=ref, remedy=e.remedy) from None
        return read_policy(data, ref, (*chain, ref), path.parent)
    file = _folder().joinpath(f"{ref}.yaml")
    if not _NAME.fullmatch(ref) or not file.is_file():
        known = ["strict", *(e.name.removesuffix(".yaml") for e in _folder().iterdir())]
        raise UsageError(
            f"no policy is called {ref!r}{suggestion(ref, known)}",
            remedy=f"there are {', '.join(sorted(known))}; a path must end in .yaml",
        )
    return read_policy(file.read_bytes(), f"{ref}.yaml", (*chain, ref), base)


def read_policy(data: bytes, file: str, chain: tuple[str, ...] = (), base: Path | None = None) -> Policy:
    """The policy in ``data``; ``file`` is what messages call it. Raises UsageError."""
    if not data.strip():
        raise UsageError("an empty file", where=file, remedy="a policy begins with policy: 1")
    try:
        root = read_yaml(data, file)
    except PackError as e:
        raise UsageError(e.what, where=e.where, remedy=e.remedy) from None
    try:
        raw = msgspec.convert(root.plain(), RawPolicy)
    except msgspec.ValidationError as e:
        what, _, path = str(e).partition(" - at `$")
        raise UsageError(
            f"{path.rstrip('`').lstrip('.')} {what}".strip(), where=f"{file}:{_line(root, path)}"
        ) from None
    if raw.policy != VERSION:
        raise UsageError(f"policy: {raw.policy}; this remap reads {VERSION}", where=f"{file}:{root.line}")
    under = _load(raw.extends, chain, base or Path.cwd())
    reader = _Reader(root, file, under)
    policy = reader.read(raw)
    if reader.problems:
        raise UsageError("the policy is wrong", where=file, problems=reader.problems)
    return policy


class _Reader:
    """Checks what the types don't say, and collects what is wrong."""

    def __init__(self, root: Node, file: str, under: Policy) -> None:
        self.root = root
        self.file = file
        self.under = under
        self.problems: list[str] = []

    def read(self, raw: RawPolicy) -> Policy:
        customs = (*self.under.categories, *self._customs(raw))
        known = registry.names() | {f"{side}-{c.name}" for c in customs for side in ("missing", "unexpected")}
        levels = dict(self.under.levels)
        for name, text in raw.levels.items():
            level = next((known_level for known_level in LEVELS if known_level == text), None)
            if level is None:
                self.problems.append(
                    f"{self._at('levels', name)}: {text!r} is no level; use allow, warn or fail"
                )
                continue
            for full in self._category(name, known, "levels"):
                levels[full] = level
        expect = dict(self.under.expect)
        for name, number in raw.expect.items():
            count = self._count(number, self._at("expect", name))
            expect |= {full: count for full in self._category(name, known, "expect") if count}
        for share, name in ((raw.coverage.keys, "keys"), (raw.coverage.elements, "elements")):
            if not 0 <= share <= 1:
                self.problems.append(
                    f"{self._at('coverage', name)}: {share} is no share; write 0.95 for 95 %"
                )
        return Policy(
            name=raw.name or Path(self.file).stem,
            title=raw.title or self.under.title,
            levels=levels,
            expect=expect,
            keys=max(raw.coverage.keys, self.under.keys),
            elements=max(raw.coverage.elements, self.under.elements),
            waivers=(*self.under.waivers, *self._waivers(raw, known)),
            categories=customs,
        )

    def _at(self, *path: str | int) -> str:
        node, line = self.root, self.root.line
        for step in path:
            if isinstance(step, int):
                node = node.items[step]
                line = node.line
            elif step in node.mapping:
                line = node.key_lines[step]
                node = node.mapping[step]
        return f"{self.file}:{line}"

    def _category(self, name: str, known: frozenset[str], section: str) -> Iterator[str]:
        """The categories that ``name`` stands for: ``adapter`` is missing-adapter and unexpected-adapter."""
        found = [n for n in (name, f"missing-{name}", f"unexpected-{name}") if n in known]
        for full in found:
            if full in ALWAYS and section == "levels":
                self.problems.append(f"{self._at(section, name)}: {full} is always a failure")
            else:
                yield full
        if not found:
            self.problems.append(
                f"{self._at(section, name)}: no category is called {name!r}{suggestion(name, sorted(known))}"
            )

    def _count(self, text: int | str, place: str) -> Count | None:
        if isinstance(text, int) and text >= 0:
            return Count(text, text)
        found = _RANGE.fullmatch(str(text))
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            self.problems.append(f"{place}: {text!r} is no count; write 96, 90..96 or 1..")
            return None
        return Count(int(found[1]), int(found[2]) if found[2] else None)

    def _pattern(self, text: str, place: str) -> Pattern | None:
        try:
            return Pattern(text)
        except PackError as e:
            self.problems.append(f"{place}: {e.what}")
            return None

    def _customs(self, raw: RawPolicy) -> Iterator[Custom]:
        for name, texts in raw.categories.items():
            place = self._at("categories", name)
            if not _NAME.fullmatch(name):
                self.problems.append(f"{place}: {name!r} is no name for a category; use a-z, 0-9 and -")
                continue
            listed = [texts] if isinstance(texts, str) else texts
            yield Custom(name, tuple(p for p in (self._pattern(t, place) for t in listed) if p))

    def _waivers(self, raw: RawPolicy, known: frozenset[str]) -> Iterator[Waiver]:
        for n, w in enumerate(raw.waivers):
            place = self._at("waivers", n)
            if not w.reason.strip():
                self.problems.append(f"{place}: a waiver needs a reason")
            if w.category is not None and w.category not in known:
                self.problems.append(
                    f"{place}: no category is called {w.category!r}{suggestion(w.category, sorted(known))}"
                )
            if w.category is not None and not is_pardonable(w.category):
                self.problems.append(f"{place}: {w.category} can't be waived")
            pattern = self._pattern(w.pattern, place)
            count = None if w.expect is None else self._count(w.expect, place)
            if pattern:
                yield Waiver(pattern, w.reason, w.category, self._date(w.until, place), count, place)

    def _date(self, text: str | None, place: str) -> date | None:
        if text is None:
            return None
        try:
            return date.fromisoformat(text)
        except ValueError:
            self.problems.append(f"{place}: {text!r} is no date; write 2027-01-31")
            return None


def _line(root: Node, path: str) -> int:
    at = root
    for step in re.findall(r"[^.\[\]`]+", path):
        inner: Mapping[str, Node] = at.mapping
        if step.isdigit() and int(step) < len(at.items):
            at = at.items[int(step)]
        elif step in inner:
            at = inner[step]
    return at.line
