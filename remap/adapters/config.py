"""``adapter_config.json`` of a LoRA, as far as its tensors tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from remap.adapters.model import Adapter
from remap.adapters.respelling.scales import effective
from remap.adapters.scaling import rank


def lora_config(adapter: Adapter, modules: Mapping[str, str]) -> dict[str, object]:
    """The configuration for the adapter under other names.

    modules  key of a tensor -> the path of its module

    Ranks and alphas that most modules have are ``r`` and ``lora_alpha``, the others are in the patterns. What
    the adapter's own configuration says beside that stays.
    """
    if adapter.config.get("peft_type") and adapter.dialect == "peft":
        return dict(adapter.config)
    names = {t.module: modules[t.key] for t in adapter.tensors if t.module}
    ranks = {new: float(r) for old, new in names.items() if (r := rank(adapter, old))}
    alphas = {new: _whole(effective(adapter, old)) for old, new in names.items() if rank(adapter, old)}
    r, rank_pattern = _common(ranks)
    alpha, alpha_pattern = _common(alphas)
    found: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "use_dora": any(t.leaf == "lora_magnitude_vector" for t in adapter.tensors),
    }
    found |= adapter.config if adapter.config.get("peft_type") == "LORA" else {}
    return found | {
        "r": _whole(r),
        "lora_alpha": alpha,
        "rank_pattern": rank_pattern,
        "alpha_pattern": alpha_pattern,
        "use_rslora": False,
        "target_modules": sorted(ranks),
    }


def _common(values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """The commonest value, and those that differ from it, by pattern: PEFT takes a module's path, or the end
    of one."""
    most = Counter(values.values()).most_common(1)[0][0]
    found = {}
    for name, value in values.items():
        if value != most:
            also = any(other.endswith(f".{name}") for other in values)
            found[f"^{name}" if also else name] = value
    return most, found


def _whole(value: float) -> float:
    """A whole number as int, as configurations have it."""
    return int(value) if value == int(value) else value
