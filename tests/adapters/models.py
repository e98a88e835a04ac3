"""Small real models, in the names that transformers gives them and in others that packs lead to.

A renamed model is the model of transformers with its modules under other names: PEFT wraps what it finds
there, and the model's own code runs it.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from torch import nn

VOCABULARY, WIDTH, HEADS, LAYERS = 96, 32, 4, 2

SIDEWAYS = """
remap: 1
pack: test/sideways
version: 1.0.0
title: GPT-NeoX under other names
stages:
  - rules:
      - {id: attention, from: "gpt_neox.layers.{i:int}.attention.{m:query_key_value=qkv|dense=out}.{p}",
         to: "gpt_neox.blocks.{i}.attention.{m}.{p}"}
      - {id: mlp, from: "gpt_neox.layers.{i:int}.mlp.{m:dense_h_to_4h=up|dense_4h_to_h=down}.{p}",
         to: "gpt_neox.blocks.{i}.mlp.{m}.{p}"}
      - {id: norms, from: "gpt_neox.layers.{i:int}.{n:input_layernorm|post_attention_layernorm}.{p}",
         to: "gpt_neox.blocks.{i}.{n}.{p}", optional: true}
      - {id: words, from: "gpt_neox.embed_in.weight", to: "gpt_neox.words.weight", optional: true}
      - {id: head, from: "lm_head.weight", to: "output.weight", optional: true}
      - keep: "gpt_neox.final_layer_norm.{p}"
        optional: true
"""
"""Every module has another name."""

SPLIT = """
remap: 1
pack: test/split
version: 1.0.0
title: GPT-NeoX with query, key and value apart
params:
  heads: {from_config: num_attention_heads}
stages:
  - rules:
      - {id: qkv, from: "gpt_neox.layers.{i:int}.attention.query_key_value.{p:weight|bias}",
         to: ["gpt_neox.layers.{i}.attention.q.{p}", "gpt_neox.layers.{i}.attention.k.{p}",
              "gpt_neox.layers.{i}.attention.v.{p}"],
         do: {split_qkv: {layout: heads, heads: heads}}}
      - keep: "**"
        optional: true
"""
"""The fused projection, head by head, becomes three."""

CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 32,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}


def neox(layers: int = LAYERS, seed: int = 0) -> transformers.GPTNeoXForCausalLM:
    """GPT-NeoX, random, with biases that are not zero; the head is its own."""
    config = transformers.GPTNeoXConfig(
        **{**CONFIG, "num_hidden_layers": layers, "tie_word_embeddings": False}
    )
    return randomised(transformers.GPTNeoXForCausalLM(config), seed)


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with all parameters drawn anew, so that none is the same in two models or zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.copy_(drawn + (1.0 if "norm" in name and name.endswith("weight") else 0.0))
    return model.eval()


def logits(model: nn.Module) -> torch.Tensor:
    """What a model says of a fixed text."""
    with torch.no_grad():
        return model(torch.arange(2, 14)[None]).logits


def sideways(folder: Path, model: nn.Module | None = None) -> nn.Module:
    """The model of SIDEWAYS' names, with the weights of a folder."""
    model = model or neox(seed=9)
    moved(model.gpt_neox, "embed_in", "words")
    moved(model, "lm_head", "output")
    for block in model.gpt_neox.layers:
        moved(block.attention, "query_key_value", "qkv")
        moved(block.attention, "dense", "out")
        moved(block.mlp, "dense_h_to_4h", "up")
        moved(block.mlp, "dense_4h_to_h", "down")
    moved(model.gpt_neox, "layers", "blocks")
    return loaded(model, folder)


def split(folder: Path, layers: int = LAYERS) -> nn.Module:
    """The model of SPLIT's names, with the weights of a folder."""
    model = neox(layers, seed=9)
    for block in model.gpt_neox.layers:
        attention = block.attention
        del attention.query_key_value
        for name in "qkv":
            setattr(attention, name, nn.Linear(WIDTH, WIDTH))
        attention.__class__ = _Split
    return loaded(model, folder)


class _Split(
    type(transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**CONFIG)).gpt_neox.layers[0].attention)
):  # type: ignore[misc]
    @property
    def query_key_value(self):  # type: ignore[no-untyped-def]
        def fused(hidden: torch.Tensor) -> torch.Tensor:
            parts = [f(hidden).unflatten(-1, (HEADS, 1, -1)) for f in (self.q, self.k, self.v)]
            return torch.cat(parts, -2).flatten(-3)

        return fused


def moved(module: nn.Module, old: str, new: str) -> None:
    """A submodule under another name; the code that asks for the old one is given the new."""
    module._modules[new] = module._modules.pop(old)
    kind = type(module)
    if not isinstance(getattr(kind, old, None), property):
        module.__class__ = type(kind.__name__, (kind,), {old: property(lambda self: getattr(self, new))})


def saved(model: nn.Module, folder: Path, *without: str) -> Path:
    """A folder with the model's weights under the names that they have in it, and its configuration.
    ``save_pretrained`` would give GPT-NeoX's head its old name."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.contiguous() for k, v in model.state_dict().items() if k not in without}
    save_file(tensors, folder / "model.safetensors")
    model.config.save_pretrained(folder)
    return folder


def loaded(model: nn.Module, folder: Path) -> nn.Module:
    """The model with the weights of a folder; every one must fit."""
    from safetensors.torch import load_file

    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return model.eval()
