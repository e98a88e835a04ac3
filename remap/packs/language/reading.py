"""A pack's structures -> a checked Pack: templates parsed, captures compared, every problem collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from remap.errors import PackError
from remap.ops import arithmetic
from remap.packs.applying.params import check_value
from remap.packs.applying.unwrap import NAME, check_wrappers
from remap.packs.language.pack import (
    Direction,
    Evidence,
    Example,
    Pack,
    Param,
    Rule,
    RuleStage,
    Stage,
    UnwrapStage,
    UseStage,
)
from remap.packs.language.rules import read_rule, read_when
from remap.packs.language.schema import (
    RawEvidence,
    RawExample,
    RawPack,
    RawParam,
    RawShape,
    RawStage,
    checked,
    suggestion,
)
from remap.packs.language.template import Tables, Template, check_table, parse_template
from remap.packs.language.yaml_source import Node, read_yaml

VERSION = 1
"""The version of the language."""

PACK_NAME = re.compile(r"[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+")
"""``family/name``; families may have families."""

Find = Callable[[str], Pack]
"""How a pack that ``use:`` names is found."""


class Problems:
    """Collects what is wrong in a file, each with its line."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[str] = []

    def add(self, line: int, what: str) -> None:
        """Note one."""
        self.lines.append(f"{self.file}:{line}: {what}")

    @contextmanager
    def at(self, line: int, what: str = "") -> Iterator[None]:
        """Note a PackError that is raised inside, if it has no place of its own."""
        try:
            yield
        except PackError as e:
            if e.where is not None:
                raise
            remedy = f" ({e.remedy})" if e.remedy else ""
            self.add(line, f"{what + ': ' if what else ''}{e.what}{remedy}")

    def raise_any(self) -> None:
        """Raise them as one error."""
        if len(self.lines) == 1:
            where, _, what = self.lines[0].partition(": ")
            raise PackError(what, where=where)
        if self.lines:
            raise PackError(f"{len(self.lines)} problems", where=self.file, problems=self.lines)


def read_pack(data: bytes, file: str, find: Find, digest: Callable[[Iterable[Pack]], str]) -> Pack:
    """Read a pack. ``find`` gives the packs that it uses; ``digest`` is told them. Raises PackError."""
    root = read_yaml(data, file)
    if "layout" in root.mapping and "pack" not in root.mapping:
        raise PackError("a layout, no pack", where=file, remedy="a pack's from: and to: name layouts")
    raw = checked(root, file, RawPack)
    problems = Problems(file)
    nodes = root.mapping
    if raw.remap != VERSION:
        problems.add(nodes["remap"].line, f"version {raw.remap} of the language; this is {VERSION}")
    if not PACK_NAME.fullmatch(raw.pack):
        problems.add(
            nodes["pack"].line, f"{raw.pack!r} is no name of a pack (family/name, as in llama/hf-to-meta)"
        )
    tables: dict[str, tuple[tuple[str, str], ...]] = {}
    for name, table in raw.tables.items():
        with problems.at(nodes["tables"].mapping[name].line, f"table {name}"):
            tables[name] = check_table(list(table.items()), name)
    params = read_params(raw.params, nodes.get("params"), tables, problems)
    problems.raise_any()  # what rules say of them would be wrong, too
    stages = _stages(raw, nodes["stages"], params, tables, problems, find)
    categories: dict[str, tuple[Template, ...]] = {}
    for name, texts in raw.categories.items():
        with problems.at(nodes["categories"].mapping[name].line, f"category {name}"):
            categories[name] = tuple(parse_template(t, {}, {}) for t in _texts(texts))
    examples = [
        _example(e, n.line) for e, n in zip(raw.examples, _members(nodes.get("examples")), strict=True)
    ]
    problems.raise_any()
    return Pack(
        name=raw.pack,
        version=raw.version,
        title=raw.title,
        file=file,
        digest=digest(s.pack for s in stages if isinstance(s, UseStage)),
        stages=tuple(stages),
        params=params,
        evidence=read_evidence(raw.evidence),
        examples=tuple(examples),
        source_layout=raw.from_,
        target_layout=raw.to,
        categories=categories,
    )


