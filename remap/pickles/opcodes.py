"""The rarer opcodes, one function each; ``walk`` handles the common ones itself.

Opcode numbers and their meaning: CPython ``Lib/pickletools.py``.
"""

from __future__ import annotations

import codecs
import re
import struct

from remap.pickles.machine import Handler, Machine
from remap.pickles.nodes import (
    ByteString,
    Call,
    Dict,
    Global,
    List,
    Persistent,
    Set,
    Text,
    is_hashable,
    nested_class,
)

U1, U4, U8 = (struct.Struct(f) for f in ("<B", "<I", "<Q"))
I4 = struct.Struct("<i")
F8 = struct.Struct(">d")

_DECIMAL = re.compile(rb"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(rb"-?([0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|inf|nan)")
MAX_DIGITS = 4000
"""Longest decimal integer; CPython itself stops at 4300 digits."""


def _float(m: Machine) -> None:
    raw = m.line()
    if not _FLOAT.fullmatch(raw):
        raise m.damaged(f"{raw[:40]!r} is not a float")
    m.stack.append(float(raw))


def _int(m: Machine) -> None:
    raw = m.line()
    if raw in (b"00", b"01"):
        m.stack.append(raw == b"01")
    else:
        m.stack.append(_decimal(m, raw))


def _long(m: Machine) -> None:
    raw = m.line()
    m.stack.append(_decimal(m, raw[:-1] if raw.endswith(b"L") else raw))


def _decimal(m: Machine, raw: bytes) -> int:
    if len(raw) > MAX_DIGITS or not _DECIMAL.fullmatch(raw):
        raise m.damaged(f"{raw[:40]!r} is not a decimal integer of at most {MAX_DIGITS} digits")
    return int(raw)


def _long1(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take(m.number(U1)), "little", signed=True))


def _long4(m: Machine) -> None:
    m.stack.append(int.from_bytes(m.take(m.number(I4)), "little", signed=True))


def _binfloat(m: Machine) -> None:
    m.stack.append(float(F8.unpack(m.take(8))[0]))


def _binunicode8(m: Machine) -> None:
    m.push_text(str(m.take(m.number(U8)), "utf-8", "surrogatepass"), 0x8D)


def _unicode(m: Machine) -> None:
    m.push_text(m.line().decode("raw-unicode-escape"), 0x56)


def _string(m: Machine) -> None:
    raw = m.line()
    if len(raw) < 2 or raw[0] != raw[-1] or raw[0] not in b"'\"":
        raise m.damaged(f"{raw[:40]!r} is not a quoted string")
    unescaped = codecs.escape_decode(raw[1:-1])[0]
    assert isinstance(unescaped, bytes)
    _python2(m, unescaped, 0x53)


def _python2(m: Machine, raw: bytes, op: int) -> None:
    """A Python 2 ``str``: text where it is ASCII, as that alone reads the same in every loader."""
    if raw.isascii():
        m.push_text(raw.decode("ascii"), op)
    else:
        m.stack.append(ByteString(raw))


def _short_binstring(m: Machine) -> None:
    _python2(m, m.take(m.number(U1)), 0x55)


def _binstring(m: Machine) -> None:
    _python2(m, m.take(m.number(I4)), 0x54)


def _short_binbytes(m: Machine) -> None:
    m.stack.append(m.take(m.number(U1)))


def _binbytes(m: Machine) -> None:
    m.stack.append(m.take(m.number(U4)))


def _binbytes8(m: Machine) -> None:
    m.stack.append(m.take(m.number(U8)))


def _bytearray8(m: Machine) -> None:
    m.stack.append(bytearray(m.take(m.number(U8))))


def _proto(m: Machine) -> None:
    m.protocol = m.number(U1)
    if m.protocol > 5:
        raise m.damaged(f"pickle protocol {m.protocol} does not exist")
    if m.op_start != m.start:
        raise m.hostile("PROTO is not the first opcode")


def _frame(m: Machine) -> None:
    size = m.number(U8)
    if m.protocol < 4:
        raise m.hostile("a FRAME in a pickle of a protocol that has none")
    if m.frames and m.op_start < m.frames[-1][2]:
        raise m.hostile("a FRAME inside a FRAME")
    if m.pos + size > m.stop:
        raise m.damaged("a FRAME reaches past the end of the pickle")
    m.frames.append((m.op_start, m.pos, m.pos + size))


def _slot(m: Machine) -> int:
    raw = m.line()
    if not raw.isdigit() or len(raw) > 20:
        raise m.damaged(f"{raw[:40]!r} is not a memo slot")
    return int(raw)


def _put(m: Machine) -> None:
    slot = _slot(m)
    if slot > m.pos:
        raise m.hostile(f"memo slot {slot}: a loader would reserve memory for as many")
    m.memo[slot] = m.stack[-1]


def _get(m: Machine) -> None:
    m.push_memo(_slot(m))


def _pop(m: Machine) -> None:
    m.stack.pop()


def _pop_mark(m: Machine) -> None:
    m.pop_mark()


def _dict(m: Machine) -> None:
    items = m.pop_mark()
    m.check_keys(items)
    m.stack.append(Dict(list(zip(items[::2], items[1::2], strict=True))))


def _list(m: Machine) -> None:
    items = m.pop_mark()
    m.stack.append(List(items))


def _empty_set(m: Machine) -> None:
    m.stack.append(Set())


def _additems(m: Machine) -> None:
    items = m.pop_mark()
    target = m.stack[-1]
    if not isinstance(target, Set) or target.frozen:
        raise m.hostile("items are added to something that is not a set")
    _check_hashable(m, items)
    target.items.extend(items)


def _frozenset(m: Machine) -> None:
    items = m.pop_mark()
    _check_hashable(m, items)
    m.stack.append(Set(items, frozen=True))


def _check_hashable(m: Machine, items: list[object]) -> None:
    if not all(map(is_hashable, items)):
        raise m.hostile("a set holds what a set can't hold")


def _global(m: Machine) -> None:
    module, name = m.line(), m.line()
    m.stack.append(m.name_global(module.decode("utf-8"), name.decode("utf-8")))


def _stack_global(m: Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    if type(name) is not Text or type(module) is not Text:
        raise m.hostile("a global is named by something that is not a string")
    m.stack.append(m.name_global(module.text, name.text))


def _inst(m: Machine) -> None:
    module, name = m.line().decode("ascii"), m.line().decode("ascii")
    args = m.pop_mark()
    m.called.add((module, name))
    m.stack.append(Call("inst", m.name_global(module, name), tuple(args)))


def _obj(m: Machine) -> None:
    items = m.pop_mark()
    function = items[0]
    if type(function) is not Global:
        raise m.hostile("OBJ of something that is not a global")
    m.called.add((function.module, function.name))
    m.stack.append(Call("obj", function, tuple(items[1:])))


def _newobj(m: Machine) -> None:
    args, cls = m.stack.pop(), m.stack.pop()
    nested = type(cls) is Call and nested_class(cls.function, cls.args) is not None
    if not isinstance(args, tuple) or not (nested or type(cls) in (Global, Persistent)):
        raise m.hostile("NEWOBJ of something that is not a class with a tuple of arguments")
    m.stack.append(Call("newobj", cls, args))


def _newobj_ex(m: Machine) -> None:
    kwargs, args, cls = m.stack.pop(), m.stack.pop(), m.stack.pop()
    if not isinstance(args, tuple) or type(cls) is not Global or type(kwargs) is not Dict:
        raise m.hostile("NEWOBJ_EX of something that is not a class with arguments")
    m.stack.append(Call("newobj_ex", cls, (args, kwargs)))


def _extension(m: Machine) -> None:
    raise m.hostile("a copyreg extension code: what it means is not in the file")


def _buffer(m: Machine) -> None:
    raise m.hostile("an out-of-band buffer, which a file can't have")


def _persistent_text(m: Machine) -> None:
    raise m.hostile("a persistent id as text, which no torch can load")


def _dup(m: Machine) -> None:
    raise m.hostile("DUP, which no pickler writes")


RARE: dict[int, Handler] = {
    0x30: _pop,
    0x31: _pop_mark,
    0x32: _dup,
    0x42: _binbytes,
    0x43: _short_binbytes,
    0x46: _float,
    0x47: _binfloat,
    0x49: _int,
    0x4C: _long,
    0x50: _persistent_text,
    0x53: _string,
    0x54: _binstring,
    0x55: _short_binstring,
    0x56: _unicode,
    0x63: _global,
    0x64: _dict,
    0x67: _get,
    0x69: _inst,
    0x6C: _list,
    0x6F: _obj,
    0x70: _put,
    0x80: _proto,
    0x81: _newobj,
    0x82: _extension,
    0x83: _extension,
    0x84: _extension,
    0x8A: _long1,
    0x8B: _long4,
    0x8D: _binunicode8,
    0x8E: _binbytes8,
    0x8F: _empty_set,
    0x90: _additems,
    0x91: _frozenset,
    0x92: _newobj_ex,
    0x93: _stack_global,
    0x95: _frame,
    0x96: _bytearray8,
    0x97: _buffer,
    0x98: _buffer,
}
"""Opcode -> what it does."""
