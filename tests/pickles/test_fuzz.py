"""Random damage: where remap and CPython both accept a stream, they must see one graph.

Streams are mutated opcode by opcode with a fixed seed. CPython runs them with stub classes, so
that nothing is imported. Renaming and writing anew are judged by CPython as well.
"""

from __future__ import annotations

import pickle
import pickletools
import random
import struct
from collections import Counter, OrderedDict
from itertools import pairwise

import pytest
from pickles.stubs import Uncomparable, describe, describe_nodes, load

from remap.errors import RemapError
from remap.pickles.emit import Writer
from remap.pickles.nodes import Call, Dict, List, Text
from remap.pickles.rewrite import rename_stream
from remap.pickles.survey import survey
from remap.pickles.walk import walk

CASES = 1500
SHARED = "layers.0.weight"
TENSOR = (
    b"\x80\x02}q\x00(X\x01\0\0\0aq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\0\0\0storageq\x03"
    b"ctorch\nFloatStorage\nq\x04X\x01\0\0\0aq\x05X\x03\0\0\0cpuq\x06K\x02tq\x07QK\x00K\x02\x85q\x08K\x01"
    b"\x85q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0dX\x01\0\0\0bq\x0eh\x0du."
)
OBJECTS = [
    [1, (2, 3), {"a": 1.5, "b": [None, True]}, b"bytes", 2**70, -1],
    {"k": {"k": "k"}, "t": ("k", ("k",)), SHARED: [SHARED], "z": OrderedDict({SHARED: 1})},
]
SEEDS = [TENSOR, *(pickle.dumps(o, p) for o in OBJECTS for p in range(6))]
OPCODES = [o.code.encode("latin1") for o in pickletools.opcodes]


def split(data: bytes) -> list[bytes]:
    """A stream as its opcodes."""
    starts = [pos for _, _, pos in pickletools.genops(data)] + [len(data)]
    return [data[a:b] for a, b in pairwise(starts)]


def random_opcode(rng: random.Random) -> bytes:
    code = rng.choice(OPCODES)
    arg = pickletools.code2op[code.decode("latin1")].arg
    if arg is None:
        return code
    if arg.n >= 0:
        return code + struct.pack("<Q", rng.choice((0, 1, 2, 3, 7, 10)))[: arg.n]
    if arg.n == pickletools.UP_TO_NEWLINE:
        return code + rng.choice(
            (b"1\n", b"0\n", b"01\n", b"a b\nc\n", b"'x'\n", b"torch\nX\n", b"1.5\n", b"\n")
        )
    text = rng.choice((b"", b"a", b"abc", b"\xed\xa0\x80"))
    width = {-2: 1, -3: 4, -4: 4, -5: 8}[arg.n]
    return code + struct.pack("<Q", len(text))[:width] + text


def mutate(ops: list[bytes], rng: random.Random) -> bytes:
    ops = list(ops)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        i, j = rng.randrange(len(ops)), rng.randrange(len(ops))
        kind = rng.randrange(6)
        if kind == 0 and len(ops) > 1:
            del ops[i]
        elif kind == 1:
            ops.insert(i, ops[j])
        elif kind == 2:
            ops.insert(i, random_opcode(rng))
        elif kind == 3:
            ops[i], ops[j] = ops[j], ops[i]
        elif kind == 4:
            ops[i] = random_opcode(rng)
        elif ops[i]:
            changed = bytearray(ops[i])
            changed[rng.randrange(len(changed))] = rng.randrange(256)
            ops[i] = bytes(changed)
    return b"".join(ops)


def walk_or_none(data: bytes):
    try:
        return walk(data, where="fuzz")
    except RemapError:
        return None


def load_or_error(data: bytes):
    """What CPython builds; Uncomparable where it refuses: damaged input raises nearly anything."""
    try:
        return load(data)
    except (MemoryError, RecursionError):
        raise
    except BaseException as e:
        raise Uncomparable from e


def text_keys(root) -> list[Text]:
    """Keys of dicts whose text keys are all different."""
    keys, todo, seen = [], [root], set()
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo.extend(node)
        if type(node) not in (Dict, List, Call) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, List):
            todo.extend(node.items)
        elif isinstance(node, Call):
            todo += [node.args, *(v for _, values in node.steps or () for v in values)]
        else:
            texts = [k for k, _ in node.pairs if isinstance(k, Text)]
            if len({t.text for t in texts}) == len(texts):
                keys += texts
            todo.extend(v for _, v in node.pairs)
    return keys


@pytest.mark.parametrize("seed", range(4))
def test_remap_and_cpython_see_one_graph(seed):
    rng = random.Random(seed)
    streams = [split(s) for s in SEEDS]
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        data = mutate(rng.choice(streams), rng)
        walked = walk_or_none(data)
        if walked is None:
            seen["refused"] += 1
            continue
        try:
            theirs = describe(load_or_error(data))
            assert describe_nodes(walked.root) == theirs, data
            seen["same"] += 1
            check_rename(data, walked, rng)
            check_emit(walked, theirs)
        except Uncomparable:
            seen["not compared"] += 1
    assert seen["same"] > CASES / 10, seen


def check_rename(data, walked, rng):
    wanted = {
        id(k): f"{k.text}é~{'n' * rng.choice((0, 1, 300))}"
        for k in text_keys(walked.root)
        if rng.random() < 0.5
    }
    by_python2 = [s for s in walked.sites if id(s) in wanted and literal(s).op in (0x53, 0x54, 0x55)]
    if by_python2 or not wanted:
        return
    renamed = rename_stream(data, walked, wanted)
    for site in walked.sites:
        if id(site) in wanted:
            site.__class__ = Renamed
            RENAMED[id(site)] = wanted[id(site)]
    try:
        expected = describe_nodes(walked.root)
    finally:
        for site in walked.sites:
            site.__class__ = Text
        RENAMED.clear()
    assert describe(load(renamed)) == expected, data


RENAMED: dict[int, str] = {}


class Renamed(Text):
    """A string as it should read after the rename."""

    __slots__ = ()

    @property
    def text(self):
        return RENAMED[id(self)]


def literal(site: Text) -> Text:
    while site.source is not None:
        site = site.source
    return site


def check_emit(walked, theirs):
    try:
        survey(walked.root, "fuzz")
    except RemapError:
        return
    anew = Writer(protocol=walked.protocol).write(walked.root)
    assert describe_nodes(walk(anew, where="anew").root) == describe_nodes(walked.root)
    assert describe(load(anew)) == theirs
