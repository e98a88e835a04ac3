"""Renames the tensors of a torch file: its pickle is edited, every other record is copied.

In: a TorchFile and old key -> new key. Out: an OutFile with the same records in the same order.
Renaming back gives the same file, byte for byte, where torch wrote it; a zip that another tool
packed comes out in torch's own layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from remap.errors import UsageError
from remap.expr import Take
from remap.formats.base import CopiedBytes, OutFile, TensorBytes
from remap.formats.torch.container import Archive
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import check_names
from remap.formats.torch.writing.layout import ALIGNMENT, NewRecord, lay_out_zip
from remap.formats.torch.writing.names import names_elsewhere
from remap.formats.torch.writing.rebuild import rebuild
from remap.pickles.graph import key_of, mapping_pairs
from remap.pickles.nodes import Text
from remap.pickles.rewrite import rename_stream
from remap.pickles.walk import no_gc
from remap.types import Entry, Location


@no_gc()
def rewrite(file: TorchFile, name: str, renames: Mapping[str, str], drop: Set[str] = frozenset()) -> OutFile:
    """The file ``name``: ``file`` with other keys, everything else in it carried along.

    renames  old key -> new key; keys that are not in it stay
    drop     keys that go away, and their bytes with them

    With ``drop``, and for a legacy file, the pickle is written anew (see ``rebuild``).
    Raises UsageError where two tensors would have one key.
    """
    unknown = [k for k in (*renames, *drop) if k not in file.entries]
    if unknown:
        raise UsageError("there are no such keys", where=file.path, problems=unknown)
    full = {key: renames.get(key, key) for key in file.entries}
    archive = file.contents.archive
    if drop or archive is None:
        kept = {full[k]: Take(e) for k, e in file.entries.items() if k not in drop}
        _check_collisions(file, {k: v for k, v in full.items() if k not in drop})
        return rebuild(file, name, kept)
    _check_collisions(file, full)
    contents = file.contents
    wanted = {
        id(key): full[key.text]
        for key, _ in mapping_pairs(contents.node) or ()
        if type(key) is Text and key.text in full
    }
    wanted.update(names_elsewhere(contents, full))
    stream = rename_stream(contents.stream, contents.walked, wanted)
    whole = _whole_records(file)
    records = [
        NewRecord.of(record.name, stream)
        if record.name == "data.pkl"
        else NewRecord(record.name, TensorBytes(full[entry.key], Take(entry)), record.crc32, record.offset)
        if (entry := whole.get(record.offset)) is not None and record.nbytes == entry.spec.nbytes
        else NewRecord.copied(
            record.name, CopiedBytes(archive.path, record.offset, record.nbytes, record.crc32)
        )
        for record in archive.records.values()
    ]
    return replace(lay_out_zip(name, archive.prefix, records, _alignment(archive)), carries=True)


def _check_collisions(file: TorchFile, full: Mapping[str, str]) -> None:
    check_names(new for old, new in full.items() if new != old)
    taken = dict.fromkeys(map(str, _other_keys(file)), "is not a tensor")
    problems: list[str] = []
    for old, new in full.items():
        if new in taken:
            problems.append(f"{old} -> {new}, which {taken[new]}")
        taken[new] = f"{old} becomes, too"
    if problems:
        raise UsageError("two things would have one key", where=file.path, problems=problems)


def _other_keys(file: TorchFile) -> list[object]:
    """Keys of the state dict whose values are not its entries."""
    keys = [key_of(k) for k, _ in mapping_pairs(file.contents.node) or ()]
    return [k for k in keys if isinstance(k, str) and k not in file.entries]


def _whole_records(file: TorchFile) -> dict[int, Entry]:
    """Offset of the bytes -> the entry that starts there and whose bytes they are, first key first."""
    whole: dict[int, Entry] = {}
    for entry in file.entries.values():
        place = entry.location
        if (
            isinstance(place, Location)
            and place.strides is None
            and place.crc32 is not None
            and entry.spec.nbytes
        ):
            whole.setdefault(place.offset, entry)
    return whole


def _alignment(archive: Archive) -> int:
    """What torch aligned the records to, which the file says since torch 2.6."""
    if ".storage_alignment" not in archive.records:
        return ALIGNMENT
    text = archive.read(".storage_alignment")
    value = int(text) if text.isdigit() and len(text) < 6 else 0
    return value if 0 < value <= 65536 - 512 else ALIGNMENT
