"""What ranks hold of a tensor, class by class: merged it is the tensor, split and merged again, too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from remap.errors import Damaged, PackError, UsageError
from remap.expr import Expr, Take
from remap.expr.blocks import evaluate
from remap.expr.ranges import lower
from remap.formats.safetensors import FORMAT
from remap.partitions.base import Merging
from remap.partitions.registry import PARTITIONS, read_partition

SIZES = {"heads": 4, "kv_heads": 2, "words": 10, "multiple": 4}
KEEP = Merging(padded=True)


@pytest.fixture
def take(tmp_path):
    """Tensors -> expressions that take them from a file."""
    from safetensors.torch import save_file

    def of(*tensors: torch.Tensor) -> list[Expr]:
        path = tmp_path / "t.safetensors"
        save_file({f"{i:03d}": t.contiguous().clone() for i, t in enumerate(tensors)}, path)
        return [Take(e) for _, e in sorted(FORMAT.open(path).entries.items())]

    return of


def values(exprs: Sequence[Expr]) -> list[list[float]]:
    return [evaluate(e).flatten().tolist() for e in exprs]


def named(text: str):
    return read_partition(text).resolve(SIZES)


COUNTED = torch.arange(24.0).reshape(12, 2)
WHOLE = {
    "rows": COUNTED,
    "rows(heads)": COUNTED,
    "columns": torch.arange(24.0).reshape(2, 12),
    "columns(heads)": torch.arange(24.0).reshape(2, 12),
    "replicated": COUNTED,
    "addends": COUNTED,
    "fused(2)": COUNTED,
    "fused(3)": COUNTED,
    "fused_columns(2)": torch.arange(48.0).reshape(2, 12, 2),
    "innermost": torch.arange(48.0).reshape(2, 2, 12),
    "qkv(heads, kv_heads)": torch.arange(32.0).reshape(16, 2),
    "vocabulary(words, multiple)": torch.arange(20.0).reshape(10, 2),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("text", list(WHOLE))
def test_split_and_merged_it_is_the_tensor(take, text, ranks):
    (whole,) = take(WHOLE[text])
    parts = named(text).split(whole, ranks)
    assert len(parts) == ranks
    assert len({p.spec for p in parts}) == 1
    assert torch.equal(evaluate(named(text).merge(parts, Merging())), WHOLE[text])


def test_rows_and_columns_are_stretches(take):
    rows, columns = take(torch.arange(8.0).reshape(4, 2), torch.arange(8.0).reshape(2, 4))
    assert values(named("rows").split(rows, 2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert values(named("columns").split(columns, 2)) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_a_gated_layer_has_its_halves_on_every_rank(take):
    # [plain; gate] of two rows each: rank 0 has the first of both. NeoX megatron/model/transformer.py
    (whole,) = take(torch.arange(4.0))
    assert values(named("fused(2)").split(whole, 2)) == [[0, 2], [1, 3]]


def test_grouped_queries_lie_in_blocks_on_every_rank(take):
    # 4 heads and 2 of keys and values, one row each: [q0 q1 q2 q3; k0 k1; v0 v1]
    (whole,) = take(torch.arange(8.0))
    assert values(named("qkv(heads, kv_heads)").split(whole, 2)) == [[0, 1, 4, 6], [2, 3, 5, 7]]


def test_addends_are_summed_and_rank_0_has_all(take):
    low, high, whole = take(torch.tensor([0.25]), torch.tensor([0.75]), torch.tensor([3.0]))
    assert values([named("addends").merge([low, high], Merging())]) == [[1.0]]
    assert values(named("addends").split(whole, 2)) == [[3.0], [0.0]]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_addends_lose_nothing(take, ranks):
    # the smallest float16 and three times that have no halves, a third of 1 is no binary fraction
    exact = torch.tensor([2.0**-24, 3 * 2.0**-24, 1.0, 65504.0, -0.0, 0.0], dtype=torch.float16)
    (whole,) = take(exact)
    parts = named("addends").split(whole, ranks)
    found = evaluate(named("addends").merge(parts, Merging()))
    assert found.numpy().tobytes() == exact.numpy().tobytes()


def test_the_vocabulary_is_padded_for_its_ranks(take):
    # 10 words in multiples of 4 a rank: 12 rows for one, 16 for two or four
    (whole,) = take(torch.ones(10, 1))
    cls = named("vocabulary(words, multiple)")
    assert [len(cls.split(whole, n)) * cls.split(whole, n)[0].spec.shape[0] for n in (1, 2, 4)] == [
        12,
        16,
        16,
    ]
    assert values(cls.split(whole, 2)) == [[1.0] * 8, [1.0] * 2 + [0.0] * 6]


def test_padding_is_cut_off_where_the_real_size_is_known(take):
    parts = take(torch.ones(8, 1), torch.zeros(8, 1))
    cls = named("vocabulary(words, multiple)")
    assert cls.merge(parts, Merging()).spec.shape == (10, 1)
    assert cls.merge(parts, KEEP).spec.shape == (16, 1)
    assert read_partition("vocabulary(w, m)").resolve({}).merge(parts, Merging()).spec.shape == (16, 1)


def test_more_words_than_rows_are_refused(take):
    with pytest.raises(UsageError, match="words is 10, and the table has 8 rows"):
        named("vocabulary(words, multiple)").merge(take(torch.ones(8, 1)), Merging())


def test_copies_that_differ_are_refused_or_chosen(take):
    parts = take(torch.tensor([1.0]), torch.tensor([2.0]))
    cls = named("replicated")
    with pytest.raises(Damaged, match="do not agree"):
        evaluate(cls.merge(parts, Merging()))
    assert values([cls.merge(parts, Merging("first"))]) == [[1.0]]
    assert values([cls.merge(parts, Merging("mean"))]) == [[1.5]]


@pytest.mark.parametrize("text", ["rows(heads)", "columns(heads)", "qkv(heads, kv_heads)"])
def test_a_rank_has_whole_heads(take, text):
    (whole,) = take(torch.ones(24, 24))
    with pytest.raises(UsageError, match=r"can't be divided over 3 ranks: each has whole ones"):
        named(text).split(whole, 3)
    with pytest.raises(UsageError, match="heads has no value"):
        read_partition(text).resolve({}).split(whole, 2)


def test_keys_and_values_of_one_head_are_not_cut(take):
    (whole,) = take(torch.ones(16))
    with pytest.raises(UsageError, match="2 kv_heads can't be divided over 4 ranks"):
        named("qkv(heads, kv_heads)").split(whole, 4)


@pytest.mark.parametrize("text", ["rows", "columns", "fused(2)", "qkv(heads, kv_heads)"])
def test_what_only_moves_bytes_is_copied(take, text):
    parts = take(torch.ones(8, 16384), torch.ones(8, 16384))
    assert lower(named(text).merge(parts, Merging())) is not None
    assert all(lower(p) is not None for p in named(text).split(parts[0], 2))


def test_a_wrong_spelling_is_refused():
    with pytest.raises(PackError, match="no partition is called 'row'; did you mean 'rows'"):
        read_partition("row")
    with pytest.raises(PackError, match=r"write qkv\(heads, kv_heads\)"):
        read_partition("qkv(heads)")


def test_every_class_is_tested():
    assert {read_partition(t).name for t in WHOLE} == PARTITIONS.keys()
