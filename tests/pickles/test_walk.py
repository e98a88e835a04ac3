"""The walker against pickles that CPython wrote, and against streams that nobody should read."""

from __future__ import annotations

import collections
import pickle

import pytest
from pickles.stubs import describe, describe_nodes, load

from remap.errors import Damaged, Hostile, RemapError
from remap.pickles.nodes import Call, Dict, Text
from remap.pickles.walk import walk

VALUES = [
    None,
    True,
    [1, -1, 255, 256, 65536, 2**31, 2**70, -(2**70)],
    [1.5, float("inf"), 0.0],
    {"a": "a", "b": ("a", ["b"])},
    {"nested": {"ü": "\ud800", "": "\0", "long": "x" * 300}},
    (b"bytes", b"", b"y" * 300),
    [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    {1: "int", None: "none"},
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_gives_the_graph_that_cpython_builds(value, protocol):
    data = pickle.dumps(value, protocol)
    walked = walk(data, where="x")
    assert describe_nodes(walked.root) == describe(load(data))
    assert walked.end == len(data)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_gives_sets_and_byte_arrays(protocol):
    data = pickle.dumps([{"a", "b"}, frozenset(["c"]), bytearray(b"d")], protocol)
    assert describe_nodes(walk(data, where="x").root) == describe(load(data))


@pytest.mark.parametrize("protocol", range(6))
def test_describes_objects_and_never_builds_them(protocol):
    value = collections.OrderedDict(a=collections.Counter("aab"))
    walked = walk(pickle.dumps(value, protocol), where="x")
    assert isinstance(walked.root, Call)
    assert walked.root.is_a("collections", "OrderedDict")
    assert ("collections", "Counter") in walked.globals


def test_a_string_knows_its_bytes():
    data = pickle.dumps({"key": "key"}, 2)
    walked = walk(data, where="x")
    assert isinstance(walked.root, Dict)
    ((key, value),) = walked.root.pairs
    assert isinstance(key, Text)
    assert isinstance(value, Text)
    assert data[key.start : key.stop] == b"X\x03\x00\x00\x00key"
    assert value.source is key  # the second is read from the memo


def test_starts_in_the_middle_of_a_file():
    data = b"junk" + pickle.dumps([1, 2], 2) + b"more"
    walked = walk(data, 4, where="x")
    assert data[walked.end :] == b"more"


P4 = b"\x80\x04"
BROKEN = {
    "ends early": b"\x80\x02]q\x00",
    "is empty": b"",
    "string is cut": b"\x80\x02X\x10\x00\x00\x00abc",
    "no such opcode": b"\x80\x02\xff.",
    "empty stack": b"\x80\x02.",
    "append to nothing": b"\x80\x02a.",
    "memo slot never written": b"\x80\x02h\x05.",
    "mark left open": b"\x80\x02(N.",
    "two values left": b"\x80\x02NN.",
    "protocol 6": b"\x80\x06N.",
    "frame past the end": P4 + b"\x95\xff\x00\x00\x00\x00\x00\x00\x00N.",
    "not UTF-8": b"\x80\x02X\x01\x00\x00\x00\xff.",
    "odd number of items": b"\x80\x02}(Nu.",
    "not a number": b"I1x\n.",
    "number of 5000 digits": b"I" + b"1" * 5000 + b"\n.",
}
MISLEADING = {
    "memo bomb": b"\x80\x02Nr\xfe\xff\xff\x7f.",
    "memo bomb as text": b"Np2147483646\n.",
    "negative length": b"\x80\x02\x8b\xfb\xff\xff\xff.",
    "extension code": b"\x80\x02\x82\x01.",
    "out-of-band buffer": b"\x80\x05\x97.",
    "persistent id as text": b"Pabc\n.",
    "DUP": b"\x80\x02N20.",
    "PROTO in the middle": b"\x80\x02N0\x80\x02N.",
    "frame in protocol 2": b"\x80\x02\x95\x01\x00\x00\x00\x00\x00\x00\x00N.",
    "frame in a frame": P4 + b"\x95\x0c\0\0\0\0\0\0\0\x95\x02\0\0\0\0\0\0\0N0N.",
    "opcode crosses a frame": P4 + b"\x95\x03\0\0\0\0\0\0\0X\x02\0\0\0ab.",
    "stop inside a frame": P4 + b"\x95\x03\0\0\0\0\0\0\0N..",
    "items set on a list": b"\x80\x02](X\x01\0\0\0aK\x01u.",
    "list as a dict key": b"\x80\x02}(]Nu.",
    "call of a string": b"\x80\x02X\x01\0\0\0a)R.",
    "arguments that are no tuple": b"\x80\x02cm\nA\nNR.",
    "global named by a number": P4 + b"K\x01K\x02\x93.",
    "global with an escape in its name": b"\x80\x02cm\n\x1b[2J\n.",
    "BUILD of a dict": b"\x80\x02}}b.",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_broken_stream_is_damaged(data):
    with pytest.raises(Damaged, match="pickle"):
        walk(data, where="file: data.pkl")


@pytest.mark.parametrize("data", MISLEADING.values(), ids=MISLEADING)
def test_what_no_pickler_writes_is_hostile(data):
    with pytest.raises(Hostile, match="byte"):
        walk(data, where="file: data.pkl")


def test_every_cut_of_a_stream_is_refused():
    data = pickle.dumps({"a": [1, "two", (3.0, None)], "b": "two"}, 4)
    for end in range(len(data)):
        with pytest.raises(RemapError):
            walk(data[:end], where="x")


def test_a_message_names_file_and_byte():
    with pytest.raises(Damaged) as e:
        walk(b"\x80\x02N\xff", where="model.pt: data.pkl")
    assert str(e.value).startswith("model.pt: data.pkl: byte 0xff is not an opcode (byte 3 of the pickle)")
