"""``adapter_config.json``, as far as an adapter's tensors tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from remap.adapters.configuring.methods import method
from remap.adapters.model import Adapter
from remap.adapters.placing.naming import by_segments, by_text, names
from remap.adapters.scaling import effective, rank
from remap.dialects.peft import SAVED, TOKENS
from remap.errors import UsageError

PLAIN = {
    "task_type": None,
    "base_model_name_or_path": None,
    "inference_mode": True,
    SAVED: None,
}
"""What every configuration says."""


def lora_config(adapter: Adapter, modules: Mapping[str, str]) -> dict[str, object]:
    """The configuration of a LoRA under other names; the adapter's own stays where it is PEFT's.

    modules  key of a tensor -> the path of its module

    Ranks and alphas that most modules have are ``r`` and ``lora_alpha``, the others are in the patterns.
    """
    if adapter.config.get("peft_type") and adapter.dialect == "peft":
        return dict(adapter.config)
    paths = {t.module: modules[t.key] for t in adapter.tensors if t.module}
    ranks, rank_pattern = _common({new: n for old, new in paths.items() if (n := rank(adapter, old))})
    alphas = {new: _whole(effective(adapter, old)) for old, new in paths.items() if rank(adapter, old)}
    alpha, alpha_pattern = _common(alphas)
    return {
        "peft_type": "LORA",
        **PLAIN,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_dora": any(t.leaf == "lora_magnitude_vector" for t in adapter.tensors),
        "r": ranks,
        "lora_alpha": alpha,
        "rank_pattern": rank_pattern,
        "alpha_pattern": alpha_pattern,
        "use_rslora": False,
        "target_modules": sorted(alphas),
    }


def rebuilt(adapter: Adapter, known: Collection[str], settings: Mapping[str, object]) -> dict[str, object]:
    """The configuration of an adapter that was found in a model, of any of PEFT's methods.

    known     paths of all of the model's modules: names that would match others of them are lengthened
    settings  what the user says; it has the last word

    Raises UsageError naming what the tensors don't tell and the user didn't say.
    """
    kind = method(adapter)
    if kind is None and "peft_type" not in settings:
        raise UsageError(
            "which method of PEFT this is, its tensors don't tell",
            where=adapter.catalog.root,
            problems=[t.key for t in adapter.tensors],
            remedy="give its configuration, --config adapter_config.json",
        )
    asked = [a for a in (kind.asks if kind else ()) if a not in settings]
    if asked:
        raise UsageError(
            f"the tensors don't tell {' and '.join(asked)}",
            where=adapter.catalog.root,
            remedy=f"{' '.join(f'--set {a}=...' for a in asked)}, or --config adapter_config.json",
        )
    found: dict[str, object] = {"peft_type": kind.name if kind else None, **PLAIN, **_modules(adapter, known)}
    if kind:
        found |= kind.told(adapter)
    ends = found.get("feedforward_modules")
    if isinstance(ends, list):  # IA3's: they must be among the targets, by the same names
        inner = [m for m in adapter.modules if m not in ends]
        found["feedforward_modules"] = list(names(ends, known, by_text))
        found["target_modules"] = [*names(inner, known, by_segments), *names(ends, known, by_text)]
    if kind and kind.name == "LORA":
        ranks = {m: n for m in adapter.modules if (n := rank(adapter, m))}
        found["r"], found["rank_pattern"] = _common(ranks)
    return found | dict(settings)


def _modules(adapter: Adapter, known: Collection[str]) -> dict[str, object]:
    """Which modules have an adapter, and which were trained in full."""
    saved = {t.module for t in adapter.tensors if t.leaf.startswith(f"{SAVED}.")}
    plain = {"weight", "bias", "base_layer"}
    targets = {
        t.module
        for t in adapter.tensors
        if t.module and t.module not in saved and t.leaf.partition(".")[0] not in (TOKENS, *plain)
    }
    found: dict[str, object] = {"target_modules": list(names(sorted(targets), known, by_segments))}
    if saved:
        found[SAVED] = list(names(sorted(saved), known, by_text))
    return found


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
