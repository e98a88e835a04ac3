"""Each op gives what torch gives, and its inverse gives back what was there."""

from __future__ import annotations

import pytest
import torch
from ops.values import Bench, build, op, returns

from remap.errors import PackError, UsageError
from remap.ops.base import NoInverse, Scope
from remap.ops.registry import OPS, read_op


@pytest.mark.parametrize("dim", [0, 1])
def test_concat(bench: Bench, dim: int) -> None:
    (a, x), (b, y) = bench.source(4, 6), bench.source(4, 6)
    the = op("concat", {"dim": dim})
    (found,) = build(the, (x, y))
    assert torch.equal(found, torch.cat([a, b], dim))
    assert returns(the, (x, y))


def test_split_by_symbols(bench: Bench) -> None:
    t, x = bench.source(16, 3)
    the = op("split", {"sizes": ["heads*size", "kv*size", "kv*size"]})
    found = build(the, (x,), 3, heads=4, kv=2, size=2)
    assert all(torch.equal(f, w) for f, w in zip(found, t.split([8, 4, 4]), strict=True))
    assert returns(the, (x,), 3, heads=4, kv=2, size=2)


@pytest.mark.parametrize(
    ("arguments", "rows", "message"),
    [
        ({"sizes": ["a", "a"]}, 5, "which are 4"),
        ({}, 5, "2 equal parts"),
        ({"sizes": ["a"]}, 2, "1 sizes for 2"),
        ({"sizes": ["b", "a"]}, 4, "b, which has no value"),
        ({"dim": 4}, 4, "dimension 4"),
    ],
)
def test_a_split_that_does_not_fit(
    bench: Bench, arguments: dict[str, object], rows: int, message: str
) -> None:
    _, x = bench.source(rows, 3)
    with pytest.raises(UsageError, match=message):
        build(op("split", arguments), (x,), 2, a=2)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_stack(bench: Bench, dim: int) -> None:
    sources = [bench.source(2, 3) for _ in range(12)]
    the = op("stack", {"dim": dim})
    parts = tuple(x for _, x in sources)
    (found,) = build(the, parts)
    assert torch.equal(found, torch.stack([t for t, _ in sources], dim))
    assert returns(the, parts)


def test_unstack(bench: Bench) -> None:
    t, x = bench.source(5, 2, 3)
    the = op("unstack", {"dim": 1})
    assert all(torch.equal(f, w) for f, w in zip(build(the, (x,)), t.unbind(1), strict=True))
    assert returns(the, (x,))


def test_transpose(bench: Bench) -> None:
    t, x = bench.source(3, 5)
    assert torch.equal(build(op("transpose"), (x,))[0], t.T)
    assert returns(op("transpose"), (x,))
    u, y = bench.source(2, 3, 5)
    assert torch.equal(build(op("transpose", {"dims": [1, 2]}), (y,))[0], u.transpose(1, 2))


def test_permute(bench: Bench) -> None:
    t, x = bench.source(2, 3, 5)
    the = op("permute", {"dims": [2, 0, 1]})
    assert torch.equal(build(the, (x,))[0], t.permute(2, 0, 1))
    assert returns(the, (x,))


def test_reshape(bench: Bench) -> None:
    t, x = bench.source(6, 4)
    the = op("reshape", {"to": ["heads", "6*4//heads"], "from": [6, 4]})
    assert torch.equal(build(the, (x,), heads=3)[0], t.reshape(3, 8))
    assert returns(the, (x,), heads=3)
    assert isinstance(op("reshape", {"to": [24]}).inverse(), NoInverse)


def test_pad_and_unpad(bench: Bench) -> None:
    t, x = bench.source(5, 3)
    the = op("pad", {"to": "rows", "from": 5})
    assert torch.equal(build(the, (x,), rows=8)[0], torch.nn.functional.pad(t, (0, 0, 0, 3)))
    assert returns(the, (x,), rows=8)
    assert torch.equal(build(op("unpad", {"dim": 1, "to": 2}), (x,))[0], t[:, :2])
    with pytest.raises(UsageError, match="which is less"):
        build(op("pad", {"to": 4}), (x,))


