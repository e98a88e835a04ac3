"""kohya-ss and LyCORIS: the module's path is one segment, its dots turned into underscores.

    lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight
    lora_te1_text_model_encoder_layers_0_mlp_fc1.alpha

Which underscores were dots is not in the key: ``remap.dialects.modules`` finds it out. Sources: sd-scripts
``networks/lora.py`` (``LORA_PREFIX_UNET``, ``LoRAModule``), LyCORIS ``modules/*.py`` (``weight_list``).
"""

from __future__ import annotations

from dataclasses import dataclass

from remap.dialects.base import AdapterTensor
from remap.dialects.plain import joined, leaf_of, word_for
from remap.errors import UsageError
from remap.expr import Expr, Reshape

LEAVES = {
    "lora_down.weight": "lora_A.weight",
    "lora_up.weight": "lora_B.weight",
    "lora_mid.weight": "lora_mid.weight",
    "dora_scale": "lora_magnitude_vector",
    "alpha": "alpha",
    **{
        n: n
        for n in (
            "hada_w1_a",
            "hada_w1_b",
            "hada_w2_a",
            "hada_w2_b",
            "hada_t1",
            "hada_t2",
            "lokr_w1",
            "lokr_w1_a",
            "lokr_w1_b",
            "lokr_w2",
            "lokr_w2_a",
            "lokr_w2_b",
            "lokr_t2",
        )
    },
}
WRAPPERS = ("lora_unet", "lora_te", "lora_te1", "lora_te2", "lora_te3", "lora_prior", "lycoris")


@dataclass(frozen=True)
class Kohya:
    """The ``kohya`` dialect: see the module's docstring."""

    name = "kohya"
    title = "kohya's and LyCORIS' lora_unet_... files"
    method = "lora"

    def parse(self, key: str) -> AdapterTensor | None:
        found = leaf_of(key, LEAVES)
        if found is None or "." in found[0]:
            return None
        flat, leaf = found
        wrapper = next((w for w in WRAPPERS if flat.startswith(f"{w}_")), "")
        return AdapterTensor(key, flat[len(wrapper) + 1 :] if wrapper else flat, leaf, wrapper=wrapper)

    def spell(self, tensor: AdapterTensor) -> str:
        flat = "_".join(p for p in (tensor.wrapper, tensor.module.replace(".", "_")) if p)
        return joined(flat, word_for(tensor, LEAVES, self.name))

    def to_peft(self, leaf: str, value: Expr) -> Expr:
        """DoRA's norms: [out, 1] here, [out] there. A norm of columns, [1, in], is another decomposition."""
        if leaf != "lora_magnitude_vector":
            return value
        shape = value.spec.shape
        if len(shape) != 2 or shape[1] != 1:
            raise UsageError(
                f"dora_scale of shape {list(shape)} is not one norm for each output, as PEFT has it"
            )
        return Reshape(value, shape[:1])

    def from_peft(self, leaf: str, value: Expr) -> Expr:
        return Reshape(value, (*value.spec.shape, 1)) if leaf == "lora_magnitude_vector" else value


DIALECT = Kohya()
