"""Tensor-parallel runs that real DeepSpeed saved: merged they are the undivided model, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judges.neox_model import Shape, truth
from judges.neox_runs import RUNS, params_of, stored
from safetensors.torch import load_file

import remap
from remap import api
from remap.errors import Damaged, InputError, PlanError, UsageError
from remap.parallel import Settings

KEEP = Settings(padded=True)


def params(name: str, **more: str) -> dict[str, str]:
    return params_of(RUNS[name]) | more


def opened(folder: Path, name: str, **more: str) -> dict[str, torch.Tensor]:
    catalog = api.catalog(folder, params=params(name, **more))
    return {k.removeprefix("sequential."): v for k, v in remap.open(catalog).items()}


@pytest.mark.parametrize("name", list(RUNS))
def test_merged_it_is_the_undivided_model(neox_runs: Path, name: str) -> None:
    run = RUNS[name]
    wanted = truth(run.shape)
    found = opened(neox_runs / name, name, vocab_size="120")
    if run.tp == 1:  # one rank is read as it lies, padding included
        found = {k: v[:120] if "embeddings" in k or "final_linear" in k else v for k, v in found.items()}
    assert found.keys() == wanted.keys()
    assert [k for k in wanted if not torch.equal(found[k], wanted[k])] == []


@pytest.mark.parametrize("name", [n for n, r in RUNS.items() if r.tp == 2 and r.pipeline])
def test_other_ranks_and_back_is_the_identity(neox_runs: Path, tmp_path: Path, name: str) -> None:
    many = (2, 1, 2) if name == "llama" else (2, 1, 4, 2, 4, 1, 2)  # 2 heads of keys and values: no 4 ranks
    source, first = neox_runs / name, {}
    for step, tp in enumerate(many):
        target = tmp_path / f"{step}-{tp}"
        api.convert(source, target, tp=tp, params=params(name), settings=KEEP)
        files = stored(target)
        assert {k.split("@")[1] for k in files} == {str(r) for r in range(tp)}
        for key, value in first.setdefault(tp, files).items():
            assert torch.equal(files[key], value), (step, key)
        source = target


def test_only_summed_biases_are_divided_anew(neox_runs: Path, tmp_path: Path) -> None:
    # the run's own addends are a quarter and three quarters; remap gives rank 0 the sum
    api.convert(neox_runs / "tp2", tmp_path / "out", tp=2, params=params("tp2"), settings=KEEP)
    before, after = stored(neox_runs / "tp2"), stored(tmp_path / "out")
    differ = {k.split(".", 1)[1].split("@")[0] for k in before if not torch.equal(before[k], after[k])}
    assert differ == {"attention.dense.bias", "mlp.dense_4h_to_h.bias"}


def test_a_run_becomes_a_folder_of_transformers(neox_runs: Path, tmp_path: Path) -> None:
    api.convert(
        neox_runs / "tp2",
        tmp_path / "hf",
        ["gpt_neox/hf-to-neox"],
        inverse=True,
        to="safetensors",
        params=params("tp2", vocab_size="120"),
    )
    found, wanted = load_file(tmp_path / "hf/model.safetensors"), truth(Shape())
    assert torch.equal(found["gpt_neox.embed_in.weight"], wanted["0.word_embeddings.weight"])
    for ours, theirs in (("attention.dense.bias", "attention.dense.bias"), ("mlp.dense_4h_to_h.weight",) * 2):
        assert torch.equal(found[f"gpt_neox.layers.3.{theirs}"], wanted[f"5.{ours}"])


@pytest.mark.parametrize(
    ("name", "packs"),
    [
        ("tp2", ["gpt_neox/hf-to-neox"]),
        ("module", ["gpt_neox/hf-to-neox", "gpt_neox/pipeline-to-sequential"]),
        ("llama", ["gpt_neox/llama-to-neox"]),
    ],
)
def test_names_of_transformers_are_written_as_transformers_reads_them(
    neox_runs: Path, tmp_path: Path, name: str, packs: list[str]
) -> None:
    # no --to is given; the heads of keys and values are told by the rows of query_key_value
    api.convert(neox_runs / name, tmp_path / "hf", packs, inverse=True, params=params(name))
    found = load_file(tmp_path / "hf/model.safetensors")
    if name == "llama":
        wanted = truth(RUNS[name].shape)["2.attention.query_key_value.weight"]
        assert torch.equal(found["model.layers.0.self_attn.k_proj.weight"], wanted[16:24])
    api.convert(neox_runs / name, tmp_path / "out", params=params(name))  # the same names, the same format
    assert (tmp_path / "out/latest").is_file()


def test_a_class_stays_with_a_key_that_is_wrapped(neox_runs: Path, tmp_path: Path) -> None:
    # the converters in use look for attention.dense, and raise where it lies behind attn_block
    wrap = ["magma/wrap-adapters"]
    api.convert(neox_runs / "tp2", tmp_path / "out", wrap, tp=4, params=params("tp2"))
    files = stored(tmp_path / "out")
    assert files["2.attention.attn_block.query_key_value.weight@3"].shape == (12, 16)
    assert files["2.attention.attn_block.dense.weight@3"].shape == (16, 4)
    assert files["2.attention.attn_block.dense.bias@3"].shape == (16,)
    whole = opened(tmp_path / "out", "tp2")
    assert torch.equal(whole["2.attention.attn_block.dense.bias"], truth(Shape())["2.attention.dense.bias"])


CUSTOM = """
remap: 1
pack: mine/names
version: 1.0.0
title: names of no layout
stages:
  - rules:
      - id: mine
        from: "{i:int}.{rest:path}"
        to: "{i}.mine.{rest}"
