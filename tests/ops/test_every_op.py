"""What holds of every op: it is what it says before any byte is read, its way back is one or has a reason,
and it is spelled as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from ops.values import Bench, compute, op, returns

from remap.ops.base import NoInverse, Scope
from remap.ops.registry import OPS
from remap.ops.spelling import spelled

QKV = {"layout": "groups", "heads": "h", "kv_heads": 2}
SIZES = {"h": 4, "n": 6, "m": 8}


@dataclass(frozen=True)
class Case:
    """An op on parts of these shapes; ``wanted`` parts come out. ``lost``: why it has no inverse."""

    arguments: dict[str, object]
    shapes: tuple[tuple[int, ...], ...]
    wanted: int = 1
    kind: str = "f32"
    lost: str = ""


CASES = {
    "add_offset": Case({"by": 1, "rounding": "allowed"}, ((3, 2),)),
    "cast": Case({"to": "f32", "from": "f16"}, ((3, 2),), kind="f16"),
    "concat": Case({"dim": 1}, ((3, 2), (3, 2))),
    "deinterleave": Case({}, ((6, 2),), 3),
    "divide": Case({}, ((3, 2),), 2, lost="x"),
    "fuse_qkv": Case(QKV, ((8, 3), (4, 3), (4, 3))),
    "interleave": Case({}, ((2, 3), (2, 3), (2, 3))),
    "pad": Case({"to": "m", "from": "n"}, ((6, 2),)),
    "permute": Case({"dims": [2, 0, 1]}, ((2, 3, 4),)),
    "reshape": Case({"to": ["n", 2], "from": [12]}, ((12,),)),
    "rotary": Case({"heads": 2, "from": "half", "to": "interleaved"}, ((12, 2),)),
    "scale": Case({"by": 0.5}, ((3, 2),)),
    "slice": Case({"start": 1, "stop": 3}, ((6, 2),), lost="cuts off"),
    "split": Case({"sizes": ["h", 2]}, ((6, 2),), 2),
    "split_qkv": Case(QKV, ((16, 3),), 3),
    "stack": Case({}, ((2, 3),) * 12),
    "sum": Case({}, ((3, 2), (3, 2)), lost="addends"),
    "tie": Case({}, ((3, 2),), 2),
    "transpose": Case({}, ((3, 2),)),
    "unpad": Case({"to": "n", "from": "m"}, ((8, 2),)),
    "unstack": Case({}, ((12, 3, 2),), 12),
    "untie": Case({}, ((3, 2),)),
}


def test_every_op_has_a_case() -> None:
    assert CASES.keys() == OPS.keys()


@pytest.mark.parametrize("name", CASES)
def test_shape_and_type_are_known_without_data(bench: Bench, name: str) -> None:
    case = CASES[name]
    the = op(name, case.arguments)
    parts = tuple(bench.source(*shape, kind=case.kind)[1] for shape in case.shapes)
    made = the.build(parts, Scope(SIZES, case.wanted if the.shape == "cut" else None))
    assert len(made) == case.wanted
    for expr in made:
        compute(expr)  # refuses what is not as it says


@pytest.mark.parametrize("name", CASES)
def test_the_way_back_brings_back_or_says_why_not(bench: Bench, name: str) -> None:
    case = CASES[name]
    the = op(name, case.arguments)
    undo = the.inverse()
    if isinstance(undo, NoInverse):
        assert case.lost
        assert case.lost in undo.reason
    elif case.lost:
        assert isinstance(undo.inverse(), NoInverse)  # a sum, whose addends are lost
    elif name != "unpad":  # what it cuts off comes back as zeros
        parts = tuple(bench.source(*shape, kind=case.kind)[1] for shape in case.shapes)
        assert returns(the, parts, case.wanted if the.shape == "cut" else None, **SIZES)


@pytest.mark.parametrize("name", CASES)
def test_it_is_spelled_as_it_is_read(name: str) -> None:
    for the in (op(name, CASES[name].arguments), op(name, CASES[name].arguments).inverse()):
        if not isinstance(the, NoInverse):
            text = spelled(the)
            again = op(text) if isinstance(text, str) else op(*next(iter(text.items())))  # type: ignore[arg-type]
            assert again == the
