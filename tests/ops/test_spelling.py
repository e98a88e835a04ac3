"""Every op, read and spelled again, is the same op."""

from __future__ import annotations

import pytest

from remap.ops.registry import OPS, read_op
from remap.ops.spelling import spelled

ARGUMENTS: dict[str, dict[str, object]] = {
    "add_offset": {"by": 1, "rounding": "allowed"},
    "cast": {"to": "f32", "from": "f16"},
    "divide": {"over": "r", "parts": "tp"},
    "fuse_qkv": {"layout": "blocks", "heads": "heads", "kv_heads": 2, "order": ["k", "v", "q"]},
    "interleave": {"dim": 1},
    "pad": {"to": "padded", "from": "vocab", "value": 2.0},
    "permute": {"dims": [2, 0, 1]},
    "reshape": {"to": ["heads", "head_dim*2"], "from": [8]},
    "rotary": {"heads": "heads", "from": "half", "to": "interleaved", "rotary_dim": 4},
    "scale": {"by": 3, "rounding": "allowed"},
    "slice": {"start": 0, "stop": "vocab"},
    "split": {"dim": 1, "sizes": ["heads*2", 4]},
    "split_qkv": {"layout": "groups", "heads": "heads"},
    "stack": {"over": "e"},
    "sum": {"over": "r"},
    "transpose": {"dims": [1, 2]},
    "unpad": {"to": "vocab"},
    "unstack": {"over": "e", "dim": 1},
}


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_is_spelled_as_it_is_read(name: str) -> None:
    op = read_op(name, ARGUMENTS.get(name, {}))
    text = spelled(op)
    again = read_op(text, {}) if isinstance(text, str) else read_op(*next(iter(text.items())))  # type: ignore[arg-type]
    assert again == op


def test_defaults_are_left_out() -> None:
    assert spelled(read_op("transpose", {})) == "transpose"
    assert spelled(read_op("tie", {})) == "tie"
