"""Walks a pickle stream: its opcodes are followed on abstract nodes, nothing is imported or called.

In: bytes. Out: a Walk, with the node that a loader would return, every place where a string is
pushed (so that the stream can be edited there), and every global that it names.

The loop handles the common opcodes itself, as a checkpoint of 10^5 tensors has 4 million of them;
the rest is in ``opcodes``. What no pickler writes, or what loaders read differently, is refused.
"""

from __future__ import annotations

import gc
import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from remap.pickles.machine import Machine, Stream
from remap.pickles.nodes import Call, Dict, Global, List, Persistent, Text, Value, is_hashable
from remap.pickles.opcodes import RARE

MAX_OPS = 200_000_000
"""More opcodes than the largest real pickle has by two orders: 2 million keys need 80 million."""

_U2, _U4, _I4 = (struct.Struct(f).unpack_from for f in ("<H", "<I", "<i"))


@dataclass(frozen=True, eq=False)
class Walk:
    """A walked stream.

    root      what a loader would return
    end       the byte after STOP
    protocol  as the stream says; 0 where it says nothing
    frames    (offset of the FRAME opcode, first byte inside, end), in order
    sites     every push of a string, in order
    slots     id of a string's site -> the memo slot that keeps it
    free      the first memo slot that is never written
    globals   (module, name) of every global named, in order
    called    those of them that the stream calls as functions; ``getattr`` of a class and a name is
              how protocols below 4 name a nested class, and counts as that name
    """

    root: Value
    end: int
    protocol: int
    frames: tuple[tuple[int, int, int], ...]
    sites: list[Text]
    slots: dict[int, int]
    free: int
    globals: tuple[tuple[str, str], ...]
    called: frozenset[tuple[str, str]]


def walk(data: Stream, start: int = 0, *, where: str) -> Walk:
    """Follow the pickle at ``data[start:]`` to its STOP.

    ``where`` names file and record in messages. Raises Damaged where the stream breaks off or
    contradicts itself, Hostile for what no pickler writes.
    """
    machine = Machine(data, start, len(data), where)
    try:
        with no_gc():
            root = _run(machine)
    except (IndexError, struct.error):
        machine.op_start = min(machine.op_start, len(data))
        raise machine.damaged("an opcode lacks its operands") from None
    except KeyError as slot:
        raise machine.damaged(f"memo slot {slot} is read before it is written") from None
    except UnicodeDecodeError as e:
        raise machine.damaged(f"a string is not text: {e}") from None
    except ValueError as e:
        raise machine.damaged(f"an argument can't be read: {e}") from None
    return Walk(
        root,
        machine.pos,
        machine.protocol,
        tuple(machine.frames),
        machine.sites,
        {id(node): slot for slot, node in machine.memo.items() if type(node) is Text},
        next(slot for slot in itertools.count() if slot not in machine.memo),
        tuple(machine.globals),
        frozenset(machine.called),
    )


