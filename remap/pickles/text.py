"""Strings as pickle opcodes, written in the form in which a stream had them."""

from __future__ import annotations

import struct

from remap.errors import UsageError

PYTHON2 = (0x53, 0x54, 0x55)
"""STRING, BINSTRING, SHORT_BINSTRING: ``str`` of Python 2, bytes to a Python 3 loader that asks."""


def encode_text(text: str, op: int) -> bytes:
    """The opcode that pushes ``text``, of the same kind as ``op`` (the opcode of a literal).

    Raises UsageError where a Python 2 string can't hold it.
    """
    if op in PYTHON2:
        return _encode_python2(text, op)
    if op == 0x56:  # UNICODE
        escaped = "".join(f"\\u{ord(c):04x}" if c in "\\\0\n\r\x1a" else c for c in text)
        return b"V" + escaped.encode("raw-unicode-escape") + b"\n"
    raw = text.encode("utf-8", "surrogatepass")
    if op == 0x8C and len(raw) < 256:
        return b"\x8c" + bytes([len(raw)]) + raw
    if op == 0x8D:
        return b"\x8d" + struct.pack("<Q", len(raw)) + raw
    return b"X" + struct.pack("<I", len(raw)) + raw


def _encode_python2(text: str, op: int) -> bytes:
    if not text.isascii():
        raise UsageError(
            f"{text!r} can't be a key of a file that Python 2 wrote, which has ASCII keys",
            remedy="load and save the file again with Python 3, or choose an ASCII name",
        )
    raw = text.encode()
    if op == 0x53:
        return b"S" + repr(text).encode() + b"\n"
    return (b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))) + raw