def test_slice(bench: Bench) -> None:
    t, x = bench.source(8, 3)
    the = op("slice", {"start": 2, "stop": "n-1"})
    assert torch.equal(build(the, (x,), n=8)[0], t[2:7])
    assert isinstance(the.inverse(), NoInverse)


def test_cast(bench: Bench) -> None:
    t, x = bench.source(4, 3, kind="bf16")
    the = op("cast", {"to": "f32", "from": "bf16"})
    assert torch.equal(build(the, (x,))[0], t.float())
    assert returns(the, (x,))
    assert isinstance(op("cast", {"to": "bf16", "from": "f32"}).inverse(), NoInverse)
    assert isinstance(op("cast", {"to": "f16", "from": "bf16"}).inverse(), NoInverse)


def test_interleave(bench: Bench) -> None:
    (a, x), (b, y) = bench.source(3, 2), bench.source(3, 2)
    (found,) = build(op("interleave"), (x, y))
    assert torch.equal(found, torch.stack([a[0], b[0], a[1], b[1], a[2], b[2]]))
    assert returns(op("interleave"), (x, y))
    assert returns(op("interleave", {"dim": 1}), (x, y))


def test_tie(bench: Bench) -> None:
    t, x = bench.source(4, 3)
    found = build(op("tie"), (x,), 2)
    assert len(found) == 2
    assert all(torch.equal(f, t) for f in found)
    assert returns(op("tie"), (x,), 2)


def test_untying_what_is_not_equal_is_an_error(bench: Bench) -> None:
    from remap.errors import Damaged

    (_, x), (_, y) = bench.source(4, 3), bench.source(4, 3)
    with pytest.raises(Damaged, match="do not agree"):
        build(op("untie"), (x, y))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_scale(bench: Bench, kind: str) -> None:
    t, x = bench.source(4, 3, kind=kind)
    assert torch.equal(build(op("scale", {"by": 0.3}), (x,))[0], t * 0.3)
    assert returns(op("scale", {"by": 0.125}), (x,))
    assert isinstance(op("scale", {"by": 0.3}).inverse(), NoInverse)


def test_norms_stored_without_their_one(bench: Bench) -> None:
    t, x = bench.source(8)
    the = op("add_offset", {"by": 1.0, "rounding": "allowed"})
    assert torch.equal(build(the, (x,))[0], t + 1)
    assert returns(the, (x,))
    assert isinstance(op("add_offset", {"by": 1.0}).inverse(), NoInverse)


def test_sum(bench: Bench) -> None:
    # GPT-NeoX with a parallel residual: the bias of a row-parallel layer is the sum over ranks
    made = [bench.source(6, kind="bf16") for _ in range(3)]
    (found,) = build(op("sum"), tuple(x for _, x in made))
    assert torch.equal(found, sum(t.double() for t, _ in made).bfloat16())
    assert isinstance(op("sum").inverse(), NoInverse)


def test_divide(bench: Bench) -> None:
    t, x = bench.source(6)
    found = build(op("divide"), (x,), 4)
    assert len(found) == 4
    assert all(torch.equal(f, t / 4) for f in found)
    assert returns(op("divide"), (x,), 4)


def test_arithmetic_on_whole_numbers_is_refused(bench: Bench) -> None:
    _, x = bench.source(4, kind="i64")
    for the in (op("scale", {"by": 2}), op("sum")):
        with pytest.raises(UsageError, match="int64"):
            build(the, (x,))


def qkv(bench: Bench, heads: int, kv: int, size: int, *rest: int) -> tuple[list[torch.Tensor], tuple]:  # type: ignore[type-arg]
    made = [bench.source(n * size, *rest) for n in (heads, kv, kv)]
    return [t for t, _ in made], tuple(x for _, x in made)


@pytest.mark.parametrize("rest", [(), (5,)])
def test_qkv_blocks_in_the_order_of_metaseq(bench: Bench, rest: tuple[int, ...]) -> None:
    # metaseq OPT: qkv_proj is key, value, query
    (q, k, v), parts = qkv(bench, 4, 4, 2, *rest)
    the = op("fuse_qkv", {"layout": "blocks", "order": ["k", "v", "q"], "heads": "heads"})
    assert torch.equal(build(the, parts, heads=4)[0], torch.cat([k, v, q]))
    assert returns(the, parts, heads=4)