@contextmanager
def no_gc() -> Iterator[None]:
    """Without the garbage collector, which would look at millions of live nodes again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _run(m: Machine) -> Value:
    """Follow opcodes until STOP; the hot loop. ``m.op_start`` is where a fault is reported."""
    data, stop, memo, marks, sites = m.data, m.stop, m.memo, m.marks, m.sites
    stack = m.stack
    pos = m.pos
    frame_end = -1
    count = 0
    while True:
        start = pos
        if start >= stop:
            m.op_start = start
            raise m.damaged("the pickle ends before its STOP")
        op = data[start]
        pos += 1
        count += 1
        if op == 0x71:  # BINPUT
            memo[data[pos]] = stack[-1]
            pos += 1
        elif op == 0x72:  # LONG_BINPUT
            slot = _U4(data, pos)[0]
            if slot > stop:
                m.op_start = start
                raise m.hostile(f"memo slot {slot} in {stop} bytes: loaders reserve memory for as many")
            memo[slot] = stack[-1]
            pos += 4
        elif op == 0x68 or op == 0x6A:  # BINGET, LONG_BINGET
            if op == 0x68:
                value = memo[data[pos]]
                pos += 1
            else:
                value = memo[_U4(data, pos)[0]]
                pos += 4
            if type(value) is Text:
                value = Text(value.text, start, pos, value, op)
                sites.append(value)
            stack.append(value)
        elif op == 0x4B:  # BININT1
            stack.append(data[pos])
            pos += 1
        elif op == 0x58 or op == 0x8C:  # BINUNICODE, SHORT_BINUNICODE
            if op == 0x58:
                first = pos + 4
                pos = first + _U4(data, pos)[0]
            else:
                first = pos + 1
                pos = first + data[pos]
            if pos > stop:
                m.op_start = start
                raise m.damaged("the pickle ends inside a string")
            text = Text(str(data[first:pos], "utf-8", "surrogatepass"), start, pos, None, op)
            sites.append(text)
            stack.append(text)
        elif op == 0x28:  # MARK
            marks.append(stack)
            stack = []
        elif op == 0x74:  # TUPLE
            group = tuple(stack)
            stack = marks.pop()
            stack.append(group)
        elif op == 0x85:  # TUPLE1
            stack[-1] = (stack[-1],)
        elif op == 0x86:  # TUPLE2
            last = stack.pop()
            stack[-1] = (stack[-1], last)
        elif op == 0x87:  # TUPLE3
            last, middle = stack.pop(), stack.pop()
            stack[-1] = (stack[-1], middle, last)
        elif op == 0x52:  # REDUCE
            args = stack.pop()
            function = stack[-1]
            if type(function) is Global:
                m.note_call(function, args)
            elif type(function) is not Call:
                m.op_start = start
                raise m.hostile("a call of something that is not a function")
            if not isinstance(args, tuple):
                m.op_start = start
                raise m.hostile("a call whose arguments are not a tuple")
            stack[-1] = Call("reduce", function, args)
        elif op == 0x51:  # BINPERSID
            stack[-1] = Persistent(stack[-1])
        elif op == 0x4D:  # BININT2
            stack.append(_U2(data, pos)[0])
            pos += 2
        elif op == 0x4A:  # BININT
            stack.append(_I4(data, pos)[0])
            pos += 4
        elif op == 0x89:  # NEWFALSE
            stack.append(False)
        elif op == 0x88:  # NEWTRUE
            stack.append(True)
        elif op == 0x4E:  # NONE
            stack.append(None)
        elif op == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op == 0x7D:  # EMPTY_DICT
            stack.append(Dict())
        elif op == 0x5D:  # EMPTY_LIST
            stack.append(List())
        elif op == 0x75 or op == 0x73:  # SETITEMS, SETITEM
            if op == 0x75:
                items = stack
                stack = marks.pop()
            else:
                items = stack[-2:]
                if len(items) != 2:
                    raise IndexError
                del stack[-2:]
            m.op_start = start
            _set_items(m, stack[-1], items)
        elif op == 0x65 or op == 0x61:  # APPENDS, APPEND
            if op == 0x65:
                items = stack
                stack = marks.pop()
            else:
                items = [stack.pop()]
            m.op_start = start
            _append(m, stack[-1], items)
        elif op == 0x62:  # BUILD
            state = stack.pop()
            m.op_start = start
            _step(m, stack[-1], "build", [state])
        elif op == 0x2E:  # STOP
            m.op_start, m.pos = start, pos
            return _finish(m, stack, frame_end)
        else:
            handler = RARE.get(op)
            m.op_start, m.pos, m.stack = start, pos, stack
            if handler is None:
                raise m.damaged(f"byte {op:#04x} is not an opcode")
            handler(m)
            pos, stack = m.pos, m.stack
            if op == 0x95:  # FRAME
                frame_end = m.frames[-1][2]
                continue
        if start < frame_end < pos:
            m.op_start = start
            raise m.hostile("an opcode crosses the end of its FRAME")
        if count > MAX_OPS:
            m.op_start = start
            raise m.hostile(f"more than {MAX_OPS} opcodes")


def _set_items(m: Machine, target: Value, items: list[Value]) -> None:
    """SETITEMS. The keys are nearly always strings: they are checked without a call each."""
    if len(items) & 1:
        raise m.damaged("a dict key has no value")
    for key in items[::2]:
        if type(key) is not Text and not is_hashable(key):
            raise m.hostile("a dict key that can't be one")
    if type(target) is Dict:
        target.pairs.extend(zip(items[::2], items[1::2], strict=True))
    else:
        _step(m, target, "set", items)


def _append(m: Machine, target: Value, items: list[Value]) -> None:
    if type(target) is List:
        target.items.extend(items)
    else:
        _step(m, target, "append", items)


def _step(m: Machine, target: Value, what: str, items: list[Value]) -> None:
    """Remember what is done to the result of a call."""
    if type(target) is not Call:
        raise m.hostile(f"{what.upper()} is applied to {_kind(target)}")
    if target.steps is None:
        target.steps = []
    if what == "build":
        target.steps.append(("build", items))
    elif what == "set":
        target.steps.append(("set", items))
    else:
        target.steps.append(("append", items))


def _kind(value: Value) -> str:
    return f"a {type(value).__name__.lower()}"


def _finish(m: Machine, stack: list[Value], frame_end: int) -> Value:
    if m.marks:
        raise m.damaged("a MARK is left open at STOP")
    if len(stack) != 1:
        raise m.damaged(f"{len(stack)} values are left at STOP, there should be one")
    if m.pos < frame_end:
        raise m.hostile("STOP before the FRAME ends")
    return stack[0]
