"""A checked pack: parameters, stages of rules, examples. What the rest of remap knows a pack by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Union

from remap.dtypes import DType
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic
from remap.ops.base import Op
from remap.packs.language.template import Template
from remap.partitions.registry import Spelled

Axis = str
LIST: Axis = ""
"""The axis of the templates of a rule's list."""

When = Mapping[str, frozenset[str]]
"""Parameter -> the values, as they are spelled, for which something holds."""

Does = Literal["rename", "keep", "drop", "add", "refuse"]
Direction = Literal["forward", "inverse"]


@dataclass(frozen=True)
class Pattern:
    """The ``regex:`` escape hatch: a full match with named groups."""

    text: str
    groups: frozenset[str]


Source = Union[Template, Pattern]


@dataclass(frozen=True)
class New:
    """Tensors that no source has: one for each of ``each``'s numbers.

    dtype  None: the type that most tensors have
    std    random values with this deviation, by ``seed``; None: all are ``value``
    rotary the base of rotary frequencies: element k of n is ``base ** (-k / n)``
    """

    each: Mapping[str, Arithmetic]
    shape: tuple[Arithmetic, ...]
    dtype: DType | None
    value: float
    std: float | None = None
    seed: int = 0
    rotary: Arithmetic | None = None


@dataclass(frozen=True)
class Rule:
    """One statement of a stage.

    id        its name in messages, examples and ``replaces``
    line      where it stands in the pack's file
    does      rename (with ``ops``: transform), keep, drop, add; refuse is the inverse of what has none
    sources   what it owns; several are parts of one output, or (drop, keep) alternatives
    targets   what it writes; empty for keep and drop
    ops       what is done to the tensors on the way, in order
    optional  may it match nothing?
    expect    how many keys it must match
    replaces  ids of rules that yield to it
    because   why it drops, or why it has no inverse
    back      the stated inverse of a pattern: its sources and targets
    lossy     the author says ``inverse: none``
    only      the one direction in which it exists; its keys are those of that direction's input
    when      parameter -> the values with which it exists
    new       what it adds
    confirm   what its author has still to make sure of
    partition  how tensor parallelism divides what it makes, forward; None: as the layouts say, or as before
    """

    id: str
    line: int
    does: Does
    sources: tuple[Source, ...]
    targets: tuple[Template, ...] = ()
    ops: tuple[Op, ...] = ()
    optional: bool = False
    expect: Arithmetic | None = None
    replaces: frozenset[str] = frozenset()
    because: str | None = None
    back: tuple[Source, Template] | None = None
    lossy: bool = False
    only: Direction | None = None
    when: When = field(default_factory=dict)
    new: New | None = None
    partition: Spelled | None = None
    confirm: str = ""

    @property
    def templates(self) -> tuple[Template, ...]:
        """Every template on either side."""
        return tuple(s for s in self.sources if isinstance(s, Template)) + self.targets

    @cached_property
    def axes(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """Along what the sources are several, and the targets: the list, and captures of one side only."""
        left = {n for s in self.sources if isinstance(s, Template) for n in s.captures}
        right = {n for t in self.targets for n in t.captures}
        before = (LIST,) if len(self.sources) > 1 else ()
        after = (LIST,) if len(self.targets) > 1 else ()
        return (*before, *sorted(left - right)), (*after, *sorted(right - left))

    @property
    def params_used(self) -> frozenset[str]:
        """Names in its templates, counts and ops that may be parameters."""
        found = frozenset[str]().union(*(t.names for t in self.templates), *(o.symbols for o in self.ops))
        found |= self.when.keys()
        if self.partition is not None:
            found |= self.partition.symbols
        if self.new is not None:
            base = (self.new.rotary,) if self.new.rotary else ()
            trees = (*self.new.each.values(), *self.new.shape, *base)
            found |= frozenset[str]().union(*map(arithmetic.names, trees))
        return found if self.expect is None else found | arithmetic.names(self.expect)


@dataclass(frozen=True)
class Param:
    """A parameter, and where its value may come from.

    choices      name -> the name, or the names that it carries
    from_config  dotted paths in config.json, the first one there counts
    or_count     templates; the number of their distinct matches
    or_shape     (template, dimension); the size of what matches
    or_present   choice -> templates; the first choice with a match counts
    default      what remains
    value        computed from other parameters
    times        what a number in config.json is multiplied by: 100 for a fraction in percent
    """

    name: str
    line: int
    about: str = ""
    choices: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    from_config: tuple[str, ...] = ()
    or_count: tuple[Template, ...] = ()
    or_present: Mapping[str, tuple[Template, ...]] = field(default_factory=dict)
    or_shape: tuple[tuple[Template, int], ...] = ()
    default: int | str | None = None
    value: Arithmetic | None = None
    minimum: int = 0
    times: int = 1

    @property
    def is_int(self) -> bool:
        """Is it a number? Everything is that is no choice."""
        return not self.choices


@dataclass(frozen=True)
class RuleStage:
    """Rules that are applied at once to a frozen set of keys."""

    line: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class UseStage:
    """Another pack as a stage, in either direction, with some of its parameters set."""

    line: int
    pack: Pack
    given: Mapping[str, str]
    when: When = field(default_factory=dict)
    direction: Direction = "forward"


@dataclass(frozen=True)
class UnwrapStage:
    """Wrappers of training libraries, taken off and remembered."""

    line: int
    wrappers: tuple[str, ...]


Stage = Union[RuleStage, UseStage, UnwrapStage]


@dataclass(frozen=True)
class Example:
    """Keys in, keys out; or how it fails."""

    line: int
    given: Mapping[str, str]
    expect: Mapping[str, str]
    dropped: Mapping[str, str]
    fails: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    inverse: bool = False


@dataclass(frozen=True)
class Evidence:
    """Where a fact comes from: a file of a project at a commit, or in a release (``version``)."""

    project: str
    path: str = ""
    commit: str = ""
    version: str = ""
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class Pack:
    """Rules from one layout to another.

    file        what its messages call it
    digest      xxh3_128 of its bytes and of the packs it uses
    categories  name -> templates of the target's keys that an audit should count to it (``adapter``)
    """

    name: str
    version: str
    title: str
    file: str
    digest: str
    stages: tuple[Stage, ...]
    params: Mapping[str, Param] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    examples: tuple[Example, ...] = ()
    source_layout: str | None = None
    target_layout: str | None = None
    categories: Mapping[str, tuple[Template, ...]] = field(default_factory=dict)

    def place(self, rule: Rule) -> str:
        """``file:line (rule id)`` for messages."""
        return f"{self.file}:{rule.line} (rule {rule.id})"

    @property
    def own_rules(self) -> tuple[Rule, ...]:
        """The rules of its own stages."""
        return tuple(r for s in self.stages if isinstance(s, RuleStage) for r in s.rules)

    @property
    def used(self) -> tuple[Pack, ...]:
        """The packs that its stages use."""
        return tuple(s.pack for s in self.stages if isinstance(s, UseStage))

    @cached_property
    def all_used(self) -> tuple[Pack, ...]:
        """The packs that it uses, and those that they use: each as often as it is applied."""
        return tuple(p for used in self.used for p in (used, *used.all_used))

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Its own rules and those of the packs it uses."""
        return self.own_rules + tuple(r for p in self.all_used for r in p.own_rules)

    @property
    def all_params(self) -> frozenset[str]:
        """Names of its own parameters and of those of the packs it uses."""
        return frozenset(self.params).union(*(p.params for p in self.all_used))
