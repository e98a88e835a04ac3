"""Public bug reports about adapters, each with the behaviour that would have been right. More of them are
rows of tests/data/cases.json, which audits are held to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import remap
from remap.adapters import extract, graft, migrate, read
from remap.dialects import registry
from remap.errors import Damaged, NotACheckpoint, UsageError


def adapter(folder: Path, keys: dict[str, tuple[int, ...]], **config: object) -> Path:
    folder.mkdir()
    save_file({k: torch.rand(s) for k, s in keys.items()}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    return folder


def test_the_word_weight_in_a_module_s_name(tmp_path: Path) -> None:
    """https://github.com/huggingface/peft/issues/2772"""
    front = "base_model.model.enc.pair_weighted_avg.lin"
    keys = {f"{front}.lora_A.weight": (1, 2), f"{front}.lora_B.weight": (2, 1)}
    save_file({"enc.pair_weighted_avg.lin.weight": torch.ones(2, 2)}, tmp_path / "base.safetensors")
    graft(tmp_path / "base.safetensors", adapter(tmp_path / "a", keys), tmp_path / "m.safetensors")
    assert set(load_file(tmp_path / "m.safetensors")) == {
        f"{front}.lora_A.default.weight",
        f"{front}.lora_B.default.weight",
        f"{front}.base_layer.weight",
    }


def test_an_adapter_that_is_called_lora_gets_another_name(tmp_path: Path) -> None:
    """https://github.com/huggingface/peft/issues/2699"""
    front = "base_model.model.q_proj"
    state = {
        f"{front}.lora_A.lora.weight": torch.rand(1, 2),
        f"{front}.lora_B.lora.weight": torch.rand(2, 1),
        f"{front}.base_layer.weight": torch.rand(2, 2),
    }
    save_file(state, tmp_path / "model.safetensors")
    extract(tmp_path / "model.safetensors", tmp_path / "a", name="lora", settings={"lora_alpha": 1})
    extract(tmp_path / "model.safetensors", tmp_path / "base.safetensors", part="base")
    graft(tmp_path / "base.safetensors", tmp_path / "a", tmp_path / "m.safetensors")
    found = load_file(tmp_path / "m.safetensors")
    assert found.keys() == {k.replace(".lora.", ".default.") for k in state}
    for name in ("lora_A", "weight", "a.b", ""):
        with pytest.raises(UsageError, match="can't be called"):
            graft(tmp_path / "base.safetensors", tmp_path / "a", tmp_path / "n.safetensors", name=name)


def test_factors_without_elements(tmp_path: Path) -> None:
    """https://github.com/huggingface/peft/issues/1443"""
    front = "base_model.model.gate_proj"
    keys = {f"{front}.lora_A.weight": (2, 4), f"{front}.lora_B.weight": (0,)}
    with pytest.raises(Damaged, match="not whole") as refused:
        migrate(adapter(tmp_path / "a", keys, r=2), tmp_path / "out.safetensors", to="kohya")
    assert refused.value.problems[0].startswith(f"{front}.lora_B.weight: its shape is [0]")


def test_weights_of_the_base_in_an_adapter_s_file(tmp_path: Path) -> None:
    """https://github.com/huggingface/peft/issues/2092"""
    front = "base_model.model.lm_head"
    keys = {
        f"{front}.base_layer.weight": (8, 2),
        f"{front}.lora_A.weight": (1, 2),
        f"{front}.lora_B.weight": (8, 1),
    }
    source = adapter(tmp_path / "a", keys, r=1)
    with pytest.raises(UsageError, match=r"1 tensors \(62% of the bytes\) are no peft adapter's"):
        migrate(source, tmp_path / "out", to="peft")
    migrate(source, tmp_path / "dropped", to="peft", others="drop")
    assert len(remap.open(tmp_path / "dropped")) == 2
    migrate(source, tmp_path / "kept", to="peft", others="keep")
    assert remap.diff(tmp_path / "kept", source) == []


def test_underscores_that_are_part_of_a_name(tmp_path: Path) -> None:
    """https://github.com/huggingface/diffusers/issues/14005"""
    state = {
        "lora_unet_conv_in.lora_down.weight": torch.rand(1, 4),
        "lora_unet_conv_in.lora_up.weight": torch.rand(4, 1),
    }
    save_file(state, tmp_path / "k.safetensors")
    migrate(tmp_path / "k.safetensors", tmp_path / "p.safetensors", to="peft")
    assert set(load_file(tmp_path / "p.safetensors")) == {
        "unet.conv_in.lora_A.weight",
        "unet.conv_in.lora_B.weight",
    }


def test_dora_s_scale_is_not_lost(tmp_path: Path) -> None:
    """https://github.com/kohya-ss/musubi-tuner/issues/206"""
    state = {
        "lora_unet_b0_q.dora_scale": torch.rand(4, 1),
        "lora_unet_b0_q.lora_down.weight": torch.rand(2, 4),
        "lora_unet_b0_q.lora_up.weight": torch.rand(4, 2),
    }
    save_file(state, tmp_path / "k.safetensors")
    (tmp_path / "base.json").write_text(json.dumps({"b0.q.weight": [[4, 4], "float32"]}))
    migrate(tmp_path / "k.safetensors", tmp_path / "p", to="peft", base=tmp_path / "base.json")
    found = load_file(tmp_path / "p" / "adapter_model.safetensors")
    lengths = found["base_model.model.b0.q.lora_magnitude_vector"]
    assert torch.equal(lengths, state["lora_unet_b0_q.dora_scale"].flatten())
    assert json.loads((tmp_path / "p" / "adapter_config.json").read_text())["use_dora"] is True


