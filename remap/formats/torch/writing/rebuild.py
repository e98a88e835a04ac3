"""Writes a torch file anew with another state dict in it, everything else carried along.

For what is more than a rename: dropped, added and computed tensors, and legacy files, which become
zips. The graph of the pickle is emitted again, the state dict replaced; storages that the rest
still names are copied, those that only dropped tensors used go away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from remap.errors import UsageError
from remap.expr import Expr, Take
from remap.formats.base import CopiedBytes, OutFile
from remap.formats.torch.state import Contents, TorchFile
from remap.formats.torch.writing.emit import PREFIX, VERSION, check_names, new_tensors, skeleton
from remap.formats.torch.writing.layout import NewRecord, lay_out_zip
from remap.formats.torch.writing.names import names_elsewhere
from remap.pickles.build import node_of
from remap.pickles.emit import NewTensor, Writer
from remap.pickles.graph import mapping_pairs
from remap.pickles.nodes import Call, Dict, Global, Text, Value
from remap.pickles.walk import no_gc

_WRITTEN = {"data.pkl", ".format_version", ".storage_alignment", "byteorder", "version"}
_STALE = {".data/serialization_id"}
"""Names this very content, and it is another now; torch writes it for its own statistics."""


@no_gc()
def rebuild(file: TorchFile, name: str, tensors: Mapping[str, Expr]) -> OutFile:
    """The file ``name``: ``file`` with ``tensors`` for its state dict, in that order.

    Raises UsageError where a tensor takes the key of something else in the state dict, and for
    big-endian files.
    """
    contents = file.contents
    if not contents.little:
        raise UsageError("a big-endian file can only be renamed", where=file.path)
    check_names(tensors)
    nodes, records = new_tensors(tensors, taken=contents.storages)
    moved = {e.entry.key: key for key, e in tensors.items() if isinstance(e, Take)}
    changed: dict[int, Value] = {site: Text(text) for site, text in names_elsewhere(contents, moved).items()}
    changed[id(contents.node)] = _state_dict(file, nodes)
    return reassemble(contents, name, changed, records)


def reassemble(
    contents: Contents, name: str, changed: Mapping[int, Value], records: Iterable[NewRecord]
) -> OutFile:
    """The file ``name``: the pickle of ``contents`` with other nodes in it, and the storages that it names.

    changed  id of a node -> the node that takes its place
    records  the storages of new tensors (``emit.new_tensors``)
    """
    writer = Writer(changed, contents.walked.protocol)
    stream = writer.write(contents.walked.root)
    kept = [
        NewRecord.copied(f"data/{key}", CopiedBytes(contents.path, s.offset, s.nbytes, s.crc32))
        for key, s in ((k, contents.storages[k]) for k in writer.storages if k in contents.storages)
    ]
    prefix = PREFIX if contents.archive is None else contents.archive.prefix
    out = lay_out_zip(name, prefix, [*skeleton(stream), *records, *kept, *_others(contents), VERSION])
    return replace(out, carries=True)


def _state_dict(file: TorchFile, nodes: Mapping[str, NewTensor]) -> Value:
    """The container of the state dict with other tensors: dict or OrderedDict, attributes kept."""
    old = file.contents.node
    pairs: list[tuple[Value, Value]] = [(Text(key), node) for key, node in nodes.items()]
    for key, value in mapping_pairs(old) or ():
        if type(key) is Text and key.text in file.entries:
            continue
        if type(key) is Text and key.text in nodes:
            raise UsageError(f"{key.text!r} is the key of a tensor and of something else", where=file.path)
        pairs.append((key, value))
    return container(old, pairs)


def container(old: Value, pairs: Sequence[tuple[Value, Value]]) -> Value:
    """A dict, or an OrderedDict with its attributes, as ``old`` is, with other pairs."""
    if not isinstance(old, Call):
        return Dict(list(pairs))
    items = [part for pair in pairs for part in pair]
    states = [step for step in old.steps or () if step[0] == "build"]
    return Call("reduce", Global("collections", "OrderedDict"), (), [("set", items), *states])


def edited(contents: Contents, values: Mapping[tuple[str, ...], Value]) -> dict[int, Value]:
    """What ``reassemble`` changes so that ``values`` lie at their places (keys from the root on).

    The last key of a place may be new; plain values and nodes alike.
    """
    changed: dict[int, Value] = {}
    _edit(contents.walked.root, values, changed)
    return changed


def _edit(old: Value, values: Mapping[tuple[str, ...], Value], changed: dict[int, Value]) -> None:
    inner: dict[str, dict[tuple[str, ...], Value]] = {}
    for place, value in values.items():
        inner.setdefault(place[0], {})[place[1:]] = value
    pairs: list[tuple[Value, Value]] = []
    for key, value in mapping_pairs(old) or ():
        deeper = inner.pop(key.text, None) if type(key) is Text else None
        if deeper is not None and () in deeper:
            value = node_of(deeper[()])
        elif deeper is not None:
            _edit(value, deeper, changed)
        pairs.append((key, value))
    pairs += [(Text(k), node_of(v[()])) for k, v in inner.items() if () in v]
    changed[id(old)] = container(old, pairs)


def _others(contents: Contents) -> list[NewRecord]:
    """Records that are neither storages nor torch's own."""
    if contents.archive is None:
        return []
    path = contents.archive.path
    return [
        NewRecord.copied(r.name, CopiedBytes(path, r.offset, r.nbytes, r.crc32))
        for r in contents.archive.records.values()
        if not r.name.startswith("data/") and r.name not in _WRITTEN | _STALE
    ]
