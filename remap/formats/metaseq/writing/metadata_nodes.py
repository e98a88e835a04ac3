"""``shard_metadata`` as it is written: the nodes of an existing one edited, or made from nothing.

What does not change stays as it is, so that the way back gives the same metadata: shapes stay the tuples
or ``torch.Size`` that they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from remap.formats.metaseq.files.metadata import Flat, Metadata
from remap.pickles.build import node_of
from remap.pickles.graph import items_of, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Call, Dict, Global, List, Value


def edited(node: Value, metadata: Metadata, padding: Mapping[str, int]) -> dict[int, Value]:
    """Node -> its replacement, so that ``node`` says what ``metadata`` and this shard's ``padding`` do."""
    units = items_of(lookup(node, "param_metadata")[1]) or ()
    changed: dict[int, Value] = {}
    for number, unit in enumerate(units):
        flats = [f for f in metadata.flats.values() if f.unit == number]
        params = lookup(unit, "params")
        if not params[0]:
            changed[id(unit)] = _old_unit(unit, flats, padding)
            continue
        for flat in flats:
            param = lookup(params[1], flat.name)[1]
            changed[id(param)] = _replaced(
                param,
                {
                    "padding": padding.get(flat.key, 0),
                    "shapes": _shapes(lookup(param, "shapes")[1], list(flat.shapes.values())),
                    "numels": [prod(s) for s in flat.shapes.values()],
                },
            )
    return changed


def _old_unit(unit: Value, flats: Sequence[Flat], padding: Mapping[str, int]) -> Value:
    """The form of fairscale 0.3.7 and 0.3.8: one list for all tensors of a unit."""
    shapes = [s for f in flats for s in f.shapes.values()]
    return _replaced(
        unit,
        {
            "num_padded": [padding.get(f.key, 0) for f in flats],
            "param_shapes": _shapes(lookup(unit, "param_shapes")[1], shapes),
            "param_numels": [prod(s) for s in shapes],
        },
    )


def _replaced(node: Value, values: Mapping[str, object]) -> Value:
    pairs = []
    for key, old in mapping_pairs(node) or ():
        name = key_of(key)
        value = values.get(name) if isinstance(name, str) else None
        if value is None or plain(old) == value:
            pairs.append((key, old))
        else:
            pairs.append((key, value if isinstance(value, List) else node_of(value)))
    return Dict(pairs)


def _shapes(old: Value, shapes: Sequence[tuple[int, ...]]) -> Value:
    """A list of shapes in the way of ``old``, which stays where it says the same."""
    if plain(old) in ([*shapes], (*shapes,)):
        return old
    first = next(iter(items_of(old) or ()), None)
    if type(first) is Call and first.is_a("torch", "Size"):
        return List([Call("reduce", Global("torch", "Size"), (s,)) for s in shapes])
    return List(list(shapes))


def fresh(metadata: Metadata, padding: Mapping[str, int]) -> Value:
    """Metadata from nothing, in the form of fairscale since 0.3.9."""
    units: list[object] = []
    for number in sorted({f.unit for f in metadata.flats.values()}):
        flats = [f for f in metadata.flats.values() if f.unit == number]
        path = flats[0].key.rpartition(".")[0]
        cut = len(path) + 1 if path else 0
        names = {n for f in flats for n in f.shapes}
        units.append(
            {
                "fsdp_path": path,
                "params": {
                    f.name: {
                        "names": [n[cut:] for n in f.shapes],
                        "shapes": list(f.shapes.values()),
                        "numels": [prod(s) for s in f.shapes.values()],
                        "padding": padding.get(f.key, 0),
                    }
                    for f in flats
                },
                "no_broadcast_optim_state": False,
                "shared_param_info": [
                    (source[cut:], alias[cut:])
                    for alias, source in metadata.aliases.items()
                    if source in names
                ],
            }
        )
    return node_of({"param_metadata": units, "buffer_names": list(metadata.buffers)})
