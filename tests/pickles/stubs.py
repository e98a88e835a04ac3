"""CPython's own unpickler as the judge: every global becomes a stub, so that nothing runs.

``load`` gives the graph that CPython builds, ``describe`` and ``describe_nodes`` give one comparable
form of that graph and of remap's.
"""

from __future__ import annotations

import io
import pickle
import struct

from remap.pickles.nodes import ByteString, Call, Dict, Global, List, Persistent, Set, Text


class Uncomparable(Exception):
    """The graph has a circle, or holds what has no order."""


class Pid:
    def __init__(self, pid):
        self.pid = pid


class _Meta(type):
    def __call__(cls, *args):
        made = object.__new__(cls)
        made.args, made.steps = args, []
        return made


def _stub(module: str, name: str) -> type:
    def new(cls, *args, **kwargs):
        made = object.__new__(cls)
        made.args, made.steps = (args, kwargs) if kwargs else args, []
        return made

    methods = {
        "__new__": new,
        "__setstate__": lambda self, state: self.steps.append(("build", state)),
        "__setitem__": lambda self, k, v: self.steps.append(("set", k, v)),
        "append": lambda self, v: self.steps.append(("append", v)),
        "extend": lambda self, vs: self.steps.extend(("append", v) for v in vs),
        "path": (module, name),
    }
    return _Meta("Stub", (), methods)


class Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data))
        self.stubs = {}

    def find_class(self, module, name):
        return self.stubs.setdefault((module, name), _stub(module, name))

    def persistent_load(self, pid):
        return Pid(pid)


def load(data: bytes):
    """What CPython builds from a pickle, without importing or calling anything."""
    return Unpickler(data).load()


def _enter(value, above):
    if id(value) in above or len(above) > 100:
        raise Uncomparable
    return (*above, id(value))


def describe(value, above=()):
    """A comparable form of what ``load`` gave."""
    if isinstance(value, type):
        return ("global", *value.path)
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return (type(value).__name__, value)
    if isinstance(value, bytearray):
        return ("bytearray", bytes(value))
    above = _enter(value, above)
    if isinstance(value, Pid):
        return ("pid", describe(value.pid, above))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(describe(v, above) for v in value))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted({repr(_hashed(describe(v, above))) for v in value}))
    if isinstance(value, dict):
        return ("dict", *((describe(k, above), describe(v, above)) for k, v in value.items()))
    steps = tuple((what, *(describe(v, above) for v in values)) for what, *values in value.steps)
    args = describe(value.args, above)
    return ("call", ("global", *type(value).path), args, steps)


def describe_nodes(value, above=()):
    """The same form of a graph of nodes."""
    if isinstance(value, Text):
        return ("str", value.text)
    if isinstance(value, Global):
        return ("global", value.module, value.name)
    if isinstance(value, (int, float, bytes, bytearray)) or value is None:
        return describe(value)
    if isinstance(value, ByteString):
        raise Uncomparable
    above = _enter(value, above)
    if isinstance(value, tuple):
        return ("tuple", *(describe_nodes(v, above) for v in value))
    if isinstance(value, List):
        return ("list", *(describe_nodes(v, above) for v in value.items))
    if isinstance(value, Set):
        return ("set", *sorted({repr(_hashed(describe_nodes(v, above))) for v in value.items}))
    if isinstance(value, Persistent):
        return ("pid", describe_nodes(value.id, above))
    if isinstance(value, Dict):
        return ("dict", *_last_wins(value.pairs, above))
    assert isinstance(value, Call)
    steps = []
    for what, values in value.steps or ():
        if what == "set":
            steps += [
                ("set", describe_nodes(k, above), describe_nodes(v, above))
                for k, v in zip(values[::2], values[1::2], strict=True)
            ]
        else:
            steps += [(what, describe_nodes(v, above)) for v in values]
    args = value.args
    if value.how == "newobj_ex" and not args[1].pairs:
        args = args[0]
    return ("call", describe_nodes(value.function, above), describe_nodes(args, above), tuple(steps))


def _hashed(described):
    """Equal numbers are one set item, objects are as many as there are: only plain texts compare."""
    if described[0] not in ("str", "bytes", "NoneType", "int"):
        raise Uncomparable
    return described


def _last_wins(pairs, above):
    """Pairs as a dict keeps them. Keys that are equal across types can't be told apart here."""
    kept = {}
    for key, value in pairs:
        if not isinstance(key, (Text, bytes)) and key is not None and type(key) is not int:
            raise Uncomparable
        kept[describe_nodes(key, above)] = describe_nodes(value, above)
    return kept.items()