"""


def test_a_class_rides_through_names_that_no_layout_knows(neox_runs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CUSTOM)
    api.convert(neox_runs / "tp2", tmp_path / "one", tp=1, params=params("tp2"))
    for source in (neox_runs / "tp2", tmp_path / "one"):
        target = tmp_path / f"from-{source.name}"
        api.convert(source, target, tmp_path / "mine.yaml", tp=2, params=params("tp2"))
        assert stored(target)["2.mine.attention.dense.weight@1"].shape == (16, 8)
    api.convert(tmp_path / "one", tmp_path / "out", tmp_path / "mine.yaml")
    with pytest.raises(PlanError, match="known to no layout: whether ranks hold pieces or copies"):
        api.convert(tmp_path / "out", tmp_path / "more", tp=2)


def test_what_a_rule_says_of_ranks_counts(neox_runs: Path, tmp_path: Path) -> None:
    said = (
        CUSTOM
        + """      - id: norm
        from: "{i:int}.norm.weight"
        to: "{i}.mine.norm.weight"
        replaces: mine
        partition: rows
"""
    )
    (tmp_path / "mine.yaml").write_text(said)
    api.convert(neox_runs / "tp2", tmp_path / "two", tmp_path / "mine.yaml", tp=2, params=params("tp2"))
    files = stored(tmp_path / "two")
    assert files["7.mine.norm.weight@1"].shape == (8,)
    assert files["7.mine.norm.bias@1"].shape == (16,)


def test_what_is_not_known_is_asked_for(neox_runs: Path) -> None:
    with pytest.raises(InputError, match=r"2\.attention\.dense\.bias and 7 more: gpt_j_residual is") as e:
        api.catalog(neox_runs / "tp2")
    assert e.value.remedy == "say which: -p gpt_j_residual=true"
    with pytest.raises(
        InputError, match=r"gqa is blocks \(qkv\(heads, kv_heads\)\) or heads \(rows\(heads\)\)"
    ):
        api.catalog(neox_runs / "llama")


def test_the_saved_configuration_says_it(neox_runs: Path, tmp_path: Path) -> None:
    for text, summed in (('{"gpt-j-residual": true}', True), ('{"num_layers": 4}', False)):
        folder = copied(neox_runs / "tp2", tmp_path / str(summed))
        (folder / "global_step7/configs").mkdir()
        (folder / "global_step7/configs/small.yml").write_text(text)
        if summed:
            catalog = api.catalog(folder)
            assert torch.equal(
                remap.open(catalog)["2.attention.dense.bias"], truth(Shape())["2.attention.dense.bias"]
            )
        else:  # the default of GPT-NeoX is a sequential residual: these would be copies, and they differ
            with pytest.raises(Damaged, match="differ between ranks"):
                api.convert(folder, tmp_path / "out.safetensors")


def copied(source: Path, target: Path) -> Path:
    import shutil

    return Path(shutil.copytree(source, target))


def drifted(source: Path, target: Path, by: float) -> Path:
    """A run whose rank 1 has another final norm."""
    folder = copied(source, target)
    file = folder / "global_step7/layer_07-model_01-model_states.pt"
    state = torch.load(file, weights_only=True)
    state["norm.weight"] += by
    torch.save(state, file)
    return folder


def test_copies_that_drifted_apart(neox_runs: Path, tmp_path: Path) -> None:
    run = drifted(neox_runs / "tp2", tmp_path / "run", 0.25)
    with pytest.raises(Damaged, match=r"1 tensors of which every rank has a copy differ") as e:
        api.convert(run, tmp_path / "out.safetensors", params=params("tp2"))
    assert e.value.problems == ("7.norm.weight: by up to 0.25",)
    own = truth(Shape())["7.norm.weight"]
    for copies, value in (("first", own), ("mean", own + 0.125)):
        out = tmp_path / f"{copies}.safetensors"
        receipt = api.convert(run, out, params=params("tp2"), settings=Settings(copies=copies))
        assert torch.equal(load_file(out)["7.norm.weight"], value)
        assert "most 7.norm.weight: by up to 0.25" in receipt.warnings[-1]


def test_heads_are_not_cut(neox_runs: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"4 heads can't be divided over 8 ranks"):
        api.convert(neox_runs / "tp2", tmp_path / "out", tp=8, params=params("tp2"))
    with pytest.raises(PlanError, match=r"2 kv_heads can't be divided over 4 ranks"):
        api.convert(neox_runs / "llama", tmp_path / "out", tp=4, params=params("llama"))


def test_the_vocabulary_is_padded_for_the_ranks(neox_runs: Path, tmp_path: Path) -> None:
    # 120 words in multiples of 32 a rank: 128 rows for 1, 2 and 4 ranks; of 64: 128, 128, 256
    wide = params("tp2", make_vocab_size_divisible_by="64", vocab_size="120")
    rows = {}
    for tp in (1, 2, 4):
        api.convert(neox_runs / "tp2", tmp_path / str(tp), tp=tp, params=wide)
        files = stored(tmp_path / str(tp))
        rows[tp] = sum(files[f"0.word_embeddings.weight@{r}"].shape[0] for r in range(tp))
        state = torch.load(tmp_path / str(tp) / "global_step7/mp_rank_00_model_states.pt", weights_only=False)
        assert state["args"]["padded_vocab_size"] == rows[tp]
    assert rows == {1: 128, 2: 128, 4: 256}
    # the receipt remembers the size, so that the way back cuts the padding off
    api.convert(tmp_path / "4", tmp_path / "back", tp=1)
    assert stored(tmp_path / "back")["0.word_embeddings.weight@0"].shape == (128, 16)


def test_padding_of_one_rank_is_cut_off_where_the_words_are_told(neox_runs: Path, tmp_path: Path) -> None:
    # 120 words in 128 rows; a truth about the model that nothing depends on is no error
    said = {"vocab_size": "120", "gpt_j_residual": "true"}
    assert remap.open(neox_runs / "pp2", params=said)["0.word_embeddings.weight"].shape == (120, 16)
    api.convert(neox_runs / "pp2", tmp_path / "hf", "gpt_neox/hf-to-neox", inverse=True, params=said)
    assert remap.open(tmp_path / "hf")["embed_out.weight"].shape == (120, 16)
    assert remap.verify(tmp_path / "hf", against=neox_runs / "pp2")[1] == []
    with pytest.raises(InputError, match="vocab_size is 129, and the table has 128 rows"):
        remap.open(neox_runs / "pp2", params={"vocab_size": "129"})
    with pytest.raises(UsageError, match="no pack here has a parameter 'vocab_sise'"):
        api.convert(neox_runs / "pp2", tmp_path / "no", params={"vocab_sise": "120"})


def test_moments_lose_the_padding_that_their_weight_loses(neox_runs: Path, tmp_path: Path) -> None:
    to = {"to": "deepspeed-universal", "at": "zero"}
    said = params("tp2", make_vocab_size_divisible_by="32")
    api.convert(neox_runs / "trained", tmp_path / "padded", tp=1, params=said, **to)
    api.convert(tmp_path / "padded", tmp_path / "out", params={"vocab_size": "120"})
    held = remap.open(tmp_path / "out").catalog.optimizer().tensors["0.word_embeddings.weight"]
    assert {str(held[s].spec) for s in ("exp_avg", "exp_avg_sq")} == {"f32[120,16]"}


def test_the_receipt_is_verified_against_the_source(neox_runs: Path, tmp_path: Path) -> None:
    api.convert(neox_runs / "tp2", tmp_path / "out", ["magma/wrap-adapters"], tp=4, params=params("tp2"))
    assert api.verify(tmp_path / "out")[1] == []
    assert api.verify(tmp_path / "out", against=neox_runs / "tp2")[1] == []
    assert api.verify(tmp_path / "out", against=neox_runs / "sequential-residual")[1] != []
    api.convert(tmp_path / "out", tmp_path / "more", tp=2)  # what was said once is remembered
    assert api.verify(tmp_path / "more", against=tmp_path / "out")[1] == []


def test_a_format_without_ranks_says_so(neox_runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="safetensors is not written by ranks or stages"):
        api.convert(neox_runs / "tp2", tmp_path / "o", to="safetensors", tp=2, params=params("tp2"))
