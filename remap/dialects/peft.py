"""PEFT: what ``save_pretrained`` writes, and what its wrapped models have in their state dict.

    base_model.model.h.0.attn.c_attn.lora_A.weight            in adapter_model.safetensors
    base_model.model.h.0.attn.c_attn.lora_A.default.weight    in the model: the adapter's name stands behind
    base_model.model.h.0.attn.c_attn.base_layer.weight        ... what the adapter wraps

diffusers and others leave ``base_model.model`` out. Sources: peft 0.21 ``tuners/*/layer.py``
(``adapter_layer_names``), ``utils/save_and_load.py`` (``get_peft_model_state_dict``), ``utils/other.py``
(``ModulesToSaveWrapper``, ``TrainableTokensWrapper``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.expr import Expr

LAYERS = frozenset(
    """
    lora_A lora_B lora_E lora_embedding_A lora_embedding_B lora_magnitude_vector
    hada_w1_a hada_w1_b hada_w2_a hada_w2_b hada_t1 hada_t2
    lokr_w1 lokr_w1_a lokr_w1_b lokr_w2 lokr_w2_a lokr_w2_b lokr_t2
    ia3_l oft_R oft_r oft_embedding_R boft_R boft_s vera_A vera_B vera_lambda_b vera_lambda_d
    ln_tuning_layers trainable_tokens_delta
    adamss_A adamss_B beft_bias bone_block c3a_kernel deft_P deft_R delora_A delora_B delora_lambda
    fourierft_spectrum frod_lambda_l frod_lambda_s_values glora_A glora_B glora_C glora_D glora_E
    gralora_A gralora_A_general gralora_B gralora_B_general hira_A hira_B hira_embedding_A hira_embedding_B
    hra_u lily_A lily_B lily_router miss_block osf_svd_params peanut_A peanut_B peanut_decoders
    peanut_encoders poly_lora_A poly_lora_B poly_router psoft_R pvera_lambda_b pvera_lambda_d pvera_A pvera_B
    randlora_A randlora_B randlora_gamma randlora_lambda road_alpha road_theta shira_weight
    supertuning_lora_A supertuning_lora_B supertuning_values tinylora_v unilora_theta_d
    vblora_logits_A vblora_logits_B vblora_vector_bank waveft_spectrum
    """.split()
)
"""Segments that are tensors of an adapter, or modules that hold one."""
BUFFERS = frozenset({"ranknum"})
"""AdaLoRA's, in the model only: ``save_pretrained`` leaves it out."""
PROMPTS = frozenset({"prompt_embeddings", "prefix_task_cols", "prefix_task_rows"})
"""Prompt learning's whole file."""
_BARE = frozenset({"lora_magnitude_vector"})
"""A module in the model, a plain tensor in the file."""
_NESTED = frozenset(
    {"modules_to_save", "peanut_encoders", "peanut_decoders", "osf_svd_params", "lily_router"}
)
"""What holds more than a weight and a bias."""
_ENDS = ((), ("weight",), ("bias",))
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
        at = _layer(segments, LAYERS)
        if at is None:
            return None
        inner = tuple(segments[at + 1 :])
        if inner not in _ENDS and segments[at] not in _NESTED:
            return None
        return _tensor(key, segments, at, inner)

    def spell(self, tensor: AdapterTensor) -> str:
        leaf = tensor.leaf.removeprefix(f"{SAVED}.")
        return _joined(tensor.wrapper, tensor.module, leaf)

    def to_peft(self, leaf: str, value: Expr) -> Expr:
        return value

    from_peft = to_peft


@dataclass(frozen=True)
class PeftModel:
    """The ``peft-model`` dialect: keys of a model that PEFT has wrapped."""

    name = "peft-model"
    title = "a model wrapped by PEFT, adapters and base together"
    method = "any"

    def parse(self, key: str) -> AdapterTensor | None:
        segments = key.split(".")
        if segments[0] == "prompt_encoder" and len(segments) > 2:
            return AdapterTensor(key, "", ".".join(("prompt_encoder", *segments[2:])), segments[1])
        at = _layer(segments, LAYERS | BUFFERS | {SAVED})
        if at is None or at + 1 == len(segments):
            return None
        adapter, inner = segments[at + 1], tuple(segments[at + 2 :])
        if adapter in ("weight", "bias") or (inner not in _ENDS and segments[at] not in _NESTED):
            return None
        if segments[at] in _BARE:
            inner = ()
        return _tensor(key, segments, at, inner, adapter)

    def spell(self, tensor: AdapterTensor) -> str:
        head, *inner = tensor.leaf.split(".")
        if head in _BARE:
            inner = ["weight"]
        if head == TOKENS:
            head, *inner = f"{head}.{inner[0]}", *inner[1:]
        if head in (*_TRAINED, "base_layer"):  # a bias of the base that was trained along
            return _joined(tensor.wrapper, tensor.module, tensor.leaf)
        return _joined(tensor.wrapper, tensor.module, head, tensor.adapter, *inner)

    def to_peft(self, leaf: str, value: Expr) -> Expr:
        return value

    from_peft = to_peft

    def around(self, tensors: list[AdapterTensor]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for t in tensors:
            head = t.leaf.partition(".")[0]
            if not t.module or head in _TRAINED:
                continue
            found[t.module] = {SAVED: ("original_module",), TOKENS: (TOKENS, "base_layer")}.get(
                head, ("base_layer",)
            )
        return found

    def bare(self, key: str, around: Mapping[str, tuple[str, ...]]) -> str:
        segments = list(_unwrapped(key.split("."))[1])
        for at in range(len(segments)):
            wrap = around.get(".".join(segments[:at]), ())
            if wrap and tuple(segments[at : at + len(wrap)]) == wrap:
                return ".".join((*segments[:at], *segments[at + len(wrap) :]))
        return ".".join(segments)

    def wrapped(self, key: str, around: Mapping[str, tuple[str, ...]]) -> str:
        segments = key.split(".")
        for at in range(len(segments) - 1, 0, -1):
            wrap = around.get(".".join(segments[:at]), ())
            if wrap:
                segments[at:at] = wrap
                break
        return ".".join((*WRAPPER, *segments))


_TRAINED = ("weight", "bias")
WRAPPER = ("base_model", "model")
DIALECT = Peft()
MODEL = PeftModel()


def _layer(segments: list[str], names: frozenset[str]) -> int | None:
    """Where the last segment of ``names`` stands; it may not be the first of a key that has a module."""
    return next((i for i in range(len(segments) - 1, -1, -1) if segments[i] in names), None)


def _tensor(
    key: str, segments: list[str], at: int, inner: tuple[str, ...], adapter: str = "default"
) -> AdapterTensor:
    head = [segments[at]]
    if at and segments[at - 1] == TOKENS:
        at, head = at - 1, [TOKENS, *head]
    wrapper, module = _unwrapped(segments[:at])
    return AdapterTensor(key, ".".join(module), ".".join((*head, *inner)), adapter, ".".join(wrapper))


def _unwrapped(segments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The wrapper of PEFT's model at the front, and the rest."""
    for wrapper in (WRAPPER, WRAPPER[:1]):
        if tuple(segments[: len(wrapper)]) == wrapper:
            return wrapper, segments[len(wrapper) :]
    return (), segments


def _joined(*parts: str) -> str:
    return ".".join(p for p in parts if p)
