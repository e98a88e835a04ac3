"""Where a dialect keeps what the product of the factors is multiplied by.

    peft, in a folder     lora_alpha and alpha_pattern of adapter_config.json
    kohya                 a tensor alpha beside the factors
    diffusers, megatron, peft in one file    nowhere: loaders take the rank for alpha, so the scale is 1
    magma-lora            nowhere: alpha is 1, so the scale is 1/r

Where the dialect has no place for a scale of its own, B is multiplied by it: the product is the same.
"""

from __future__ import annotations

from remap.adapters.model import Adapter
from remap.adapters.scaling import effective, rank, scale
from remap.dtypes import dtype
from remap.expr import Affine, Constant, Expr
from remap.types import TensorSpec

CONFIG, BESIDE = "config", "beside"
_FIXED = {"magma-lora": lambda r: 1 / r}


def kept(to: str, *, folder: bool) -> str:
    """Where ``to`` keeps alpha: CONFIG, BESIDE, or empty for nowhere."""
    return BESIDE if to == "kohya" else CONFIG if to == "peft" and folder else ""


def into_b(adapter: Adapter, module: str, to: str, value: Expr) -> Expr:
    """B for a dialect that keeps no alpha."""
    r = rank(adapter, module) or 1
    wanted = _FIXED[to](r) if to in _FIXED else 1.0
    factor = scale(adapter, module) / wanted
    return value if factor == 1 else Affine(value, factor)


def beside(adapter: Adapter, module: str) -> Expr:
    """The tensor ``alpha`` of a module, as ``torch.tensor(alpha)`` is: whole numbers are int64."""
    value = effective(adapter, module)
    kind = "int64" if value == int(value) else "float32"
    return Constant(TensorSpec(dtype(kind), ()), int(value) if kind == "int64" else value)
