"""How a layout says that tensor parallelism divides its keys, and which class every key of a table has.

A layout writes ``partition: rows(heads)``, or ``partition: "{gpt_j_residual}"`` where a parameter decides and
its choices carry the classes. The parameters of ranks' tensors are read from what they are together: along
which dimension a class follows is known before its sizes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remap.errors import PackError
from remap.packs.applying.params import Given, Resolved
from remap.packs.language.pack import Param
from remap.packs.matching.keyset import KeySet
from remap.packs.matching.matcher import Matcher
from remap.partitions.base import Partition
from remap.partitions.registry import Spelled, read_partition
from remap.partitions.undecided import Undecided
from remap.types import Entry, TensorSpec

if TYPE_CHECKING:
    from remap.packs.layout import Layout, LayoutKey


@dataclass(frozen=True)
class Division:
    """The class of a key as a layout writes it. ``by`` is the parameter whose ``choices`` carry classes; the
    only choice is "" where none decides."""

    text: str
    by: str
    choices: Mapping[str, Spelled]

    def __str__(self) -> str:
        return self.text

    @property
    def dim(self) -> int | None:
        """The dimension along which ranks follow one another: that of every choice."""
        return next(iter(self.choices.values())).resolve({}).dim

    def resolve(self, values: Resolved) -> Partition:
        """The class with these parameters."""
        choice = str(values.spelled.get(self.by, "")) if self.by else ""
        if choice not in self.choices:
            options = " or ".join(f"{c} ({s})" for c, s in self.choices.items())
            return Undecided(
                f"{self.by} is {options}: {values.missing.get(self.by, 'it has no value')}",
                f"say which: -p {self.by}={next(iter(self.choices))}",
                self.dim,
            )
        return self.choices[choice].resolve(values.numbers)


def read_division(text: str, params: Mapping[str, Param]) -> Division:
    """Check what a layout writes. Raises PackError."""
    by = text[1:-1] if text.startswith("{") and text.endswith("}") else ""
    if by and (by not in params or not params[by].choices):
        raise PackError(f"partition: {text!r}: no parameter with choices is called {by!r}")
    written = params[by].choices if by else {"": text}
    choices: dict[str, Spelled] = {}
    for choice, spelled in written.items():
        if not isinstance(spelled, str):
            raise PackError(f"partition: {by}: the choice {choice!r} carries several names")
        choices[choice] = read_partition(spelled)
        unknown = sorted(choices[choice].symbols - params.keys())
        if unknown:
            raise PackError(f"partition: no parameter is called {unknown[0]!r}")
    if len({s.resolve(dict.fromkeys(s.symbols, 2)).dim for s in choices.values()}) > 1:
        raise PackError(f"partition: {text!r}: its choices divide along different dimensions")
    return Division(text, by, choices)


@dataclass(frozen=True)
class Divided:
    """A table by its layout.

    classes  key -> its class; keys that the layout does not know are not in it
    values   the layout's parameters
    """

    classes: Mapping[str, Partition]
    values: Resolved


def divide(layout: Layout, tables: Sequence[Mapping[str, TensorSpec]], given: Given) -> Divided:
    """The class of every key that the tables of all ranks share; one table is that of the whole model.

    ``given`` is what is known of the layout's parameters before the tensors are looked at.
    """
    from_ = (given.config, given.explicit, given.remembered)
    first = [Entry(k, s) for k, s in tables[0].items()]
    known = _known(layout, [e.key for e in first], layout.resolve(first, *from_, shapes=False).values)
    whole = [Entry(e.key, _joined(e.spec, known.get(e.key, ()), len(tables))) for e in first]
    values = layout.resolve(whole, *from_)
    return Divided({key: _decided(keys, values) for key, keys in known.items()}, values)


def _known(layout: Layout, keys: Iterable[str], values: Mapping[str, object]) -> dict[str, list[LayoutKey]]:
    """Key -> what the layout may say of it, whatever conditions hold."""
    matchers = [(Matcher(k.template.bind(values)), k) for k in layout.keys]
    table = KeySet(keys)
    found: dict[str, list[LayoutKey]] = {}
    for group in table.groups.values():
        some = [(m, k) for m, k in matchers if m.could(group.key)]
        for place in group.rows.places if some else ():
            key = table.keys[place]
            mine = [k for m, k in some if m.match(key) is not None]
            if mine:
                found[key] = mine
    return found


def _joined(spec: TensorSpec, keys: Sequence[LayoutKey], ranks: int) -> TensorSpec:
    """What the tensors of all ranks are together."""
    dims = {k.partition.dim for k in keys}
    dim = dims.pop() if len(dims) == 1 else None
    if dim is None or dim >= len(spec.shape):
        return spec
    shape = spec.shape
    return replace(spec, shape=(*shape[:dim], shape[dim] * ranks, *shape[dim + 1 :]))


def _decided(keys: Sequence[LayoutKey], values: Resolved) -> Partition:
    holding = [k for k in keys if values.hold(k.when)]
    if holding:
        return holding[0].partition.resolve(values)
    open_ = sorted({n for k in keys for n in k.when} - values.spelled.keys())
    why = "; ".join(f"{n}: {values.missing.get(n, 'it has no value')}" for n in open_)
    return Undecided(
        f"how it is divided can't be told: {why or 'no such model has it'}",
        "give it: " + " ".join(f"-p {n}=..." for n in open_) if open_ else "see the layout",
        keys[0].partition.dim,
    )