def test_nothing_was_read(tmp_path: Path) -> None:
    """https://github.com/modelscope/ms-swift/issues/7891: an empty state dict is no adapter."""
    save_file({"step": torch.ones(1)}, tmp_path / "adapter.safetensors")
    with pytest.raises(NotACheckpoint) as refused:
        migrate(tmp_path / "adapter.safetensors", tmp_path / "out", to="peft")
    assert refused.value.problems == (str(tmp_path / "adapter.safetensors"),)


def test_only_modules_with_an_adapter_get_a_base_layer(tmp_path: Path) -> None:
    """https://github.com/huggingface/peft/pull/3000"""
    keys = {"base_model.model.q.lora_A.weight": (1, 2), "base_model.model.q.lora_B.weight": (2, 1)}
    save_file({"q.weight": torch.ones(2, 2), "o.weight": torch.ones(2, 2)}, tmp_path / "base.safetensors")
    graft(tmp_path / "base.safetensors", adapter(tmp_path / "a", keys), tmp_path / "m.safetensors")
    found = {k for k in load_file(tmp_path / "m.safetensors") if "lora" not in k}
    assert found == {"base_model.model.q.base_layer.weight", "base_model.model.o.weight"}


def test_rows_are_never_cut_to_fit(tmp_path: Path) -> None:
    """https://github.com/Aleph-Alpha-Research/magma/issues/27: a head of 50400 rows is another model's."""
    keys = {"base_model.model.lm_head.weight": (504, 4), "base_model.model.q.lora_A.weight": (1, 4),
            "base_model.model.q.lora_B.weight": (4, 1)}  # fmt: skip
    save_file(
        {"q.weight": torch.ones(4, 4), "lm_head.weight": torch.ones(502, 4)}, tmp_path / "base.safetensors"
    )
    source = adapter(tmp_path / "a", keys, modules_to_save=["lm_head"])
    with pytest.raises(UsageError, match="other sizes") as refused:
        graft(tmp_path / "base.safetensors", source, tmp_path / "m.safetensors")
    assert refused.value.problems == ("lm_head.weight: the adapter has f32[504,4], the base f32[502,4]",)


def test_an_embedding_that_was_trained_in_full(tmp_path: Path) -> None:
    """https://github.com/unslothai/unsloth-zoo/pull/932"""
    base = {"model.embed_tokens.weight": torch.rand(10, 4), "model.q.weight": torch.rand(4, 4)}
    save_file(base, tmp_path / "base.safetensors")
    front = "base_model.model.model"
    state = {
        f"{front}.embed_tokens.weight": torch.rand(10, 4),
        f"{front}.q.base_layer.weight": base["model.q.weight"],
        f"{front}.q.lora_A.default.weight": torch.rand(1, 4),
        f"{front}.q.lora_B.default.weight": torch.rand(4, 1),
    }
    save_file(state, tmp_path / "m.safetensors")
    extract(
        tmp_path / "m.safetensors",
        tmp_path / "a",
        base=tmp_path / "base.safetensors",
        settings={"lora_alpha": 1},
    )
    found = load_file(tmp_path / "a" / "adapter_model.safetensors")
    assert torch.equal(found[f"{front}.embed_tokens.weight"], state[f"{front}.embed_tokens.weight"])
    assert len(found) == 3
    assert read(tmp_path / "a").config["modules_to_save"] == ["model.embed_tokens"]


def test_names_of_magma_s_attributes() -> None:
    """https://github.com/Aleph-Alpha/magma: ``module`` and a number of a Sequential are wrappers where an
    adapter is beside them; putting one in twice is not to give two."""
    magma = registry.get("magma")
    keys = [
        "h.0.attn.module.q_proj.weight",
        "h.0.attn.adapter.0.weight",
        "h.0.mlp.1.adapter.0.weight",
        "h.0.mlp.0.w",
    ]
    tensors = [t for t in map(magma.parse, keys) if t]
    around = magma.around(tensors, keys)  # type: ignore[attr-defined]
    assert around == {"h.0.attn": ("module",), "h.0.mlp": ("0",)}
    assert read_bare(keys, around) == ["h.0.attn.q_proj.weight", "h.0.mlp.w"]


def read_bare(keys: list[str], around: dict[str, tuple[str, ...]]) -> list[str]:
    from remap.dialects.wrapping import bare

    return [bare(k, around) for k in keys if "adapter" not in k]


def test_megatron_s_wrapped_modules_apart_and_together(tmp_path: Path) -> None:
    """Megatron-Bridge keeps the module in ``to_wrap``, beside its adapter."""
    front = "decoder.layers.0.self_attention.linear_qkv"
    state = {
        f"{front}.to_wrap.weight": torch.rand(6, 4),
        f"{front}.adapter.linear_in.weight": torch.rand(2, 4),
        f"{front}.adapter.linear_out.weight": torch.rand(6, 2),
        "decoder.layers.0.mlp.linear_fc1.weight": torch.rand(8, 4),
    }
    save_file(state, tmp_path / "m.safetensors")
    extract(tmp_path / "m.safetensors", tmp_path / "a")
    extract(tmp_path / "m.safetensors", tmp_path / "base.safetensors", part="base")
    assert set(load_file(tmp_path / "base.safetensors")) == {
        f"{front}.weight",
        "decoder.layers.0.mlp.linear_fc1.weight",
    }
    graft(tmp_path / "base.safetensors", tmp_path / "a", tmp_path / "again.safetensors")
    assert remap.diff(tmp_path / "again.safetensors", tmp_path / "m.safetensors") == []
