"""``shard_metadata``: which parameters lie in which flat tensor, as fairscale writes it beside the shards.

In: the plain value of a file's ``shard_metadata``. Out: a Metadata. Two historic forms are read: that of
fairscale since 0.3.9 (``params``: name of the flat tensor -> names, shapes, numels, padding) and that of
0.3.7 and 0.3.8 (``param_names``, ``num_padded``, ...). Source: fairscale
``fully_sharded_data_parallel.py`` (``local_metadata_dict``).

``shared_param_info`` is relative to its unit, as the names are. fairscale swaps the last pieces of the two
names where they differ (``flatten_params_wrapper.py`` packs in another order than is unpacked); a source
that is no parameter of the unit is one of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from remap.errors import Damaged


@dataclass(frozen=True)
class Flat:
    """One tensor that FSDP shards: a unit's flat tensor, or a parameter by itself.

    key      its key in the state dict, ``decoder.layers.0.flat_param_0``
    unit     index of its unit in ``param_metadata``
    name     its name in the unit's ``params``
    shapes   full name -> shape of every parameter in it, in order
    padding  elements that one rank added; differs between shards
    whole    True where every rank holds all of it (``no_broadcast_optim_state``: experts)
    """

    key: str
    unit: int
    name: str
    shapes: Mapping[str, tuple[int, ...]]
    padding: int
    whole: bool = False

    @property
    def numel(self) -> int:
        """Number of elements without padding."""
        return sum(prod(s) for s in self.shapes.values())


@dataclass(frozen=True)
class Metadata:
    """What the shards of a part hold.

    flats    key -> sharded tensor, units in order
    aliases  second name of a tied parameter -> its first, in full
    buffers  names of buffers; those that no file holds are not persistent
    """

    flats: Mapping[str, Flat]
    aliases: Mapping[str, str]
    buffers: tuple[str, ...]

    def sharing(self, other: Metadata) -> Metadata:
        """Itself, with what is equal in ``other`` held once for both: a thousand shards say the same."""
        flats = {
            k: replace(f, shapes=other.flats[k].shapes)
            if k in other.flats and list(f.shapes.items()) == list(other.flats[k].shapes.items())
            else f
            for k, f in self.flats.items()
        }
        aliases = other.aliases if self.aliases == other.aliases else self.aliases
        buffers = other.buffers if self.buffers == other.buffers else self.buffers
        return Metadata(flats, aliases, buffers)

    @property
    def names(self) -> tuple[str, ...]:
        """Every parameter by its full name, units in order: fairscale's global numbering."""
        return tuple(n for f in self.flats.values() for n in f.shapes)


def read_metadata(value: object, where: object) -> Metadata:
    """Read the plain value of ``shard_metadata``. Raises Damaged where it contradicts itself."""
    try:
        return _read(value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        raise Damaged(
            f"shard_metadata is not what fairscale writes: {type(e).__name__} {e}",
            where=where,
            remedy="fetch the file again; if it is whole, it is of a version that remap does not know",
        ) from None


def _read(value: object) -> Metadata:
    units = value["param_metadata"]  # type: ignore[index]  # a wrong type is caught above
    flats: dict[str, Flat] = {}
    aliases: dict[str, str] = {}
    for number, unit in enumerate(units):
        path = str(unit["fsdp_path"])
        mine = _params(unit) if "params" in unit else _old_params(unit)
        for name, (names, shapes, numels, padding) in mine.items():
            full = {_join(path, n): tuple(map(int, s)) for n, s in zip(names, shapes, strict=True)}
            twice = [n for n in full if any(n in f.shapes for f in flats.values())]
            if twice or len(full) < len(names):
                raise ValueError(f"{_join(path, name)} holds a parameter that is there twice {twice}")
            if min((n for s in full.values() for n in s), default=0) < 0 or int(padding) < 0:
                raise ValueError(f"{_join(path, name)} has a negative size")
            if [prod(s) for s in full.values()] != [int(n) for n in numels]:
                raise ValueError(f"shapes and numels of {_join(path, name)} disagree")
            key = _join(path, name)
            flats[key] = Flat(key, number, name, full, int(padding), bool(unit["no_broadcast_optim_state"]))
        known = {n for f in flats.values() if f.unit == number for n in f.shapes}
        for source, alias in unit.get("shared_param_info", ()):
            first, second = _tie(_join(path, source), _join(path, alias), known)
            aliases[second] = first
    return Metadata(flats, aliases, tuple(value["buffer_names"]))  # type: ignore[index]


Param = tuple[list[str], list[tuple[int, ...]], list[int], int]


def _params(unit: Mapping[str, Mapping[str, Mapping[str, object]]]) -> dict[str, Param]:
    return {
        str(name): (p["names"], p["shapes"], p["numels"], p["padding"])  # type: ignore[misc]
        for name, p in unit["params"].items()
    }


def _old_params(unit: Mapping[str, list[object]]) -> dict[str, Param]:
    names, shapes, numels = unit["param_names"], unit["param_shapes"], unit["param_numels"]
    padded = unit["num_padded"]
    if not names:
        return {}
    if unit["is_flat"]:
        return {"flat_param": (names, shapes, numels, padded[0])}  # type: ignore[dict-item]
    return {
        str(n): ([n], [s], [k], p)  # type: ignore[misc,list-item]
        for n, s, k, p in zip(names, shapes, numels, padded, strict=True)
    }


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _tie(source: str, alias: str, known: set[str]) -> tuple[str, str]:
    """(first name, second name): as recorded, or with the last pieces swapped back."""
    if source in known:
        return source, alias
    a, _, a_leaf = source.rpartition(".")
    b, _, b_leaf = alias.rpartition(".")
    swapped = _join(a, b_leaf), _join(b, a_leaf)
    if swapped[0] not in known:
        raise ValueError(f"{source} is tied to {alias}, and is no parameter of its unit")
    return swapped
