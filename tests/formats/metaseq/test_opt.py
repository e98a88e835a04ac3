"""OPT of Hugging Face to metaseq's parts and shards, and back: the same model to transformers."""

from __future__ import annotations

import torch
from formats.metaseq.samples import load, make

import remap
from remap.formats import registry
from remap.reshard import reshard


def test_four_parts_of_two_shards_and_back_give_the_same_logits(tmp_path):
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 32}
    config = OPTConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16)
    model = OPTForCausalLM(config).eval()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
    model.save_pretrained(tmp_path / "hf")
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    reshard(tmp_path / "one", tmp_path / "cut", tp=4, fsdp=2)
    names = sorted(p.name for p in (tmp_path / "cut").glob("*.pt"))
    assert names == [f"reshard-model_part-{j}-shard{i}.pt" for j in range(4) for i in range(2)]
    cfg = load(tmp_path / "cut" / names[0])["cfg"]
    assert (cfg["model"]["decoder_layers"], cfg["model"]["model_parallel_size"]) == (2, 4)
    remap.convert(tmp_path / "cut", tmp_path / "back", ["opt/hf-to-metaseq"], inverse=True, to="safetensors")
    back = OPTForCausalLM.from_pretrained(tmp_path / "back").eval()
    tokens = torch.arange(12).reshape(2, 6)
    assert torch.equal(model(tokens).logits, back(tokens).logits)


def test_what_metaseq_reads_before_it_builds_a_model_is_there(tmp_path):
    """``checkpoint_utils.py``: ``_upgrade_state_dict`` indexes the last of the history and the iterator,
    ``load_model_ensemble_and_task`` asks ``cfg.model.arch`` and ``cfg.common.model_parallel_size``."""
    model = {"model.decoder.embed_tokens.weight": torch.ones(4, 2)}
    torch.save(model, tmp_path / "pytorch_model.bin")
    remap.convert(tmp_path / "pytorch_model.bin", tmp_path / "out", to="metaseq")
    state = load(tmp_path / "out" / "reshard.pt")
    last = state["optimizer_history"][-1]
    assert (last["num_updates"], last["lr_scheduler_state"]) == (0, {"best": None})
    assert state["extra_state"]["train_iterator"] == {"epoch": 1, "iterations_in_epoch": 0}
    assert state["task_state"] == {}
    cfg = state["cfg"]
    assert (cfg["common"]["model_parallel_size"], cfg["model"]["arch"]) == (1, "transformer_lm_megatron")


def test_what_fsdp_lists_under_two_names_is_one_tensor_to_transformers(tmp_path):
    truth = make(tmp_path / "raw", parts=4, shards=2)
    remap.convert(truth.first, tmp_path / "hf", ["opt/hf-to-metaseq"], inverse=True, to="safetensors")
    found = registry.open_catalog(tmp_path / "hf").entries
    assert "model.decoder.embed_tokens.weight" in found
    assert not [k for k in found if "output_projection" in k or "lm_head" in k]
