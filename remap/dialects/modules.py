"""Which module a flattened name means: ``down_blocks_0_attentions_0_proj_in``.

An underscore was a dot, or was none; only a list of modules tells. Diffusion models' lists are here, numbers
as ``{}``: read from the names of weights in diffusers' SD 1.5, SDXL, SD 3 and FLUX, and transformers' CLIP
and T5 encoders. For any other model the base's keys are asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

UNET = """
add_embedding.linear_1 add_embedding.linear_2 time_embedding.linear_1 time_embedding.linear_2 conv_in
conv_out {block}.attentions.{}.proj_in {block}.attentions.{}.proj_out
{block}.attentions.{}.transformer_blocks.{}.attn1.to_q
{block}.attentions.{}.transformer_blocks.{}.attn1.to_k
{block}.attentions.{}.transformer_blocks.{}.attn1.to_v
{block}.attentions.{}.transformer_blocks.{}.attn1.to_out.{}
{block}.attentions.{}.transformer_blocks.{}.attn2.to_q
{block}.attentions.{}.transformer_blocks.{}.attn2.to_k
{block}.attentions.{}.transformer_blocks.{}.attn2.to_v
{block}.attentions.{}.transformer_blocks.{}.attn2.to_out.{}
{block}.attentions.{}.transformer_blocks.{}.ff.net.{}
{block}.attentions.{}.transformer_blocks.{}.ff.net.{}.proj {block}.resnets.{}.conv1 {block}.resnets.{}.conv2
{block}.resnets.{}.conv_shortcut {block}.resnets.{}.time_emb_proj {block}.downsamplers.{}.conv
{block}.upsamplers.{}.conv
"""
BLOCKS = ("down_blocks.{}", "up_blocks.{}", "mid_block")
TRANSFORMER = """
context_embedder x_embedder proj_out norm_out.linear pos_embed.proj
time_text_embed.guidance_embedder.linear_1 time_text_embed.guidance_embedder.linear_2
time_text_embed.text_embedder.linear_1 time_text_embed.text_embedder.linear_2
time_text_embed.timestep_embedder.linear_1 time_text_embed.timestep_embedder.linear_2
single_transformer_blocks.{}.attn.to_q single_transformer_blocks.{}.attn.to_k
single_transformer_blocks.{}.attn.to_v single_transformer_blocks.{}.norm.linear
single_transformer_blocks.{}.proj_mlp single_transformer_blocks.{}.proj_out transformer_blocks.{}.attn.to_q
transformer_blocks.{}.attn.to_k transformer_blocks.{}.attn.to_v transformer_blocks.{}.attn.to_out.{}
transformer_blocks.{}.attn.to_add_out transformer_blocks.{}.attn.add_q_proj
transformer_blocks.{}.attn.add_k_proj transformer_blocks.{}.attn.add_v_proj transformer_blocks.{}.ff.net.{}
transformer_blocks.{}.ff.net.{}.proj transformer_blocks.{}.ff_context.net.{}
transformer_blocks.{}.ff_context.net.{}.proj transformer_blocks.{}.norm1.linear
transformer_blocks.{}.norm1_context.linear
"""
TEXT = """
text_model.embeddings.token_embedding text_model.embeddings.position_embedding text_projection
text_model.encoder.layers.{}.self_attn.q_proj text_model.encoder.layers.{}.self_attn.k_proj
text_model.encoder.layers.{}.self_attn.v_proj text_model.encoder.layers.{}.self_attn.out_proj
text_model.encoder.layers.{}.mlp.fc1 text_model.encoder.layers.{}.mlp.fc2
encoder.block.{}.layer.{}.SelfAttention.q encoder.block.{}.layer.{}.SelfAttention.k
encoder.block.{}.layer.{}.SelfAttention.v encoder.block.{}.layer.{}.SelfAttention.o
encoder.block.{}.layer.{}.DenseReluDense.wi encoder.block.{}.layer.{}.DenseReluDense.wi_0
encoder.block.{}.layer.{}.DenseReluDense.wi_1 encoder.block.{}.layer.{}.DenseReluDense.wo
"""
COMPONENTS = ("unet", "transformer", "text_encoder", "text_encoder_2", "text_encoder_3")
"""The parts of a diffusion pipeline that take adapters: diffusers puts their names in front."""


def flat(module: str) -> str:
    """Its name without dots."""
    return module.replace(".", "_")


def index(keys: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Flattened name -> the modules of a base that it may mean, from the keys of its weights."""
    found: dict[str, set[str]] = {}
    for module in {key.rpartition(".")[0] for key in keys}:
        found.setdefault(flat(module), set()).add(module)
    return {name: frozenset(modules) for name, modules in found.items()}


@cache
def shipped(name: str) -> frozenset[tuple[str, str]]:
    """(component, module) that a flattened name may mean in a diffusion pipeline."""
    found = set()
    for kind, pattern, template in _patterns():
        match = pattern.fullmatch(name)
        if match:
            found.add((kind, template.format(*match.groups())))
    return frozenset(found)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    unet = [t.replace("{block}", b) for t in UNET.split() for b in (BLOCKS if "{block}" in t else ("",))]
    lists = {"unet": unet, "transformer": TRANSFORMER.split(), "text_encoder": TEXT.split()}
    return tuple(
        (kind, re.compile(r"(\d+)".join(map(re.escape, flat(t).split("{}")))), t)
        for kind, templates in lists.items()
        for t in templates
    )
