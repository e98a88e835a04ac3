"""The nodes of a walked pickle: what the stream would build, described instead of built.

Plain values stand for themselves: ``None``, ``bool``, ``int``, ``float``, ``bytes``, ``bytearray``
and ``tuple``. Everything else is one of the classes below. Nodes are compared by identity, as a
pickle's memo shares objects.
"""

from __future__ import annotations

from typing import Final, Literal

Value = object
"""Any node or plain value."""

Pairs = list[tuple[Value, Value]]
How = Literal["reduce", "newobj", "newobj_ex", "obj", "inst"]


class Text:
    """A string, at the place in the stream that pushed it.

    start, stop  byte range of the opcode with its argument
    source       for a memo reference, the Text whose emission fills the slot; None for a literal
    op           the opcode
    """

    __slots__ = ("op", "source", "start", "stop", "text")

    def __init__(
        self, text: str, start: int = -1, stop: int = -1, source: Text | None = None, op: int = 0x58
    ):
        self.text: Final = text
        self.start = start
        self.stop = stop
        self.source = source
        self.op = op

    def __repr__(self) -> str:
        return f"Text({self.text!r})"


class ByteString:
    """A Python 2 ``str`` that is not ASCII: its bytes."""

    __slots__ = ("data",)

    def __init__(self, data: bytes):
        self.data: Final = data


class Global:
    """A class or function that a loader would import."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str):
        self.module: Final = module
        self.name: Final = name

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        return f"Global({self.path})"


class Dict:
    """A dict: its pairs in the order in which they are set."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Pairs | None = None):
        self.pairs: Pairs = [] if pairs is None else pairs


class List:
    """A list."""

    __slots__ = ("items",)

    def __init__(self, items: list[Value] | None = None):
        self.items: list[Value] = [] if items is None else items


class Set:
    """A set or frozenset, items as the stream lists them."""

    __slots__ = ("frozen", "items")

    def __init__(self, items: list[Value] | None = None, frozen: bool = False):
        self.items: list[Value] = [] if items is None else items
        self.frozen: Final = frozen


Step = tuple[Literal["append", "set", "build"], list[Value]]


class Call:
    """What a call of a class or function would give: never called.

    how       the opcode family that makes it
    function  a Global, or a Call that returns something callable
    args      its arguments; for ``newobj_ex`` the tuple ``(args, kwargs)``
    steps     what is done to the result afterwards, in order: ``append`` (items), ``set`` (key,
              value, key, value, ...) and ``build`` (one state)
    """

    __slots__ = ("args", "function", "how", "steps")

    def __init__(self, how: How, function: Value, args: tuple[Value, ...], steps: list[Step] | None = None):
        self.how: Final = how
        self.function: Final = function
        self.args: Final = args
        self.steps = steps

    def is_a(self, module: str, name: str) -> bool:
        """True where the called thing is exactly that global."""
        f = self.function
        return isinstance(f, Global) and f.name == name and f.module == module

    @property
    def name(self) -> str:
        """Dotted name of what is called, for messages."""
        if isinstance(self.function, Global):
            return self.function.path
        f = self.function
        nested = nested_class(f.function, f.args) if type(f) is Call else None
        return ".".join(nested) if nested else "the result of a call"


def nested_class(function: Value, args: Value) -> tuple[str, str] | None:
    """(module, "Outer.Inner") where a call is ``getattr(Outer, "Inner")``, else None.

    It is how pickles below protocol 4 name a nested class: CPython ``pickle.py`` (``save_global``).
    """
    if type(function) is not Global or (function.module, function.name) not in GETATTR:
        return None
    if not isinstance(args, tuple) or len(args) != 2:
        return None
    outer, inner = args
    if type(outer) is not Global or type(inner) is not Text:
        return None
    return outer.module, f"{outer.name}.{inner.text}"


GETATTR = (("__builtin__", "getattr"), ("builtins", "getattr"))


class Persistent:
    """A persistent id: in torch files a reference to a storage."""

    __slots__ = ("id",)

    def __init__(self, id: Value):
        self.id: Final = id


def is_hashable(value: Value) -> bool:
    """True where the value that the node describes could be a dict key."""
    todo = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, tuple):
            todo.extend(v)
        elif isinstance(v, (Dict, List, bytearray)) or (isinstance(v, Set) and not v.frozen):
            return False
    return True
