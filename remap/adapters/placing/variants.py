"""Kinds of LoRA whose factors are not the whole story: they follow a rename, and are not merged.

Source: peft 0.21 ``tuners/lora/config.py``, ``tuners/lora/layer.py`` (the ``*_init`` methods).
"""

from __future__ import annotations

from remap.adapters.model import Adapter

INITS = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of ``init_lora_weights`` with which PEFT changes the base's weights, also when it loads."""
SETTINGS = {
    "alora_invocation_tokens": "it acts only behind certain tokens",
    "arrow_config": "it chooses between adapters for every token",
    "kasa_config": "PEFT cuts the base's weights down when it loads",
    "layer_replication": "it repeats layers of the base",
    "monteclora_config": "its factors are drawn at random",
    "use_bdlora": "its factors are blocks",
    "use_qalora": "its inputs are pooled",
}
"""Settings that say so, and why."""


def beyond_factors(adapter: Adapter) -> str:
    """Why this LoRA is more than its factors; empty where it isn't."""
    init = adapter.config.get("init_lora_weights")
    if isinstance(init, str) and init.lower().startswith(INITS):
        return f"init_lora_weights is {init}: PEFT changes the base's weights when it loads"
    return next((f"{name} is set: {why}" for name, why in SETTINGS.items() if adapter.config.get(name)), "")
