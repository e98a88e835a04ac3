"""A layout: which keys a model family has, as data. Its YAML -> checked values -> the keys of one model.

    remap: 1
    layout: gpt_neox/hf
    title: GPT-NeoX in transformers
    params:
      layers: {from_config: num_hidden_layers, or_count: "gpt_neox.layers.{i:int}.attention.dense.weight"}
      hidden: {from_config: hidden_size, or_shape: {key: "gpt_neox.embed_in.weight", dim: 1}}
    keys:
      - key: "gpt_neox.layers.{i:int}.attention.dense.weight"
        each: {i: layers}
        shape: [hidden, hidden]
        role: weight
        partition: columns

``optional: true`` keys may be absent. ``optional: adapters`` names a parameter with the choices ``absent``
and ``present``: a model has all of these keys, or none. A key with ``**`` is open: a module with names of its
own, such as an image encoder. ``partition`` says how tensor parallelism divides a tensor: the name of a class
in ``remap.partitions``, with its sizes (``rows(heads)``), or ``"{name}"`` of a parameter whose choices are
classes. ``slot`` is the layer of a pipeline that holds it.

``like: {layout: family/name, prefix: "sequential."}`` begins with the parameters and keys of another layout,
behind a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from remap.errors import PackError
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic
from remap.packs.applying.params import Given, Resolved, resolve
from remap.packs.division import Division, read_division
from remap.packs.language.pack import Evidence, Pack, Param, When
from remap.packs.language.reading import VERSION, Problems, read_evidence, read_params
from remap.packs.language.rules import read_when
from remap.packs.language.schema import RawKey, RawLayout, checked
from remap.packs.language.template import Capture, Template, Text, parse_template
from remap.packs.language.yaml_source import read_yaml
from remap.packs.matching.keyset import KeySet
from remap.packs.matching.matcher import Matcher
from remap.packs.matching.rendering import write_one
from remap.types import Entry

ABSENT, PRESENT = "absent", "present"
"""The choices of a parameter that says whether a model has some keys."""
MOST = 1_000_000
"""How far a layout counts: more is a parameter that went wrong."""


@dataclass(frozen=True)
class LayoutKey:
    """Keys of one template, and what is known of their tensors.

    shape   None: any
    group   the parameter that says whether a model has these keys; empty where nothing does
    """

    template: Template
    line: int
    role: str
    shape: tuple[Arithmetic, ...] | None
    each: Mapping[str, Arithmetic]
    partition: Division
    slot: Arithmetic | None
    optional: bool
    group: str
    derived: bool
    tied: str | None
    when: When

    @property
    def open(self) -> bool:
        """Does it stand for keys that the layout does not list: a module with names of its own?"""
        return self.template.anonymous


@dataclass(frozen=True, slots=True)
class Expected:
    """One key of a model, by its layout."""

    key: str
    shape: tuple[int, ...] | None
    slot: int | None
    of: LayoutKey


@dataclass(frozen=True, slots=True)
class Absent:
    """Optional keys that a checkpoint has none of: their template, how many there would be (None: their
    number is not known), and the parameter that would ask for them."""

    template: str
    count: int | None
    group: str


@dataclass(frozen=True)
class Layout:
    """A family's keys.

    like    the layout that it begins with
    format  what its checkpoints are written as where nobody says; None for what they came as
    """

    name: str
    title: str
    file: str
    keys: tuple[LayoutKey, ...]
    params: Mapping[str, Param]
    evidence: tuple[Evidence, ...]
    like: str | None = None
    format: str | None = None

    def knows(self, key: str) -> bool:
        """Is it a key of some model of the family, whatever the parameters are?"""
        return any(m.could(key) for m in self._matchers)

    @cached_property
    def _matchers(self) -> list[Matcher]:
        return [Matcher(bound) for key in self.keys for bound in self._spellings(key.template)]

    def _spellings(self, template: Template) -> Iterator[Template]:
        """The template with every choice of its parameters, and some number for each number."""
        named = [p for n, p in self.params.items() if p.choices and n in template.names]
        numbers = dict.fromkeys((n for n, p in self.params.items() if p.is_int), MOST)
        for values in product(*(p.choices.values() for p in named)):
            yield template.bind({**numbers, **{p.name: v for p, v in zip(named, values, strict=True)}})

    def resolve(
        self,
        entries: Iterable[Entry],
        config: Mapping[str, object],
        given: Mapping[str, str] | None = None,
        remembered: Mapping[str, object] | None = None,
        *,
        shapes: bool = True,
    ) -> Resolved:
        """The parameters of a model, by what is given, by a receipt, by its config, by its keys, and by their
        ``shapes`` where these are those of whole tensors."""
        listed = list(entries)
        owner = Pack(self.name, "", self.title, self.file, "", (), self.params)
        keys = KeySet(e.key for e in listed)
        specs = (lambda place: listed[place].spec) if shapes else None
        return resolve(owner, keys, Given(given or {}, remembered or {}, config), {}, specs)

    def expected(self, values: Resolved) -> dict[str, Expected]:
        """Every key of the model with these parameters. Raises PackError for a size without a value."""
        found: dict[str, Expected] = {}
        for key in self.keys:
            if values.hold(key.when) and not key.open:
                for made in _expand(key, values):
                    found[made.key] = made
        return found

    def open_keys(self, values: Resolved) -> list[Matcher]:
        """What matches keys that the layout does not list."""
        return [Matcher(k.template.bind(values.values)) for k in self.keys if k.open and values.hold(k.when)]

    def absent(self, found: Collection[str], values: Resolved) -> Iterator[Absent]:
        """The optional keys of which ``found`` has none. Not buffers, and not heads that may be tied."""
        for key in self.keys:
            asked = key.group and values.spelled.get(key.group) == PRESENT
            rest = {n: v for n, v in key.when.items() if n != key.group}
            if not (key.optional or key.group) or asked or key.derived or key.tied or not values.hold(rest):
                continue
            matcher = Matcher(key.template.bind(values.values)) if key.open else None
            names = None if matcher else _names(key, values)
            if not any(matcher.match(k) if matcher else k in (names or ()) for k in found):
                yield Absent(key.template.text, None if names is None else len(names), key.group)

    def differences(self, entries: Iterable[Entry], values: Resolved) -> Iterator[str]:
        """What keys and shapes depart from the layout in, one line each."""
        wanted = self.expected(values)
        found = {e.key: e.spec.shape for e in entries}
        for name, made in wanted.items():
            if name not in found:
                if not made.of.optional:
                    yield f"{name} is missing"
            elif made.shape is not None and made.shape != found[name]:
                yield f"{name} is {list(found[name])}; {self.name} says {list(made.shape)}"
        others = self.open_keys(values)
        for name in found.keys() - wanted.keys():
            if any(m.match(name) for m in others):
                continue
            yield f"{name} is no key of {self.name}"


def _names(key: LayoutKey, values: Resolved) -> frozenset[str] | None:
    """The keys that it stands for; None where a size is not known."""
    try:
        return frozenset(made.key for made in _expand(replace(key, shape=None, slot=None), values))
    except PackError:
        return None


def read_layout(data: bytes, file: str, find: Callable[[str], Layout] | None = None) -> Layout:
    """Read a layout; ``find`` gives the one that it is ``like``. Raises PackError with every problem."""
    root = read_yaml(data, file)
    raw = checked(root, file, RawLayout)
    problems = Problems(file)
    if raw.remap != VERSION:
        problems.add(root.mapping["remap"].line, f"version {raw.remap} of the language; this is {VERSION}")
    base = find(raw.like.layout) if raw.like and find else None
    prefix = raw.like.prefix if raw.like else ""
    params = {n: _param_behind(p, prefix) for n, p in base.params.items()} if base else {}
    params |= read_params(raw.params, root.mapping.get("params"), {}, problems)
    keys = [_key_behind(k, prefix) for k in base.keys] if base else []
    if not (raw.keys or base):
        problems.add(root.line, "a layout without keys")
    for key, node in zip(raw.keys, root.mapping["keys"].items if raw.keys else (), strict=True):
        with problems.at(node.line):
            keys.append(_key(key, node.line, params))
    problems.raise_any()
    return Layout(
        raw.layout,
        raw.title,
        file,
        tuple(keys),
        params,
        read_evidence(raw.evidence),
        raw.like.layout if raw.like else None,
        raw.format,
    )


def _behind(template: Template, prefix: str) -> Template:
    """The template of keys behind a prefix."""
    return Template(prefix + template.text, (Text(prefix), *template.elements)) if prefix else template


def _key_behind(key: LayoutKey, prefix: str) -> LayoutKey:
    tied = None if key.tied is None else prefix + key.tied
    return replace(key, template=_behind(key.template, prefix), tied=tied)


def _param_behind(param: Param, prefix: str) -> Param:
    return replace(
        param,
        or_count=tuple(_behind(t, prefix) for t in param.or_count),
        or_shape=tuple((_behind(t, prefix), dim) for t, dim in param.or_shape),
        or_present={c: tuple(_behind(t, prefix) for t in ts) for c, ts in param.or_present.items()},
    )


def _key(raw: RawKey, line: int, params: Mapping[str, Param]) -> LayoutKey:
    template = parse_template(raw.key, params, {})
    counted = {n for n, c in template.captures.items() if c.kind == "int"}
    if counted != raw.each.keys():
        raise PackError(f"{raw.key!r}: each: must count {', '.join(sorted(counted)) or 'nothing'}")
    loose = [n for n, c in template.captures.items() if c.kind not in ("int", "names")]
    if loose or (template.anonymous and not raw.optional):
        raise PackError(
            f"{raw.key!r}: a layout lists its keys", remedy="use {i:int} and {p:one|two}, or optional **"
        )
    group = raw.optional if isinstance(raw.optional, str) else ""
    if group and (group not in params or {ABSENT, PRESENT} - params[group].choices.keys()):
        raise PackError(
            f"{raw.key!r}: optional: {group!r} is no parameter with the choices {ABSENT} and {PRESENT}",
            remedy=f"{group}: {{choices: [{ABSENT}, {PRESENT}], or_present: {{{PRESENT}: ...}}}}",
        )
    asked = {group: frozenset({PRESENT})} if group else {}
    each = {name: arithmetic.parse(str(count)) for name, count in raw.each.items()}
    shape = None if raw.shape is None else tuple(arithmetic.parse(str(s)) for s in raw.shape)
    slot = None if raw.slot is None else arithmetic.parse(str(raw.slot))
    for tree, more in [
        *((t, set()) for t in (*each.values(), *(shape or ()))),
        *(((slot, counted),) if slot else ()),
    ]:
        unknown = sorted(arithmetic.names(tree) - params.keys() - more)
        if unknown:
            raise PackError(f"{raw.key!r}: no parameter is called {unknown[0]!r}")
    return LayoutKey(
        template=template,
        line=line,
        role=raw.role,
        shape=shape,
        each=each,
        partition=read_division(raw.partition, params),
        slot=slot,
        optional=raw.optional is True,
        group=group,
        derived=raw.derived,
        tied=raw.tied,
        when={**read_when(raw.when, params), **asked},
    )


def _expand(key: LayoutKey, values: Resolved) -> Iterator[Expected]:
    template = key.template.bind(values.values)
    choices: dict[str, list[str]] = {}
    for name, count in key.each.items():
        size = _size(count, values, key)
        if size > MOST:
            raise PackError(f"{key.template.text}: {count} is {size}; a layout counts to {MOST}")
        choices[name] = [str(n) for n in range(size)]
    for e in template.elements:
        if isinstance(e, Capture) and e.table and e.name is not None:
            choices[e.name] = [left for left, _ in e.table]
    if prod(map(len, choices.values())) > MOST:
        raise PackError(f"{key.template.text} stands for more than {MOST} keys; a layout counts to {MOST}")
    shape = None if key.shape is None else tuple(_size(s, values, key) for s in key.shape)
    for several in product(*choices.values()):
        captures = dict(zip(choices, several, strict=True))
        numbers = {n: int(captures[n]) for n in key.each}
        slot = None if key.slot is None else arithmetic.evaluate(key.slot, {**values.numbers, **numbers})
        yield Expected(write_one(template, captures), shape, slot, key)


def _size(tree: Arithmetic, values: Resolved, key: LayoutKey) -> int:
    missing = sorted(arithmetic.names(tree) - values.numbers.keys())
    if missing:
        why = values.missing.get(missing[0], "it is no number")
        raise PackError(f"{key.template.text}: {missing[0]} has no value: {why}")
    found = arithmetic.evaluate(tree, values.numbers)
    if found < 0:
        said = ", ".join(f"{n} = {values.numbers[n]}" for n in sorted(arithmetic.names(tree)))
        raise PackError(f"{key.template.text}: {tree} is {found}, with {said}")
    return found
