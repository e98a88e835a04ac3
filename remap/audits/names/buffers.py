"""Buffers that a model computes for itself: masks, rotary frequencies, position ids, batch counters.

Sources: transformers ``_keys_to_ignore_on_load_unexpected`` of GPT-2, GPT-Neo, GPT-J, GPT-NeoX, BERT, CLIP
and their kin; ``modeling_llama.py`` up to 4.37 (rotary_emb.inv_freq, cos_cached, sin_cached); fairseq
``decoder.version`` and ``embed_positions._float_tensor``; torch ``_BatchNorm.num_batches_tracked``; Swin
``relative_position_index``.

Statistics that were learned (running_mean, running_var) are none of them.
"""

from __future__ import annotations

import re

from remap.types import TensorSpec

_ALWAYS = re.compile(
    r"(?:^|\.)(?:masked_bias|inv_freq|(?:cos|sin)_cached|position_ids|token_type_ids|num_batches_tracked"
    r"|relative_position_index|attn_mask|causal_mask|original_inv_freq|freqs_cis|_float_tensor)$"
    r"|^(?:decoder|encoder)\.version$"
)
_MASK = re.compile(r"(?:^|\.)(?:attn|attention|self_attn|self_attention)\.(?:bias|mask)$")
"""A mask if it is square in its last two dimensions; a bias of one dimension is learned."""


def may_be_derivable(key: str) -> bool:
    """Could the model compute it, by its name?"""
    return (_ALWAYS.search(key) or _MASK.search(key)) is not None


def is_derivable(key: str, spec: TensorSpec, *, unshaped: bool = False) -> bool:
    """Does the model compute it, by its name and shape? ``unshaped``: only the name is known."""
    if _ALWAYS.search(key):
        return True
    if unshaped or not _MASK.search(key):
        return False
    shape = spec.shape
    return len(shape) in (2, 4) and shape[-1] == shape[-2] and all(n == 1 for n in shape[:-2])
