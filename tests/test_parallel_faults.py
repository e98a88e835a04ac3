"""What converters in use get wrong when they divide GPT-NeoX and MAGMA, each with the right result.

The faults are those of tools/ckpts/convert_hf_to_sequential.py in EleutherAI/gpt-neox and in MAGMA's fork.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from judges.neox_runs import stored
from safetensors.torch import save_file

from remap import api
from remap.errors import PlanError
from remap.reshard import reshard

HIDDEN, HEADS, INNER, WORDS = 64, 4, 96, 200
KNOWN = {"heads": "4", "gpt_j_residual": "true"}


def neox(layers: int = 1, dtype: torch.dtype = torch.float16, block: str = "") -> dict[str, torch.Tensor]:
    """A GPT-NeoX in pipeline keys; an MLP that is not four times as wide."""
    made = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=made).to(dtype)

    out = {"0.word_embeddings.weight": draw(WORDS, HIDDEN)}
    for i in range(2, layers + 2):
        out |= {
            f"{i}.input_layernorm.weight": draw(HIDDEN),
            f"{i}.input_layernorm.bias": draw(HIDDEN),
            f"{i}.attention.{block}query_key_value.weight": draw(3 * HIDDEN, HIDDEN),
            f"{i}.attention.{block}query_key_value.bias": draw(3 * HIDDEN),
            f"{i}.attention.{block}dense.weight": draw(HIDDEN, HIDDEN),
            f"{i}.attention.{block}dense.bias": draw(HIDDEN),
            f"{i}.post_attention_layernorm.weight": draw(HIDDEN),
            f"{i}.post_attention_layernorm.bias": draw(HIDDEN),
            f"{i}.mlp.{block}dense_h_to_4h.weight": draw(INNER, HIDDEN),
            f"{i}.mlp.{block}dense_h_to_4h.bias": draw(INNER),
            f"{i}.mlp.{block}dense_4h_to_h.weight": draw(HIDDEN, INNER),
            f"{i}.mlp.{block}dense_4h_to_h.bias": draw(HIDDEN),
        }
    return out | {
        f"{layers + 3}.norm.weight": draw(HIDDEN),
        f"{layers + 3}.norm.bias": draw(HIDDEN),
        f"{layers + 4}.final_linear.weight": draw(WORDS, HIDDEN),
    }


def divided(tensors: dict[str, torch.Tensor], folder: Path, tp: int, **more: Any) -> dict[str, torch.Tensor]:
    """What is written of them for ``tp`` ranks."""
    save_file(tensors, folder / "in.safetensors")
    params = KNOWN | more.pop("params", {})
    out = folder / "out"
    api.convert(folder / "in.safetensors", out, to="deepspeed-pipeline", tp=tp, params=params, **more)
    return stored(out)


@pytest.fixture
def two(tmp_path: Path) -> dict[str, torch.Tensor]:
    return divided(neox(), tmp_path, 2)


def test_only_the_vocabulary_is_padded(two: dict[str, torch.Tensor]) -> None:
    # they pad every matrix to 128 rows or columns a rank
    assert two["2.attention.dense.weight@0"].shape == (64, 32)
    assert two["2.attention.query_key_value.weight@1"].shape == (96, 64)
    assert two["0.word_embeddings.weight@1"].shape == (128, 64)  # 200 words: 256 rows


def test_an_mlp_is_as_wide_as_it_is(two: dict[str, torch.Tensor]) -> None:
    # they take the padded size times four for the bias
    assert two["2.mlp.dense_h_to_4h.bias@1"].shape == (48,)
    assert two["2.mlp.dense_4h_to_h.weight@0"].shape == (64, 48)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    # they cast everything to half, and padding makes it float
    assert {t.dtype for t in divided(neox(dtype=dtype), tmp_path, 2).values()} == {dtype}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_summed_bias_comes_back_bit_for_bit(tmp_path: Path, ranks: int) -> None:
    # halves of what float16 has no halves of are rounded, and a zero's sign is lost to +0.0
    tensors = neox()
    bias = tensors["2.attention.dense.bias"]
    bias[:6] = torch.tensor([2.0**-24, 3 * 2.0**-24, -0.0, 0.0, 65504.0, 1e-5])
    divided(tensors, tmp_path, ranks)
    reshard(tmp_path / "out", tmp_path / "back", tp=1)
    found = stored(tmp_path / "back")["2.attention.dense.bias@0"]
    assert found.view(torch.int16).equal(bias.view(torch.int16))


def test_a_file_holds_its_own_part_only(tmp_path: Path) -> None:
    # their parts are views, each file has the storage of all of it
    found = divided(neox(), tmp_path, 2)
    for rank in (0, 1):
        file = tmp_path / f"out/global_step0/layer_02-model_{rank:02d}-model_states.pt"
        payload = sum(v.nbytes for k, v in found.items() if k.startswith("2.") and k.endswith(f"@{rank}"))
        assert file.stat().st_size < payload + 8000


def test_an_adapter_wrapped_model_is_divided(tmp_path: Path) -> None:
    # they raise: "Unknown weight to shard: sequential.2.attention.attn_block.query_key_value.weight"
    adapter = {f"2.{p}.adapter.{n}.weight": torch.ones(s) for p in ("attention", "mlp") for n, s in (
        (0, (16, 64)), (2, (64, 16)))}  # fmt: skip
    adapter |= {k.replace("weight", "bias"): torch.ones(v.shape[0]) for k, v in adapter.items()}
    found = divided(neox(block="attn_block.") | adapter, tmp_path, 2)
    assert found["2.attention.attn_block.query_key_value.weight@1"].shape == (96, 64)
    assert found["2.attention.attn_block.dense.bias@1"].shape == (64,)
    assert all(torch.equal(found[f"{k}@{r}"], v) for k, v in adapter.items() for r in (0, 1))


def test_adapters_that_begin_with_a_norm_are_replicated(tmp_path: Path) -> None:
    # add_layernorm: 0 is the norm, 1 goes down, 3 up
    sizes = {
        "0.weight": (64,),
        "0.bias": (64,),
        "1.weight": (16, 64),
        "1.bias": (16,),
        "3.weight": (64, 16),
        "3.bias": (64,),
    }
    adapter = {f"2.{p}.adapter.{n}": torch.ones(s) for p in ("attention", "mlp") for n, s in sizes.items()}
    found = divided(neox(block="attn_block.") | adapter, tmp_path, 2)
    assert all(torch.equal(found[f"{k}@1"], v) for k, v in adapter.items())


def test_the_image_prefix_comes_along_on_every_rank(tmp_path: Path) -> None:
    # they write word_embeddings over layer_00, and the prefix stays random behind strict=False
    prefix = {
        "0.image_prefix.enc.layer1.0.conv1.weight": torch.ones(4, 3, 1, 1),
        "0.image_prefix.proj.weight": torch.ones(64, 8),
        "0.image_prefix.proj.bias": torch.ones(64),
        "0.image_prefix.ln.weight": torch.ones(64),
        "0.image_prefix.ln.bias": torch.ones(64),
    }
    found = divided(neox(block="attn_block.") | prefix, tmp_path, 2)
    assert all(torch.equal(found[f"{k}@{r}"], v) for k, v in prefix.items() for r in (0, 1))
    back = tmp_path / "back"
    reshard(tmp_path / "out", back, tp=1, params=KNOWN)
    assert all(torch.equal(stored(back)[f"{k}@0"], v) for k, v in prefix.items())


def test_a_hundred_layers(tmp_path: Path) -> None:
    found = divided(neox(layers=101), tmp_path, 2)
    assert (tmp_path / "out/global_step0/layer_102-model_01-model_states.pt").is_file()
    assert found["105.final_linear.weight@0"].shape == (128, 64)
    out = tmp_path / "merged.safetensors"
    api.convert(tmp_path / "out", out, params=KNOWN | {"vocab_size": str(WORDS)})
    assert api.diff(tmp_path / "in.safetensors", out) == []


def test_queries_grouped_as_before_2024_11_are_heads(tmp_path: Path) -> None:
    # 4 heads of 16 rows and 2 of keys and values: one key, one shape, and the code's date decides
    model = neox()
    model["2.attention.query_key_value.weight"] = torch.arange(128.0 * 64).reshape(128, 64).half()
    del model["2.attention.query_key_value.bias"]
    with pytest.raises(PlanError, match=r"gqa is blocks \(.*\) or heads"):
        divided(model, tmp_path, 2)
    whole = model["2.attention.query_key_value.weight"]
    heads = divided(model, tmp_path, 2, params={"gqa": "heads"})
    assert torch.equal(heads["2.attention.query_key_value.weight@1"], whole[64:])
    blocks = divided(model, tmp_path, 2, params={"gqa": "blocks"}, overwrite=True)
    assert torch.equal(
        blocks["2.attention.query_key_value.weight@1"], torch.cat([whole[32:64], whole[80:96], whole[112:]])
    )


def test_a_key_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="known to no layout: whether ranks hold pieces or copies"):
        divided(neox() | {"2.attention.extra.weight": torch.ones(4)}, tmp_path, 2)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def run(neox_runs: Path) -> Path:
    return neox_runs / "tp2"


def rank_file(folder: Path, number: int = 0) -> dict[str, Any]:
    path = folder / f"global_step7/mp_rank_{number:02d}_model_states.pt"
    return torch.load(path, weights_only=False)


def test_other_stages_change_the_rank_files_only(run: Path, tmp_path: Path) -> None:
    reshard(run, tmp_path / "out", pp=2)  # and nothing need be said of the model
    before, after = stored(run), stored(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    names = sorted(p.name for p in (tmp_path / "out/global_step7").glob("mp_rank_*"))
    assert names == [f"mp_rank_{i:02d}_model_states.pt" for i in range(4)]  # stages x ranks
    assert rank_file(tmp_path / "out", 3)["mp_world_size"] == 4
    assert (tmp_path / "out/latest").read_text() == "global_step7"


def test_the_client_state_comes_along_and_is_true(run: Path, tmp_path: Path) -> None:
    receipt = reshard(run, tmp_path / "out", tp=4, params=KNOWN)
    was, now = rank_file(run, 1), rank_file(tmp_path / "out", 3)
    assert now["args"] == was["args"] | {"model_parallel_size": 4}
    assert torch.equal(now["torch_rng_state"], was["torch_rng_state"])
    assert (now["iteration"], now["global_steps"], now["module"]) == (7, was["global_steps"], None)
    assert now["optimizer"] is None
    assert "optimizer" in receipt.left_behind


def test_where_nothing_changes_the_optimizer_stays(run: Path, tmp_path: Path) -> None:
    receipt = reshard(run, tmp_path / "out")
    assert (
        rank_file(tmp_path / "out", 1)["optimizer"]["state"].keys()
        == rank_file(run, 1)["optimizer"]["state"].keys()
    )
    assert receipt.left_behind == []
    left = reshard(run, tmp_path / "without", optimizer=False)
    assert rank_file(tmp_path / "without")["optimizer"] is None
    assert "optimizer" in left.left_behind


def test_the_saved_configuration_comes_along_with_other_degrees(run: Path, tmp_path: Path) -> None:
    import shutil

    source = Path(shutil.copytree(run, tmp_path / "run"))
    (source / "global_step7/configs").mkdir()
    text = (
        '{\n  # small\n  "model-parallel-size": 2,\n  pipe_parallel_size: 1,\n  "gpt_j_residual": true\n}\n'
    )
    (source / "global_step7/configs/small.yml").write_text(text)
    reshard(source, tmp_path / "out", tp=4, pp=2)
    said = (tmp_path / "out/global_step7/configs/small.yml").read_text()
    assert said == text.replace(": 2,", ": 4,").replace("pipe_parallel_size: 1", "pipe_parallel_size: 2")
