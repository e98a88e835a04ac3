"""Megatron-LM's folders, made as its ``save_checkpoint`` names them and fills them, and read by torch."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

import remap
from remap import api
from remap.errors import Damaged, InputError, PlanError, UsageError
from remap.formats import registry
from remap.reshard import reshard

LAYERS, HIDDEN, HEADS, KV, INNER, ROWS = 4, 8, 4, 2, 16, 32
SIZE = HIDDEN // HEADS


def model() -> dict[str, torch.Tensor]:
    """A Megatron-core GPT with LLaMA's settings, whole."""
    made = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=made)

    out = {"embedding.word_embeddings.weight": draw(ROWS, HIDDEN)}
    for i in range(LAYERS):
        out |= {
            f"decoder.layers.{i}.input_layernorm.weight": draw(HIDDEN),
            f"decoder.layers.{i}.self_attention.linear_qkv.weight": draw((HEADS + 2 * KV) * SIZE, HIDDEN),
            f"decoder.layers.{i}.self_attention.linear_proj.weight": draw(HIDDEN, HIDDEN),
            f"decoder.layers.{i}.pre_mlp_layernorm.weight": draw(HIDDEN),
            f"decoder.layers.{i}.mlp.linear_fc1.weight": draw(2 * INNER, HIDDEN),
            f"decoder.layers.{i}.mlp.linear_fc2.weight": draw(HIDDEN, INNER),
        }
    return out | {"decoder.final_layernorm.weight": draw(HIDDEN), "output_layer.weight": draw(ROWS, HIDDEN)}


