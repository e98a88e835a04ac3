"""OPT of Hugging Face to metaseq's parts and shards, and back: the same model to transformers."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest
import torch
from formats.metaseq.samples import edit, load, make

import remap
from remap.errors import InputError
from remap.formats import registry
from remap.parallel import Settings
from remap.reshard import reshard

SIZES = {"vocab_size": 64, "hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 32}
TOKENS = torch.arange(12).reshape(2, 6)


def saved(folder, **settings):
    """A model of transformers, which it is saved from."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        **SIZES | {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16} | settings
    )
    model = OPTForCausalLM(config).eval()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
    model.save_pretrained(folder)
    return model


def without_config(folder):
    """As a training run leaves it."""
    for name in ("config.json", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    return folder


def logits(folder):
    from transformers import OPTForCausalLM

    return OPTForCausalLM.from_pretrained(folder).eval()(TOKENS).logits


def back(source, folder):
    return remap.convert(source, folder, ["opt/hf-to-metaseq"], inverse=True, to="safetensors")


def test_four_parts_of_two_shards_and_back_give_the_same_logits(tmp_path):
    model = saved(tmp_path / "hf")
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    reshard(tmp_path / "one", tmp_path / "cut", tp=4, fsdp=2)
    names = sorted(p.name for p in (tmp_path / "cut").glob("*.pt"))
    assert names == [f"reshard-model_part-{j}-shard{i}.pt" for j in range(4) for i in range(2)]
    cfg = load(tmp_path / "cut" / names[0])["cfg"]
    assert (cfg["model"]["decoder_layers"], cfg["model"]["model_parallel_size"]) == (2, 4)
    back(without_config(tmp_path / "cut"), tmp_path / "back")
    assert torch.equal(model(TOKENS).logits, logits(tmp_path / "back"))


def test_shapes_win_over_a_stale_configuration(tmp_path):
    model = saved(tmp_path / "hf", activation_function="gelu", dropout=0.25)
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    lies = {
        "decoder_layers": 7,
        "decoder_embed_dim": 1,
        "decoder_ffn_embed_dim": 1,
        "max_target_positions": 9,
    }
    edit(
        without_config(tmp_path / "one") / "reshard.pt",
        lambda s: s["cfg"].update(model=Namespace(**{**s["cfg"]["model"], **lies})),
    )
    receipt = back(tmp_path / "one", tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (
        config.items()
        >= (SIZES | {"num_hidden_layers": 2, "max_position_embeddings": 16, "num_attention_heads": 4}).items()
    )
    assert (config["activation_function"], config["dropout"]) == ("gelu", 0.25)
    assert torch.equal(model(TOKENS).logits, logits(tmp_path / "back"))
    assert "config.json" in receipt.files
    assert remap.verify(tmp_path / "back", against=tmp_path / "one")[1] == []


def test_a_small_embedding_with_norms_behind_the_blocks(tmp_path):
    """The form of OPT-350m: projections, and no last norm."""
    model = saved(tmp_path / "hf", word_embed_proj_dim=8, do_layer_norm_before=False)
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    reshard(tmp_path / "one", tmp_path / "cut", tp=2)
    back(without_config(tmp_path / "cut"), tmp_path / "back")
    assert torch.equal(model(TOKENS).logits, logits(tmp_path / "back"))


def test_a_head_of_its_own_goes_there_and_back(tmp_path):
    model = saved(tmp_path / "hf", tie_word_embeddings=False)
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    state = load(tmp_path / "one" / "reshard.pt")
    assert state["cfg"]["model"]["share_decoder_input_output_embed"] is False
    assert torch.equal(state["model"]["decoder.output_projection.weight"], model.lm_head.weight)
    reshard(tmp_path / "one", tmp_path / "cut", tp=2, fsdp=2)
    back(without_config(tmp_path / "cut"), tmp_path / "back")
    assert torch.equal(model(TOKENS).logits, logits(tmp_path / "back"))


def test_a_head_that_is_not_the_embedding_though_the_config_says_so_is_refused(tmp_path):
    saved(tmp_path / "hf", tie_word_embeddings=False)
    config = json.loads((tmp_path / "hf" / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="do not agree") as caught:
        remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    assert "-p tied=false" in str(caught.value)


def test_a_config_beside_the_files_wins(tmp_path):
    truth = make(tmp_path / "raw")
    (tmp_path / "raw" / "config.json").write_text('{"model_type": "opt", "mine": 1}')
    back(truth.first, tmp_path / "hf")
    assert (tmp_path / "hf" / "config.json").read_text() == '{"model_type": "opt", "mine": 1}'


def test_no_config_is_made_for_names_that_are_not_transformers(tmp_path):
    saved(tmp_path / "hf")
    remap.convert(tmp_path / "hf", tmp_path / "one", ["opt/hf-to-metaseq"], to="metaseq")
    remap.convert(without_config(tmp_path / "one"), tmp_path / "same", to="safetensors")
    assert not (tmp_path / "same" / "config.json").exists()


def test_copies_that_differed_are_verified_against_the_source(tmp_path):
    truth = make(tmp_path / "raw", parts=2, shards=1)
    edit(truth.files[1, 0], lambda s: s["model"]["flat_param_0"].add_(1))
    settings = Settings(copies="first")
    remap.convert(truth.first, tmp_path / "out", to="safetensors", settings=settings)
    assert remap.verify(tmp_path / "out", against=truth.first)[1] == []


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