def test_qkv_by_heads(bench: Bench) -> None:
    # GPT-NeoX: view(heads, 3, size), megatron/model/transformer.py:794
    (q, k, v), parts = qkv(bench, 3, 3, 2, 5)
    the = op("fuse_qkv", {"layout": "heads", "heads": 3})
    wanted = torch.stack([t.view(3, 2, 5) for t in (q, k, v)], 1).reshape(18, 5)
    assert torch.equal(build(the, parts)[0], wanted)
    assert returns(the, parts)


def test_qkv_by_groups(bench: Bench) -> None:
    # Falcon, Megatron: each key-value head after its query heads
    (q, k, v), parts = qkv(bench, 6, 2, 2, 5)
    the = op("fuse_qkv", {"layout": "groups", "heads": "h", "kv_heads": "g"})
    wanted = torch.cat([q[:6], k[:2], v[:2], q[6:], k[2:], v[2:]])
    assert torch.equal(build(the, parts, h=6, g=2)[0], wanted)
    assert returns(the, parts, h=6, g=2)


def test_qkv_that_does_not_fit(bench: Bench) -> None:
    _, parts = qkv(bench, 4, 2, 2, 5)
    with pytest.raises(UsageError, match="as many key-value heads"):
        build(op("fuse_qkv", {"layout": "heads", "heads": 4, "kv_heads": 2}), parts)
    with pytest.raises(UsageError, match="rows with 4 heads and 4"):
        build(op("fuse_qkv", {"layout": "blocks", "heads": 4}), parts)
    with pytest.raises(UsageError, match="evenly"):
        build(op("fuse_qkv", {"layout": "groups", "heads": 4, "kv_heads": 3}), parts)


@pytest.mark.parametrize("rest", [(), (5,)])
def test_rotary_from_meta_to_hugging_face(bench: Bench, rest: tuple[int, ...]) -> None:
    # transformers, convert_llama_weights_to_hf.py:
    #   w.view(n_heads, dim1 // n_heads // 2, 2, dim2).transpose(1, 2).reshape(dim1, dim2)
    t, x = bench.source(12, *rest)
    the = op("rotary", {"heads": "heads", "from": "interleaved", "to": "half"})
    wanted = t.view(2, 3, 2, *rest).transpose(1, 2).reshape(12, *rest)
    assert torch.equal(build(the, (x,), heads=2)[0], wanted)
    assert returns(the, (x,), heads=2)


def test_rotary_of_a_part_of_each_head(bench: Bench) -> None:
    t, x = bench.source(12, 2)
    the = op("rotary", {"heads": 2, "from": "interleaved", "to": "half", "rotary_dim": 4})
    head = [0, 2, 1, 3, 4, 5]
    assert torch.equal(build(the, (x,))[0], t[[*head, *(6 + n for n in head)]])
    assert returns(the, (x,))


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_argument_that_an_op_has_not(name: str) -> None:
    with pytest.raises(PackError):
        read_op(name, {"nonsense": 1})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("concat", {"dim": "x"}),
        ("concat", {"dim": -1}),
        ("concat", {"sizes": 3}),
        ("permute", {"dims": [0, 0]}),
        ("transpose", {"dims": [1, 1]}),
        ("cast", {}),
        ("cast", {"to": "f12"}),
        ("fuse_qkv", {"layout": "stripes", "heads": 1}),
        ("fuse_qkv", {"layout": "blocks", "heads": 1, "order": ["q", "k"]}),
        ("rotary", {"heads": 1, "from": "half", "to": "half"}),
        ("pad", {}),
        ("reshape", {"to": ["a**b"]}),
    ],
)
def test_arguments_are_checked_when_the_pack_is_read(name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(PackError):
        op(name, arguments)


def test_what_only_moves_whole_rows_lowers_to_byte_ranges(bench: Bench) -> None:
    from remap.expr import ranges

    _, parts = qkv(bench, 6, 2, 64, 64)
    (fused,) = op("fuse_qkv", {"layout": "groups", "heads": 6, "kv_heads": 2}).build(parts, Scope({}, 1))
    assert ranges.lower(fused) is not None
