"""Other parts of a checkpoint by their names: vision, quantisation, optimizer, extra state, flat parameters.

Sources: MAGMA ``image_prefix.py``; LLaVA ``mm_projector``, ``vision_tower``; transformers' LLaVA, Qwen2-VL,
Idefics; AutoGPTQ and AWQ ``qlinear`` (qweight, qzeros, scales, g_idx); bitsandbytes ``nn/modules.py``
(absmax, quant_map, SCB); compressed-tensors and DeepSeek-V3 (weight_scale, weight_scale_inv); torch
``optim`` state (exp_avg, exp_avg_sq, momentum_buffer), ``nn.Module.get_extra_state``, FSDP ``flat_param``.
"""

from __future__ import annotations

import re

_VISION = re.compile(
    r"(?:^|\.)(image_prefix|vision_tower|vision_model|vision_encoder|visual|image_encoder|image_newline"
    r"|multi_modal_projector|multimodal_projector|mm_projector|visual_projection|vision_embed_tokens)(?:\.|$)"
)
_QUANTISATION = re.compile(
    r"(?:^|\.)(?:qweight|qzeros|scales|g_idx|weight_scale|weight_scale_inv|input_scale|output_scale|weight_zero_point"
    r"|weight_packed|weight_shape|weight_scale_2|weight_global_scale|input_global_scale|k_scale|v_scale|kv_scale"
    r"|SCB|weight_format|(?:nested_)?absmax|(?:nested_)?quant_map|quant_state\.\w+|bitsandbytes__\w+)(?:\.|$)"
)
_OPTIMIZER = re.compile(
    r"^(?:\w+\.)?(?:optimizers?|optim|optimizer_states?|lr_schedulers?|scheduler|grad_scaler|loss_scaler|scaler)\."
    r"|(?:^|\.)(?:exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|square_avg|acc_delta)(?:\.|$)"
)
_EXTRA = re.compile(r"(?:^|\.)_extra_state(?:\.|$)")
_FLAT = re.compile(r"(?:^|\.)_?flat_param(?:_\d+)?(?:\.|$)")


def vision_root(key: str) -> str:
    """The path of the tower that the key is in (``0.image_prefix``); empty where it is in none."""
    found = _VISION.search(key)
    return key[: found.end(1)] if found else ""


def is_quantisation(key: str) -> bool:
    """A companion of a quantised weight: scales, zero points, packed weights."""
    return _QUANTISATION.search(key) is not None


def is_optimizer(key: str) -> bool:
    """State of an optimizer, scheduler or loss scaler."""
    return _OPTIMIZER.search(key) is not None


def is_extra_state(key: str) -> bool:
    """What ``get_extra_state`` of a module gave."""
    return _EXTRA.search(key) is not None


def is_flat(key: str) -> bool:
    """A flat parameter of FSDP: many tensors in one."""
    return _FLAT.search(key) is not None
