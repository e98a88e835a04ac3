"""Edits keys in a pickle stream at the places where they are pushed; every other byte stays.

Strings are not searched for: a pickle memoises them, and CPython shares short ones, so that the key
``"0"`` may be the very memo slot that a storage key uses. A slot holds what its literal emits after
editing; a reference to it becomes a literal of its own where that is no longer the wanted text,
and back where it is. Memo numbers never move. FRAME lengths are computed anew.

Renaming and renaming back gives the same bytes. A pickler memoises every string that it writes, so
a literal without a memo slot is a reference that an earlier edit had to spell out; it becomes a
reference again once a slot holds its text. Where several slots hold it, the literal is put into a
slot past all others, whose number says which one was meant (protocols below 4, which number their
slots themselves).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping

from remap.pickles.nodes import Text
from remap.pickles.text import PYTHON2, encode_text
from remap.pickles.walk import Walk

LONG_BINPUT = 0x72
Edit = tuple[int, int, bytes]
"""(start, stop, replacement)."""


def rename_stream(stream: bytes, walked: Walk, wanted: Mapping[int, str]) -> bytes:
    """``stream`` with other strings at some sites.

    wanted  id of a Text in ``walked.sites`` -> the string that is pushed there instead
    """
    edits = _edits(stream, walked, wanted)
    edits += _frames(walked, edits)
    out: list[bytes | memoryview] = []
    view = memoryview(stream)
    pos = 0
    for start, stop, new in sorted(edits):
        assert start >= pos
        out += [view[pos:start], new]
        pos = stop
    out.append(view[pos:])
    return b"".join(out)


def _edits(stream: bytes, walked: Walk, wanted: Mapping[int, str]) -> list[Edit]:
    """One edit for each site that would push the wrong string, or spells out what a slot holds."""
    holds: dict[int, str] = {}
    edits: list[Edit] = []
    references = _references(stream, walked, wanted)
    first: dict[Kind, int] = {}
    marks = Counter(s % (walked.free + 1) for s in walked.slots.values() if s > walked.free)
    for site in walked.sites:
        slot = walked.slots.get(id(site))
        if site.source is None and slot is not None:
            first.setdefault(_kind(site, site.text), slot)
        if id(site) in references:
            edits.append(references[id(site)])
            continue
        text = wanted.get(id(site), site.text)
        held = site.text if site.source is None else holds.get(id(site.source), site.source.text)
        if text != held:
            new = encode_text(text, _literal_op(site)) + _mark(site, walked, first, marks, len(stream))
            edits.append((site.start, site.stop, new))
        if text != site.text:
            holds[id(site)] = text
    return edits


Kind = tuple[str, bool]
"""A string, and whether it is one of Python 2."""


def _kind(site: Text, text: str) -> Kind:
    return text, _literal_op(site) in PYTHON2


def _mark(site: Text, walked: Walk, first: Mapping[Kind, int], marks: Counter[int], limit: int) -> bytes:
    """For a reference that is spelled out: the opcode that notes its slot, where that is needed.

    A mark is slot ``free + 1 + slot``, and ``free + 1`` further for each other mark of that slot.
    """
    if site.source is None or walked.protocol >= 4:
        return b""
    slot = walked.slots.get(id(site.source))
    if slot is None or first.get(_kind(site, site.text)) == slot:
        return b""
    mark = (walked.free + 1) * (1 + marks[slot]) + slot
    marks[slot] += 1
    return bytes([LONG_BINPUT]) + struct.pack("<I", mark) if mark < limit else b""


def _references(stream: bytes, walked: Walk, wanted: Mapping[int, str]) -> dict[int, Edit]:
    """Site of a literal that was a reference -> the edit that makes it one again.

    Literals without a slot are left alone unless there is a reference for every one: else the
    stream has been through a tool that removes unused slots, and its literals are its own.
    """
    first: dict[Kind, bytes] = {}
    held: dict[int, Kind] = {}
    bare: dict[int, Edit] = {}
    marked: dict[int, Edit] = {}
    complete = True
    read = {id(site.source) for site in walked.sites}
    for site in walked.sites:
        kind = _kind(site, wanted.get(id(site), site.text))
        slot = walked.slots.get(id(site))
        if slot is not None and slot > walked.free and stream[site.stop] == LONG_BINPUT:
            meant = slot % (walked.free + 1)
            if held.get(meant) == kind and id(site) not in read:
                marked[id(site)] = (site.start, site.stop + 5, _get(meant, stream[site.stop]))
        elif slot is not None:
            held[slot] = kind
            if site.source is None:
                first.setdefault(kind, _get(slot, stream[site.stop]))
        elif site.source is None:
            complete = complete and kind in first
            bare[id(site)] = (site.start, site.stop, first.get(kind, b""))
    return {**marked, **bare} if complete else marked


def _get(slot: int, put: int) -> bytes:
    """The opcode that reads a slot, in the style of the opcode that wrote it."""
    if put == 0x70:
        return b"g%d\n" % slot
    return b"h" + bytes([slot]) if slot < 256 else b"j" + struct.pack("<I", slot)


def _literal_op(site: Text) -> int:
    """The opcode of the literal that a site pushes or refers to."""
    while site.source is not None:
        site = site.source
    return site.op


def _frames(walked: Walk, edits: list[Edit]) -> list[Edit]:
    """FRAME lengths after the edits. An edit lies in one frame, as no opcode crosses its end."""
    firsts = [first for _, first, _ in walked.frames]
    grown: dict[int, int] = {}
    for start, stop, new in edits:
        i = bisect_right(firsts, start) - 1
        if i >= 0 and start < walked.frames[i][2]:
            grown[i] = grown.get(i, 0) + len(new) - (stop - start)
    out: list[Edit] = []
    for i, more in grown.items():
        opcode, first, end = walked.frames[i]
        out.append((opcode + 1, opcode + 9, struct.pack("<Q", end - first + more)))
    return out
