"""Of every tensor that differs it is said how, and nothing is called equal that was not looked at."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from remap import api
from remap.errors import UsageError

torch.manual_seed(0)
MATRIX = torch.randn(6, 4)
SHUFFLED = torch.tensor([3, 0, 5, 1, 4, 2])


def differences(folder, a, b, **options):
    for name, tensors in (("a", a), ("b", b)):
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / f"{name}.safetensors")
    return api.diff(folder / "a.safetensors", folder / "b.safetensors", **options)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "detail"),
    [
        (MATRIX, MATRIX.half(), "cast", "f32[6,4] and f16[6,4]"),
        (MATRIX.bfloat16(), MATRIX.bfloat16().float(), "cast", "bf16[6,4] and f32[6,4]"),
        (MATRIX, MATRIX.T, "transposed", "dimensions [1, 0] of A"),
        (MATRIX[:4], MATRIX[:4].T, "transposed", "f32[4,4]: dimensions [1, 0] of A"),
        (MATRIX, MATRIX.T.half(), "transposed", "dimensions [1, 0] of A, cast"),
        (MATRIX.view(2, 3, 4), MATRIX.view(2, 3, 4).permute(2, 0, 1), "transposed", "[2, 0, 1] of A"),
        (MATRIX, MATRIX.reshape(3, 8), "reshaped", "the same elements in the same order"),
        (MATRIX, MATRIX[SHUFFLED], "rows permuted", "the same rows in another order"),
        (MATRIX[:, 0], MATRIX[SHUFFLED, 0], "rows permuted", "the same rows"),
        (MATRIX, MATRIX * 0.125, "scaled", "B is A times 0.125"),
        (MATRIX, -MATRIX, "scaled", "B is A times -1"),
        (MATRIX, (MATRIX * 0.3).half(), "scaled", "B is A times 0.3"),
        (MATRIX, MATRIX.half() + 1, "values", "24 of 24 elements"),
        (torch.zeros(3), torch.tensor([0.0, 0.0, 0.5]), "values", "1 of 3 elements, by up to 0.5, on av"),
        (torch.zeros(2), torch.tensor([-0.0, 0.0]), "values", "the same numbers in other bits"),
        (torch.zeros(2), torch.tensor([float("nan"), 0.0]), "values", "1 of 2 elements, by up to inf"),
        (torch.arange(4), torch.tensor([0, 1, 2, 9]), "values", "1 of 4 elements, by up to 6"),
        (torch.tensor([True, False]), torch.tensor([True, True]), "values", "1 of 2 elements"),
        (torch.ones(2), torch.ones(3), "shape", "f32[2] and f32[3]"),
        (torch.arange(3), torch.tensor([0.5, 1, 2]), "values", "i64[3] and f32[3]: 1 of 3"),
    ],
)
def test_the_verdict(tmp_path, a, b, verdict, detail):
    (found,) = differences(tmp_path, {"k": a}, {"k": b})
    assert found.verdict == verdict
    assert detail in found.detail


def test_all_that_is_equal_is_equal_byte_for_byte(tmp_path):
    assert differences(tmp_path, {"k": MATRIX}, {"k": MATRIX.clone()}) == []


def test_without_values_nothing_is_said_of_them(tmp_path):
    assert differences(tmp_path, {"k": MATRIX}, {"k": MATRIX + 1}, values=False) == []
    (found,) = differences(tmp_path, {"k": MATRIX}, {"k": MATRIX.half()}, values=False)
    assert found.verdict == "dtype"


def test_what_has_no_values_is_not_compared(tmp_path):
    (tmp_path / "keys.json").write_text(json.dumps({"k": [[6, 4], "float32"]}))
    save_file({"k": MATRIX}, tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match="its values can't be read"):
        api.diff(tmp_path / "a.safetensors", tmp_path / "keys.json")


def test_large_tensors_are_compared_by_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("remap.comparing.relations.BLOCK", 64)
    (found,) = differences(tmp_path, {"k": MATRIX}, {"k": MATRIX * 2})
    assert found.detail.endswith("B is A times 2")
    (found,) = differences(tmp_path, {"k": MATRIX}, {"k": MATRIX[SHUFFLED]})
    assert found.verdict == "rows permuted"
