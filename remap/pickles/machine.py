"""The state of a walk: stack, marks, memo, position; and the faults that it can find.

``walk`` keeps the hot part of it in local variables and hands the machine to the rarer opcodes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

from remap.errors import Damaged, Hostile
from remap.pickles.nodes import Global, Text, Value, is_hashable, nested_class

Stream = bytes | mmap.mmap
"""A pickle, or a file that it lies in."""

TRUNCATED = "fetch the file again; it is cut short or altered"
MISTRUST = "do not load this file; ask its author for safetensors"


class Machine:
    """The pickle machine over abstract nodes.

    data, pos, stop  the stream, the byte that is read next, where the stream must end at the latest
    where            file and record, for messages
    stack, marks     the stack above the last MARK, and the stacks below it
    memo             slot -> node
    frames           (offset of the FRAME opcode, first byte inside, end)
    sites            every push of a string, in stream order
    globals          every global named, and those that the stream calls as functions
    """

    __slots__ = (
        "called",
        "data",
        "frames",
        "globals",
        "marks",
        "memo",
        "op_start",
        "pos",
        "protocol",
        "sites",
        "stack",
        "start",
        "stop",
        "where",
    )

    def __init__(self, data: Stream, start: int, stop: int, where: str):
        self.data = data
        self.start = self.pos = self.op_start = start
        self.stop = stop
        self.where = where
        self.stack: list[Value] = []
        self.marks: list[list[Value]] = []
        self.memo: dict[int, Value] = {}
        self.frames: list[tuple[int, int, int]] = []
        self.sites: list[Text] = []
        self.globals: dict[tuple[str, str], None] = {}
        self.called: set[tuple[str, str]] = set()
        self.protocol = 0

    def damaged(self, what: str) -> Damaged:
        return Damaged(f"{what} (byte {self.op_start} of the pickle)", where=self.where, remedy=TRUNCATED)

    def hostile(self, what: str) -> Hostile:
        return Hostile(f"{what} (byte {self.op_start} of the pickle)", where=self.where, remedy=MISTRUST)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self.pos + count
        if count < 0:
            raise self.hostile(f"a negative length, {count}")
        if end > self.stop:
            raise self.damaged(f"the pickle ends inside an argument of {count} bytes")
        found = self.data[self.pos : end]
        self.pos = end
        return found

    def number(self, form: struct.Struct) -> int:
        """The next integer, in ``form``."""
        return int(form.unpack(self.take(form.size))[0])

    def line(self) -> bytes:
        """The next line, without its newline."""
        end = self.data.find(b"\n", self.pos, self.stop)
        if end < 0:
            raise self.damaged("the pickle ends inside a text argument")
        found = self.data[self.pos : end]
        self.pos = end + 1
        return found

    def pop_mark(self) -> list[Value]:
        """Everything above the last MARK, which is removed."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def push_text(self, text: str, op: int) -> None:
        """Push a string literal whose opcode ends at ``pos``."""
        site = Text(text, self.op_start, self.pos, None, op)
        self.sites.append(site)
        self.stack.append(site)

    def push_memo(self, slot: int) -> None:
        """Push what a memo slot holds."""
        value = self.memo[slot]
        if isinstance(value, Text):
            value = Text(value.text, self.op_start, self.pos, value, self.data[self.op_start])
            self.sites.append(value)
        self.stack.append(value)

    def name_global(self, module: str, name: str) -> Global:
        """A global as the stream names it."""
        for part in (module, name):
            if not part or not part.isprintable():
                raise self.hostile(f"a global is called {part!r}")
        self.globals[module, name] = None
        return Global(module, name)

    def note_call(self, function: Global, args: Value) -> None:
        """``function`` is called: noted, or for ``getattr`` of a class the nested class that it names."""
        nested = nested_class(function, args) if function.name == "getattr" else None
        if nested is None:
            self.called.add((function.module, function.name))
        else:
            self.globals[nested] = None

    def check_keys(self, items: list[Value]) -> None:
        """``items`` are key, value, key, value, ... with keys that a dict can have."""
        if len(items) & 1:
            raise self.damaged("a dict key has no value")
        for key in items[::2]:
            if type(key) is not Text and not is_hashable(key):
                raise self.hostile("a dict key that can't be one")


Handler = Callable[[Machine], None]
