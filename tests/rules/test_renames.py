"""Packs that only rename, judged by the libraries whose names they are: what is loaded under the new names
computes what it computed under the old ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from audits import magma_model
from safetensors.torch import load_file, save_file
from torch import nn

from remap import api


def test_berts_gamma_and_beta_are_loaded_as_transformers_loads_them(tmp_path: Path) -> None:
    """transformers renames ``LayerNorm.gamma`` by itself: what it makes of a file as of 0.3 is the judge."""
    transformers = pytest.importorskip("transformers", minversion="5")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 12, "num_attention_heads": 4}
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=64, **sizes)).eval()
    for n, (name, p) in enumerate(model.named_parameters()):
        if "LayerNorm" in name:
            p.data = torch.randn(p.shape, generator=torch.Generator().manual_seed(n))
    model.save_pretrained(tmp_path / "new")
    old = tmp_path / "old"
    api.convert(tmp_path / "new", old, ["bert/legacy-norms"], inverse=True)
    assert "bert.encoder.layer.11.output.LayerNorm.gamma" in load_file(old / "model.safetensors")

    judged = transformers.BertForMaskedLM.from_pretrained(old).eval()
    api.convert(old, tmp_path / "again", ["bert/legacy-norms"])
    ours = transformers.BertForMaskedLM.from_pretrained(tmp_path / "again").eval()
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        wanted = model(tokens).logits
        assert torch.equal(judged(tokens).logits, wanted)
        assert torch.equal(ours(tokens).logits, wanted)


def test_a_bert_by_itself_is_the_body_of_one_with_a_head(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(vocab_size=64, **sizes)
    body = transformers.BertModel(config, add_pooling_layer=False).eval()
    body.save_pretrained(tmp_path / "body")
    api.convert(tmp_path / "body", tmp_path / "named.safetensors", ["bert/add-prefix"])
    whole = transformers.BertForMaskedLM(config).eval()
    said = whole.load_state_dict(load_file(tmp_path / "named.safetensors"), strict=False)
    assert all(k.startswith("cls.") for k in said.missing_keys)
    assert not said.unexpected_keys
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(whole.bert(tokens)[0], body(tokens)[0])


@pytest.mark.filterwarnings("ignore:`?torch.nn.utils.weight_norm`? is deprecated:FutureWarning")
def test_weight_norm_of_a_hook_computes_the_same_as_a_parametrization(tmp_path: Path) -> None:
    def convolution(wrap: object) -> nn.Module:
        conv = nn.Conv1d(16, 16, 8, padding=4, groups=4)
        module = nn.Module()
        module.pos_conv_embed = nn.Module()
        module.pos_conv_embed.conv = wrap(conv, name="weight", dim=2)  # type: ignore[operator]
        return module

    old, new = convolution(nn.utils.weight_norm), convolution(nn.utils.parametrizations.weight_norm)
    save_file({f"encoder.{k}": v.clone() for k, v in old.state_dict().items()}, tmp_path / "old.safetensors")
    api.convert(tmp_path / "old.safetensors", tmp_path / "new.safetensors", ["wav2vec2/weight-norm"])
    state = load_file(tmp_path / "new.safetensors")
    new.load_state_dict({k.removeprefix("encoder."): v for k, v in state.items()})
    x = torch.randn(2, 16, 20)
    with torch.no_grad():
        assert torch.equal(new.pos_conv_embed.conv(x), old.pos_conv_embed.conv(x))
    swapped = dict(state)
    swapped["encoder.pos_conv_embed.conv.parametrizations.weight.original0"] *= 2
    new.load_state_dict({k.removeprefix("encoder."): v for k, v in swapped.items()})
    with torch.no_grad():
        assert not torch.equal(new.pos_conv_embed.conv(x), old.pos_conv_embed.conv(x)), "it is not chance"


@pytest.mark.parametrize("library", ["timm", "open_clip"])
def test_an_image_encoder_is_magmas_image_prefix(tmp_path: Path, library: str) -> None:
    """A timm model is the encoder; open_clip's has it as ``visual``, beside what is dropped: a ResNet's
    attention pooling, which MAGMA replaces by a reshape, and the text."""
    model = magma_model.build()
    encoder = magma_model.ImagePrefix().enc.eval()
    state = {k: v.clone() for k, v in encoder.state_dict().items()}
    if library == "open_clip":
        state = {f"visual.{k}": v for k, v in state.items()}
        state |= {"logit_scale": torch.ones(()), "transformer.resblocks.0.ln_1.weight": torch.ones(4)}
        state |= {"visual.attnpool.c_proj.weight": torch.ones(4, 8)}
    save_file(state, tmp_path / "encoder.safetensors")
    api.convert(tmp_path / "encoder.safetensors", tmp_path / "out.safetensors", ["magma/image-prefix"])
    said = model.load_state_dict(load_file(tmp_path / "out.safetensors"), strict=False)
    assert not said.unexpected_keys
    assert not any(k.startswith("0.image_prefix.enc.") for k in said.missing_keys)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        loaded = model.get_submodule("0.image_prefix.enc").eval()
        assert torch.equal(loaded(images), encoder(images))


def test_timms_nf_resnet_is_a_sequential_of_its_children_in_magma(tmp_path: Path) -> None:
    """As ``magma/image_encoders.py`` builds it: the children without the head, then a pooling."""

    class NormFree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential()
            self.stem.add_module("conv", Scaled(3, 8, 3))
            self.stages = nn.Sequential(nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)))
            self.final_conv = nn.Identity()
            self.final_act = nn.ReLU()
            self.head = nn.Linear(8, 10)

    class Scaled(nn.Conv2d):
        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            self.gain = nn.Parameter(torch.rand(8, 1, 1, 1))

    model = NormFree()
    children = nn.Sequential(*list(model.children())[:-1])
    wanted = nn.Sequential(children, nn.AdaptiveAvgPool2d((1, 1))).state_dict()
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    api.convert(tmp_path / "timm.safetensors", tmp_path / "out.safetensors", ["magma/image-prefix"])
    found = load_file(tmp_path / "out.safetensors")
    assert found.keys() == {f"0.image_prefix.enc.{k}" for k in wanted}
    assert all(torch.equal(found[f"0.image_prefix.enc.{k}"], v) for k, v in wanted.items())