def part(key: str, whole: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """What a rank has, by Megatron-core's column- and row-parallel layers."""
    if "layernorm" in key:
        return whole
    if key.endswith(("linear_proj.weight", "linear_fc2.weight")):
        return whole.chunk(ranks, 1)[rank].clone()
    if key.endswith("linear_fc1.weight"):
        return torch.cat([half.chunk(ranks)[rank] for half in whole.chunk(2)])
    return whole.chunk(ranks)[rank].clone()


def stage_of(key: str, stages: int) -> tuple[int, str]:
    if not key.startswith("decoder.layers."):
        return (0 if key.startswith("embedding") else stages - 1), key
    head, tail = key.removeprefix("decoder.layers.").split(".", 1)
    stage, local = divmod(int(head), LAYERS // stages)
    return stage, f"decoder.layers.{local}.{tail}"


def save(folder: Path, ranks: int, stages: int, **more: Any) -> Path:
    for rank in range(ranks):
        for stage in range(stages):
            place = folder / "iter_0000120" / f"mp_rank_{rank:02d}"
            place = place if stages == 1 else place.with_name(f"{place.name}_{stage:03d}")
            place.mkdir(parents=True)
            held = {
                stage_of(k, stages)[1]: part(k, v, rank, ranks)
                for k, v in model().items()
                if stage_of(k, stages)[0] == stage
            }
            args = Namespace(
                num_layers=LAYERS,
                hidden_size=HIDDEN,
                num_attention_heads=HEADS,
                group_query_attention=True,
                num_query_groups=KV,
                padded_vocab_size=ROWS,
                make_vocab_size_divisible_by=8,
                tensor_model_parallel_size=ranks,
                pipeline_model_parallel_size=stages,
                lr=1e-4,
            )
            state = {"args": args, "checkpoint_version": 3.0, "iteration": 120, "model": held | more}
            state |= {"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}, "rng_state": [{"seed": 1}]}
            torch.save(state, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("120")
    return folder


def loaded(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        p.parent.name: torch.load(p, weights_only=False) for p in sorted(folder.rglob("model_optim_rng.pt"))
    }


@pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_ranks_and_stages_are_the_model(tmp_path: Path, ranks: int, stages: int) -> None:
    found = remap.open(save(tmp_path / "run", ranks, stages))
    assert found.catalog.format == "megatron"
    assert found.keys() == model().keys()
    assert all(torch.equal(found[k], v) for k, v in model().items())


@pytest.mark.parametrize("stages", [1, 2])
def test_it_is_written_as_megatron_writes_it(tmp_path: Path, stages: int) -> None:
    reshard(save(tmp_path / "run", 1, 2), tmp_path / "out", tp=2, pp=stages)
    save(tmp_path / "wanted", 2, stages)
    out, wanted = loaded(tmp_path / "out"), loaded(tmp_path / "wanted")
    assert out.keys() == wanted.keys()
    for name, state in wanted.items():
        mine = out[name]
        assert mine["model"].keys() == state["model"].keys()
        assert all(torch.equal(mine["model"][k], v) for k, v in state["model"].items())
        assert mine["args"] == state["args"]  # degrees are those of the output
        assert (mine["iteration"], mine["rng_state"]) == (120, [{"seed": 1}])
        assert mine["optimizer"] is None  # it is kept by number, and would be taken for other weights
    assert (tmp_path / "out/latest_checkpointed_iteration.txt").read_text() == "120"


def test_there_and_back_is_the_identity(tmp_path: Path) -> None:
    reshard(save(tmp_path / "run", 2, 2), tmp_path / "one", tp=1, pp=1)
    reshard(tmp_path / "one", tmp_path / "back", tp=2, pp=2)
    before, after = loaded(tmp_path / "run"), loaded(tmp_path / "back")
    assert before.keys() == after.keys()
    for name, state in before.items():
        assert all(torch.equal(after[name]["model"][k], v) for k, v in state["model"].items())


def test_a_tensor_of_two_stages_is_one(tmp_path: Path) -> None:
    shared = torch.ones(3)
    folder = save(tmp_path / "run", 1, 2, shared=shared)
    assert torch.equal(remap.open(registry.open_catalog(folder))["shared"], shared)


def test_the_same_key_with_other_bytes_is_an_error(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", 1, 2, shared=torch.ones(3))
    file = folder / "iter_0000120/mp_rank_00_001/model_optim_rng.pt"
    state = torch.load(file, weights_only=False)
    state["model"]["shared"] += 1
    torch.save(state, file)
    with pytest.raises(Damaged, match="copies of one tensor do not agree"):
        remap.open(registry.open_catalog(folder))["shared"]
    state["model"]["shared"] = torch.ones(4)
    torch.save(state, file)
    with pytest.raises(Damaged, match=r"stages have shared in different shapes: f32\[3\] and f32\[4\]"):
        registry.open_catalog(folder)


def test_a_legacy_model_is_dicts_in_dicts(tmp_path: Path) -> None:
    place = tmp_path / "iter_0000001/mp_rank_00"
    place.mkdir(parents=True)
    words, dense = torch.randn(4, 2), torch.randn(2, 2)
    inside = {
        "embedding": {"word_embeddings": {"weight": words}},
        "encoder": {"layers.0.dense.weight": dense},
    }
    state = {"args": Namespace(num_layers=1), "iteration": 1, "model": {"language_model": inside}}
    torch.save(state, place / "model_optim_rng.pt")
    found = remap.open(tmp_path)
    assert list(found) == [
        "language_model.embedding.word_embeddings.weight",
        "language_model.encoder.layers.0.dense.weight",
    ]
    reshard(tmp_path, tmp_path.with_name("out"))
    (written,) = loaded(tmp_path.with_name("out")).values()
    assert torch.equal(written["model"]["language_model"]["encoder"]["layers.0.dense.weight"], dense)
    assert torch.equal(written["model"]["language_model"]["embedding"]["word_embeddings"]["weight"], words)


def test_a_rank_without_its_file_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", 2, 2)
    (folder / "iter_0000120/mp_rank_01_000/model_optim_rng.pt").unlink()
    with pytest.raises(Damaged, match=r"2 ranks and 2 stages[\s\S]*mp_rank_01_000"):
        registry.open_catalog(folder)


def test_experts_on_ranks_of_their_own_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", 1, 1)
    step = folder / "iter_0000120"
    (step / "mp_rank_00").rename(step / "mp_rank_00_000_000")
    with pytest.raises(InputError, match="experts lie on ranks of their own"):
        registry.open_catalog(folder)


def test_a_tied_model_is_not_cut_into_stages(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", 1, 1)
    file = folder / "iter_0000120/mp_rank_00/model_optim_rng.pt"
    state = torch.load(file, weights_only=False)
    del state["model"]["output_layer.weight"]
    torch.save(state, file)
    with pytest.raises(UsageError, match="the last stage wants a copy of its own"):
        reshard(folder, tmp_path / "out", pp=2)


def test_key_value_heads_are_not_cut(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"kv_heads can't be divided over 4 ranks"):
        reshard(save(tmp_path / "run", 1, 1), tmp_path / "out", tp=4)


def test_it_becomes_a_folder_of_transformers(tmp_path: Path) -> None:
    folder = save(tmp_path / "run", 2, 2)
    api.convert(folder, tmp_path / "hf", ["megatron/llama-to-hf"], to="safetensors")
    found = remap.open(tmp_path / "hf")
    gate, up = model()["decoder.layers.3.mlp.linear_fc1.weight"].chunk(2)
    assert torch.equal(found["model.layers.3.mlp.gate_proj.weight"], gate)
    assert torch.equal(found["model.layers.3.mlp.up_proj.weight"], up)
