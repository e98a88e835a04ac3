"""What universal checkpoints say of tensor-parallel ranks: every rank takes its own part, also of a sum."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judges.neox_runs import TRAINED, params_of

import remap
from remap import api
from remap.errors import InputError, PlanError, UsageError
from remap.reshard import reshard

FORMAT = "deepspeed-universal"
WRAP = ["magma/wrap-adapters"]


def made(neox_runs: Path, target: Path, name: str = "trained", **more: object) -> Path:
    params = {**params_of(TRAINED[name]), "make_vocab_size_divisible_by": "32"}
    settings = {"to": FORMAT, "at": "zero", "params": params, **more}
    api.convert(neox_runs / name, target, **settings)  # type: ignore[arg-type]
    return target


def load(folder: Path, weight: str, slot: str = "fp32") -> dict[str, object]:
    held = torch.load(folder / f"global_step3/zero/{weight}/{slot}.pt", weights_only=False)
    assert isinstance(held, dict)
    return held


def test_a_weight_says_how_ranks_divide_it(neox_runs: Path, tmp_path: Path) -> None:
    # DeepSpeed's word for each (checkpoint/universal_checkpoint.py, load_hp_checkpoint_state)
    run = made(neox_runs, tmp_path / "out", "trained-llama", tp=2)
    for slot in ("fp32", "exp_avg", "exp_avg_sq"):
        assert load(run, "2.attention.dense.weight", slot)["cat_dim"] == 1
        assert load(run, "2.mlp.linear1.weight", slot)["param_n_sub_params"] == 2
        assert load(run, "0.word_embeddings.weight", slot)["vocab_tensor"] is True
        blocks = load(run, "2.attention.query_key_value.weight", slot)["sub_param_shape"]
        assert (blocks.shape, blocks.partition_dim) == (((16, 8, 8), 16), 0)  # type: ignore[attr-defined]


def test_they_say_it_without_tp_where_the_source_has_ranks(neox_runs: Path, tmp_path: Path) -> None:
    run = made(neox_runs, tmp_path / "out")
    assert load(run, "2.attention.dense.weight")["cat_dim"] == 1
    bias = load(run, "2.attention.dense.bias")
    assert bias["param"].shape == (16,)  # type: ignore[attr-defined]


def test_of_a_sum_every_rank_has_its_addend(neox_runs: Path, tmp_path: Path) -> None:
    # a tensor of a rank's own shape would be copied to every rank, and count twice
    run = made(neox_runs, tmp_path / "out", tp=2)
    bias, moment = (load(run, "2.attention.dense.bias", s) for s in ("fp32", "exp_avg"))
    assert bias["remap_addends"] == 2
    first, rest = bias["param"].chunk(2)  # type: ignore[attr-defined]
    whole = remap.open(api.catalog(neox_runs / "trained", at="zero", params=params_of(TRAINED["trained"])))
    assert first.equal(whole["2.attention.dense.bias"])
    assert not rest.any()
    one, other = moment["param"].chunk(2)  # type: ignore[attr-defined]
    assert one.any()
    assert one.equal(other)
    assert remap.open(run)["2.attention.dense.bias"].equal(first)


def test_a_renamed_folder_is_still_for_its_ranks(neox_runs: Path, tmp_path: Path) -> None:
    run = made(neox_runs, tmp_path / "out", tp=2)
    api.convert(run, tmp_path / "wrapped", WRAP)
    bias = load(tmp_path / "wrapped", "2.attention.attn_block.dense.bias")
    assert (bias["remap_addends"], bias["param"].shape) == (2, (32,))  # type: ignore[attr-defined]
    api.convert(tmp_path / "wrapped", tmp_path / "back", WRAP, inverse=True)
    assert not remap.diff(run, tmp_path / "back")
    straight = made(neox_runs, tmp_path / "straight", rules=WRAP, tp=2)
    assert not remap.diff(straight, tmp_path / "wrapped")


def test_it_becomes_other_formats_and_other_ranks(neox_runs: Path, tmp_path: Path) -> None:
    run = made(neox_runs, tmp_path / "out", tp=4)
    one = made(neox_runs, tmp_path / "one", tp=1)
    api.convert(run, tmp_path / "again", tp=1)
    assert not remap.diff(tmp_path / "again", one)
    api.convert(run, tmp_path / "layers", to="deepspeed-pipeline", tp=2)
    assert len(list(tmp_path.glob("layers/global_step3/mp_rank_*"))) == 2
    api.convert(run, tmp_path / "hf", "gpt_neox/hf-to-neox", inverse=True)
    whole = remap.open(one)["2.attention.dense.bias"]
    for key, folder in (("gpt_neox.layers.0", "hf"), ("2", "layers")):
        assert remap.open(tmp_path / folder)[f"{key}.attention.dense.bias"].equal(whole)
    with pytest.raises(InputError, match="--tp N` writes it for N tensor-parallel ranks"):
        reshard(run, tmp_path / "no", tp=2)


def test_it_is_as_its_receipt_says(neox_runs: Path, tmp_path: Path) -> None:
    run = made(neox_runs, tmp_path / "out", tp=2)
    assert remap.verify(run)[1] == []
    assert remap.verify(run, against=neox_runs / "trained")[1] == []
    file = run / "global_step3/zero/2.attention.dense.bias/fp32.pt"
    data = bytearray(file.read_bytes())
    zeros = torch.full((16,), -0.0).numpy().tobytes()
    data[data.index(zeros)] ^= 1
    file.write_bytes(data)
    assert any("2.attention.dense.bias" in p for p in remap.verify(run)[1])


def test_model_files_are_those_of_the_ranks_and_stages(neox_runs: Path, tmp_path: Path) -> None:
    run = made(neox_runs, tmp_path / "out", tp=4, pp=2)
    files = sorted(run.glob("global_step3/mp_rank_*"))
    assert len(files) == 8
    model = torch.load(files[7], weights_only=False)
    assert model["mp_world_size"] == 8
    assert model["args"]["model_parallel_size"] == 4
    assert model["args"]["padded_vocab_size"] == 128


def test_what_has_no_equal_parts_is_refused(neox_runs: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="2 kv_heads can't be divided over 4 ranks"):
        made(neox_runs, tmp_path / "out", "trained-llama", tp=4)


def test_a_vocabulary_that_looks_like_a_copy_is_refused(neox_runs: Path, tmp_path: Path) -> None:
    # 128 rows for each of two ranks, and 128 words: DeepSpeed takes equal shapes for copies
    params = {**params_of(TRAINED["trained"]), "make_vocab_size_divisible_by": "128"}
    with pytest.raises(UsageError, match="DeepSpeed would give every rank all of them"):
        made(neox_runs, tmp_path / "out", tp=2, params=params)


def test_client_state_comes_along_without_zero(neox_runs: Path, tmp_path: Path) -> None:
    params = params_of(TRAINED["trained"])
    receipt = api.convert(neox_runs / "tp2", tmp_path / "out", to=FORMAT, tp=2, params=params)
    assert receipt.left_behind == ["optimizer"]
    (file, _) = sorted(tmp_path.glob("out/global_step7/mp_rank_*"))
    assert torch.load(file, weights_only=False)["iteration"] == 7