def read_evidence(raws: Iterable[RawEvidence]) -> tuple[Evidence, ...]:
    """Where the facts come from."""
    return tuple(Evidence(e.project, e.path, str(e.commit), str(e.version), e.url, e.note) for e in raws)


def _members(node: Node | None) -> list[Node]:
    return [] if node is None else node.items


def _example(raw: RawExample, line: int) -> Example:
    return Example(
        line=line,
        given=raw.given,
        expect=raw.expect or {},
        dropped=raw.dropped,
        fails=raw.fails,
        params={k: str(v) for k, v in raw.params.items()},
        config=raw.config,
        inverse=raw.inverse,
    )


def _texts(value: str | list[str] | tuple[()]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def read_params(
    raws: Mapping[str, RawParam], node: Node | None, tables: Tables, problems: Problems
) -> dict[str, Param]:
    """Check the parameters; what is wrong is noted."""
    params: dict[str, Param] = {}
    for name, raw in raws.items():
        assert node is not None
        line = node.mapping[name].line
        with problems.at(line, f"parameter {name}"):
            params[name] = _param(name, raw, line, tables)
    for param in params.values():
        for name in sorted(arithmetic.names(param.value) - params.keys() if param.value else ()):
            problems.add(param.line, f"parameter {param.name}: value: no parameter is called {name!r}")
    _no_circles(params, problems)
    return params


def _no_circles(params: Mapping[str, Param], problems: Problems) -> None:
    """Note parameters that are computed from each other."""
    needs = {p.name: arithmetic.names(p.value) for p in params.values() if p.value is not None}
    while ready := [name for name, several in needs.items() if several.isdisjoint(needs)]:
        for name in ready:
            del needs[name]
    if needs:
        chain = [next(iter(needs))]
        while len(set(chain)) == len(chain):
            chain.append(min(n for n in needs[chain[-1]] if n in needs))
        circle = chain[chain.index(chain[-1]) :]
        what = f"parameters are computed from each other in a circle: {' -> '.join(circle)}"
        problems.add(params[circle[0]].line, what)


def _param(name: str, raw: RawParam, line: int, tables: Tables) -> Param:
    def templates(texts: str | list[str] | tuple[()]) -> tuple[Template, ...]:
        return tuple(parse_template(t, {}, tables) for t in _texts(texts))

    if not name.isidentifier() or name == NAME:
        raise PackError(f"{name!r} is no name", remedy="letters, digits and _")
    choices = {c: c for c in raw.choices} if isinstance(raw.choices, list) else dict(raw.choices or {})
    fields = {frozenset(c) if isinstance(c, dict) else None for c in choices.values()}
    if len(fields) > 1:
        raise PackError("its choices carry different names", remedy="give each choice the same names")
    strange = [c for c in raw.or_present if c not in choices]
    if strange:
        raise PackError(
            f"or_present: no choice is called {strange[0]!r}{suggestion(strange[0], list(choices))}"
        )
    if choices and raw.default is not None and raw.default not in choices:
        raise PackError(
            f"default: no choice is called {raw.default!r}{suggestion(str(raw.default), list(choices))}"
        )
    if not choices and isinstance(raw.default, str):
        raise PackError(f"default: {raw.default!r} is no whole number", remedy="list choices for a name")
    if raw.choices is not None and len(choices) < max(len(raw.choices), 1):
        raise PackError("choices: a list of different names, at least one")
    if raw.times < 1:
        raise PackError(f"times: {raw.times} is less than 1")
    if isinstance(raw.default, int) and raw.default < raw.min:
        raise PackError(f"default: {raw.default} is less than min: {raw.min}")
    if choices and raw.or_count:
        raise PackError("or_count gives a number, and it has choices")
    if choices and (raw.or_shape or raw.value):
        raise PackError("or_shape and value give a number, and it has choices")
    shapes = [raw.or_shape] if isinstance(raw.or_shape, RawShape) else list(raw.or_shape)
    if any(s.dim < 0 for s in shapes):
        raise PackError("or_shape: dim: a dimension is counted from 0")
    return Param(
        name=name,
        line=line,
        about=raw.about,
        choices=choices,
        from_config=tuple(_texts(raw.from_config)),
        or_count=templates(raw.or_count),
        or_present={c: templates(t) for c, t in raw.or_present.items()},
        default=raw.default,
        or_shape=tuple((parse_template(r.key, {}, tables), r.dim) for r in shapes),
        value=None if raw.value is None else arithmetic.parse(raw.value),
        minimum=raw.min,
        times=raw.times,
    )


_OF_USE = "with:, when: and inverse: belong to a pack that is used"


def _stages(
    raw: RawPack,
    node: Node,
    params: Mapping[str, Param],
    tables: Tables,
    problems: Problems,
    find: Find,
) -> list[Stage]:
    stages: list[Stage] = []
    seen: dict[str, int] = {}
    if not raw.stages:
        problems.add(node.line, "a pack without stages")
    for stage, at in zip(raw.stages, node.items, strict=True):
        if sum(x is not None for x in (stage.rules, stage.use, stage.unwrap)) != 1:
            problems.add(at.line, "a stage has one of rules, use, unwrap")
        elif stage.use is not None:
            with problems.at(at.line, f"use {stage.use}"):
                stages.append(_use(stage, at.line, params, find))
        elif stage.unwrap is not None:
            with problems.at(at.line):
                if stage.with_ or stage.when or stage.inverse:
                    raise PackError(_OF_USE)
                if any(isinstance(s, UnwrapStage) for s in stages):
                    raise PackError("a second unwrap", remedy="one takes all wrappers off")
                stages.append(UnwrapStage(at.line, check_wrappers(stage.unwrap)))
        elif stage.with_ or stage.when or stage.inverse:
            problems.add(at.line, f"{_OF_USE}; a rule has its own")
        else:
            stages.append(_rules(stage, at, params, tables, problems, seen))
    return stages


def _no_mutual(rules: Sequence[Rule], problems: Problems) -> None:
    """Note rules that yield to each other or to themselves: none of them would own a key."""
    by = {r.id: r for r in rules}
    for rule in rules:
        for other in sorted(rule.replaces & by.keys()):
            if rule.id in by[other].replaces and by[other].line <= rule.line:
                what = "itself" if other == rule.id else f"{other!r}, which replaces it"
                problems.add(rule.line, f"rule {rule.id}: replaces {what}; then nothing owns their keys")


def _use(stage: RawStage, line: int, params: Mapping[str, Param], find: Find) -> UseStage:
    pack = find(stage.use or "")
    strange = [n for n in stage.with_ if n not in pack.all_params]
    if strange:
        known = sorted(pack.all_params)
        raise PackError(f"{pack.name} has no parameter {strange[0]!r}{suggestion(strange[0], known)}")
    given = {k: str(v) for k, v in stage.with_.items()}
    for owner in (pack, *pack.all_used):
        for name in given.keys() & owner.params.keys():
            check_value(owner.params[name], given[name])
    direction: Direction = "inverse" if stage.inverse else "forward"
    return UseStage(line, pack, given, read_when(stage.when, params), direction)


def _rules(
    stage: RawStage,
    node: Node,
    params: Mapping[str, Param],
    tables: Tables,
    problems: Problems,
    seen: dict[str, int],
) -> RuleStage:
    rules: list[Rule] = []
    for raw, at in zip(stage.rules or (), node.mapping["rules"].items, strict=True):
        with problems.at(at.line, f"rule {raw.id}" if raw.id else ""):
            rule = read_rule(raw, at.line, params, tables)
            if rule.id in seen:
                raise PackError(f"another rule in line {seen[rule.id]} has this id")
            seen[rule.id] = at.line
            rules.append(rule)
    ids = [r.id for r in rules]
    _no_mutual(rules, problems)
    for rule in rules:
        for other in sorted(rule.replaces):
            if other not in ids:
                problems.add(
                    rule.line,
                    f"rule {rule.id}: replaces {other!r}, which this stage has not{suggestion(other, ids)}",
                )
        if rule.expect is not None:
            for name in sorted(arithmetic.names(rule.expect) - params.keys()):
                near = suggestion(name, list(params))
                problems.add(rule.line, f"rule {rule.id}: expect: no parameter is called {name!r}{near}")
    return RuleStage(node.line, tuple(rules))
