"""PEFT: what ``save_pretrained`` writes.

    base_model.model.h.0.attn.c_attn.lora_A.weight      in adapter_model.safetensors
    base_model.vera_A                                   what all modules share
    prompt_embeddings                                   prompt learning

diffusers and others leave ``base_model.model`` out. Sources: peft 0.21 ``tuners/*/layer.py``
(``adapter_layer_names``), ``utils/save_and_load.py`` (``get_peft_model_state_dict``), ``utils/other.py``
(``ModulesToSaveWrapper``, ``TrainableTokensWrapper``).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.plain import joined

_LAYERS = """
lora_A lora_B lora_E lora_embedding_A lora_embedding_B lora_magnitude_vector
hada_w1_a hada_w1_b hada_w2_a hada_w2_b hada_t1 hada_t2
lokr_w1 lokr_w1_a lokr_w1_b lokr_w2 lokr_w2_a lokr_w2_b lokr_t2
ia3_l oft_R oft_r oft_embedding_R boft_R boft_s vera_A vera_B vera_lambda_b vera_lambda_d
ln_tuning_layers trainable_tokens_delta
adamss_A adamss_B beft_bias bone_block c3a_kernel deft_P deft_R delora_A delora_B delora_lambda
fourierft_spectrum frod_lambda_l frod_lambda_s_values glora_A glora_B glora_C glora_D glora_E
gralora_A gralora_A_general gralora_B gralora_B_general hira_A hira_B hira_embedding_A hira_embedding_B
delora_w_norm shira_indices supertuning_indices tinylora_A tinylora_B tinylora_P
hra_u lily_A lily_B lily_router miss_block osf_svd_params peanut_A peanut_B peanut_decoders
peanut_encoders poly_lora_A poly_lora_B poly_router psoft_R pvera_lambda_b pvera_lambda_d pvera_A pvera_B
randlora_A randlora_B randlora_gamma randlora_lambda road_alpha road_theta shira_weight
supertuning_lora_A supertuning_lora_B supertuning_values tinylora_v unilora_theta_d
vblora_logits_A vblora_logits_B vblora_vector_bank waveft_spectrum
"""
LAYERS = frozenset(_LAYERS.split())
"""Segments that are tensors of an adapter, or modules that hold one."""
BUFFERS = frozenset({"ranknum"})
"""AdaLoRA's, in the model only: ``save_pretrained`` leaves it out."""
PROMPTS = frozenset({"prompt_embeddings", "prefix_task_cols", "prefix_task_rows"})
"""Prompt learning's whole file."""
BARE = frozenset({"lora_magnitude_vector"})
"""A module in the model, a plain tensor in the file."""
NESTED = frozenset({"modules_to_save", "peanut_encoders", "peanut_decoders", "osf_svd_params", "lily_router"})
"""What holds more than a weight and a bias."""
_PARTS = ("weight", "bias", "scale", "Xd", "Xu", "X", "zeros", "vector_a", "vector_b", "module_logits")
ENDS = ((), *((n,) for n in _PARTS))
"""What a layer's own parts are called: NeoX' RMSNorm has a scale; then GLoRA's, PSOFT's and Poly's."""
SAVED = "modules_to_save"
TOKENS = "token_adapter"


@dataclass(frozen=True)
class Peft:
    """The ``peft`` dialect: keys of a file."""

    name = "peft"
    title = "PEFT's adapter_model.safetensors"
    method = "any"

    def parse(self, key: str) -> AdapterTensor | None:
        segments = key.split(".")
        if key in PROMPTS:
            return AdapterTensor(key, "", key)
        at = last_layer(segments, LAYERS)
        if at is None:
            return None
        inner = tuple(segments[at + 1 :])
        if inner not in ENDS and segments[at] not in NESTED:
            return None
        return tensor_at(key, segments, at, inner)

    def spell(self, tensor: AdapterTensor) -> str:
        leaf = tensor.leaf.removeprefix(f"{SAVED}.")
        return joined(tensor.wrapper, tensor.module, leaf)


WRAPPER = ("base_model", "model")
DIALECT = Peft()


def last_layer(segments: list[str], names: frozenset[str]) -> int | None:
    """Where the last segment of ``names`` stands; it may not be the first of a key that has a module."""
    return next((i for i in range(len(segments) - 1, -1, -1) if segments[i] in names), None)


def tensor_at(
    key: str, segments: list[str], at: int, inner: tuple[str, ...], adapter: str = "default"
) -> AdapterTensor:
    """The tensor whose layer stands at ``at``, with ``inner`` behind it."""
    head = [segments[at]]
    if at and segments[at - 1] == TOKENS and segments[at] == "trainable_tokens_delta":
        at, head = at - 1, [TOKENS, *head]
    wrapper, module = unwrapped(segments[:at])
    return AdapterTensor(key, ".".join(module), ".".join((*head, *inner)), adapter, ".".join(wrapper))


def unwrapped(segments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The wrapper of PEFT's model at the front, and the rest."""
    for wrapper in (WRAPPER, WRAPPER[:1]):
        if tuple(segments[: len(wrapper)]) == wrapper:
            return wrapper, segments[len(wrapper) :]
    return (), segments
