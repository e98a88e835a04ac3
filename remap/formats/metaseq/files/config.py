"""The saved configuration: what it says of parts and shards, and how it is made to tell the truth.

``cfg`` is a dict of dicts; some of them are ``argparse.Namespace`` objects that hold every argument
again, older files hold an omegaconf ``DictConfig``. None of it is trusted where the files say otherwise:
metaseq's own scripts leave it stale. Source: metaseq ``dataclass/utils.py``, ``distributed/utils.py``
(``checkpoint_suffix``), ``scripts/reshard_mp.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from remap.formats.metaseq.description import NAMES
from remap.formats.torch.state import TorchFile
from remap.pickles.build import node_of
from remap.pickles.graph import key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Call, Dict, Pairs, Value

CONFIG = "cfg"
_PART = re.compile(r"-model_part-(\d+)")


@dataclass(frozen=True)
class Config:
    """What a configuration says; None where it says nothing.

    parts  model-parallel size
    world  number of processes, parts times shards
    tied   the output projection is the token embedding
    rank   of the process that saved the file; parts of one shard are adjacent
    part   the model part that it saved
    model  what it says of the model, by the names that are looked at (``description``)
    """

    parts: int | None = None
    world: int | None = None
    tied: bool | None = None
    rank: int | None = None
    part: int | None = None
    model: Mapping[str, object] = field(default_factory=dict)


def read_config(file: TorchFile) -> Config:
    """What the configuration of ``file`` says. Of two model-parallel sizes the model's own is the newer."""
    found, cfg = lookup(file.contents.walked.root, CONFIG)
    if not found:
        return Config()
    parts = _value(cfg, "model", "model_parallel_size") or _value(cfg, "common", "model_parallel_size")
    world = _value(cfg, "distributed_training", "distributed_world_size")
    tied = _value(cfg, "model", "share_decoder_input_output_embed")
    rank = _value(cfg, "distributed_training", "distributed_rank")
    suffix = plain(_value(cfg, "checkpoint", "checkpoint_suffix"))
    part = _PART.fullmatch(suffix) if isinstance(suffix, str) else None
    return Config(
        parts if type(parts) is int else None,
        world if type(world) is int else None,
        tied if type(tied) is bool else None,
        rank if type(rank) is int else None,
        int(part[1]) if part else None,
        dict(_named(cfg)),
    )


def _named(cfg: Value) -> Iterator[tuple[str, object]]:
    """What is said of the model: numbers, words, and words of an enumeration."""
    for key, node in _items(_value(cfg, "model")):
        name, held = key_of(key), _value(node)
        enumerated = type(held) is Call and len(held.args) == 1
        value = plain(held.args[0] if enumerated else held)  # type: ignore[attr-defined]
        if name in NAMES and isinstance(value, (bool, int, float, str)):
            yield str(name), value


def _value(node: Value, *path: str) -> Value:
    for name in path:
        node = next((v for k, v in _items(node) if key_of(k) == name), None)
    return next((v for k, v in _state(node) if key_of(k) == "_val"), node)


def _items(node: Value) -> Pairs:
    """The pairs of a dict, the attributes of a Namespace, the content of an omegaconf DictConfig."""
    pairs = mapping_pairs(node)
    if pairs is not None:
        return pairs
    attributes = _state(node)
    content = next((v for k, v in attributes if key_of(k) == "_content"), None)
    return attributes if content is None else mapping_pairs(content) or []


def _state(node: Value) -> Pairs:
    """What BUILD sets on an object."""
    if type(node) is not Call or mapping_pairs(node) is not None:
        return []
    built = [values[0] for what, values in node.steps or () if what == "build"]
    return [pair for state in built for pair in mapping_pairs(state) or ()]


def set_facts(cfg: Value, facts: Mapping[str, object]) -> dict[int, Value]:
    """Node -> its replacement, so that each of ``facts`` is what ``cfg`` says wherever it has that name."""
    replace: dict[int, Value] = {}
    for holder in _holders(cfg, set()):
        pairs = [
            (k, _replaced(v, facts[str(key_of(k))], replace) if key_of(k) in facts else v)
            for k, v in holder.pairs
        ]
        if any(new is not old for (_, new), (_, old) in zip(pairs, holder.pairs, strict=True)):
            replace[id(holder)] = Dict(pairs)
    return replace


def _replaced(old: Value, value: object, replace: dict[int, Value]) -> Value:
    """The new value; in an omegaconf node the value inside it is replaced instead."""
    if type(old) is Call:
        for what, values in old.steps or ():
            state = values[0] if what == "build" else None
            if type(state) is Dict and any(key_of(k) == "_val" for k, _ in state.pairs):
                replace[id(state)] = Dict(
                    [(k, node_of(value) if key_of(k) == "_val" else v) for k, v in state.pairs]
                )
        return old
    return node_of(value)


def _holders(node: Value, seen: set[int]) -> Iterator[Dict]:
    """Every dict in the configuration: at any depth, in Namespaces and DictConfigs, too."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if type(node) is Dict:
        yield node
    for what, values in (node.steps or ()) if type(node) is Call else ():
        if what == "build":
            yield from _holders(values[0], seen)
    for _, value in mapping_pairs(node) or ():
        yield from _holders(value, seen)
