"""Edits keys in a pickle stream at the places where they are pushed; every other byte stays.

Strings are not searched for: a pickle memoises them, and CPython shares short ones, so that the key
``"0"`` may be the very memo slot that a storage key uses. A slot holds what its literal emits after
editing; a reference to it becomes a literal of its own where that is no longer the wanted text,
and back where it is. Memo numbers never move. FRAME lengths are computed anew.

Renaming and renaming back gives the same bytes. A pickler memoises every string that it writes, so
a literal without a memo slot is a reference that an earlier edit had to spell out; it becomes a
reference again once a slot holds its text.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping

from remap.pickles.nodes import Text
from remap.pickles.text import PYTHON2, encode_text
from remap.pickles.walk import Walk

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
    for site in walked.sites:
        if id(site) in references:
            edits.append((site.start, site.stop, references[id(site)]))
            continue
        text = wanted.get(id(site), site.text)
        held = site.text if site.source is None else holds.get(id(site.source), site.source.text)
        if text != held:
            edits.append((site.start, site.stop, encode_text(text, _literal_op(site))))
        if text != site.text:
            holds[id(site)] = text
    return edits


def _references(stream: bytes, walked: Walk, wanted: Mapping[int, str]) -> dict[int, bytes]:
    """Site of a literal without a slot -> the reference that stands for it.

    {} unless there is one for every such literal: then the stream has been through a tool that
    removes unused slots, and its literals are its own.
    """
    first: dict[tuple[str, bool], bytes] = {}
    references: dict[int, bytes] = {}
    for site in walked.sites:
        if site.source is not None:
            continue
        text = (wanted.get(id(site), site.text), site.op in PYTHON2)
        slot = walked.slots.get(id(site))
        if slot is not None:
            first.setdefault(text, _get(slot, stream[site.stop]))
        elif text in first:
            references[id(site)] = first[text]
        else:
            return {}
    return references


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
