"""``remap.adapter.json``: what an adapter is that has no configuration of its own, MAGMA's or Megatron's.

{"version": 1, "dialect": "magma", "wraps": {"2.attention": ["attn_block"], ...}, "layernorm": false,
 "scaled": false, "rank": 16, "image_prefix": true, "trained": []}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remap.adapters.model import Adapter
from remap.dialects.magma import is_prefix
from remap.dialects.wrapping import Around
from remap.errors import Damaged

VERSION = 1


def about(adapter: Adapter, around: Around, trained: Iterable[str] = ()) -> dict[str, object]:
    """The document. ``trained`` are weights of the base that are in the adapter, too."""
    shapes = {t.leaf: adapter.spec(t).shape for t in adapter.tensors if not is_prefix(t)}
    down = next((s for leaf, s in shapes.items() if leaf.endswith(".weight") and len(s) == 2), None)
    found: dict[str, object] = {
        "version": VERSION,
        "dialect": adapter.dialect,
        "wraps": {module: list(segments) for module, segments in around.items()},
        "rank": min(down) if down else None,
        "trained": list(trained),
    }
    if adapter.dialect == "magma":
        found["layernorm"] = any(
            len(s) == 1 for leaf, s in shapes.items() if leaf.endswith("adapter.0.weight")
        )
        found["scaled"] = any(leaf == "adapter_scale" for leaf in shapes)
    found["image_prefix"] = any(is_prefix(t) for t in adapter.tensors)
    return found


def around_of(config: Mapping[str, object]) -> Around:
    """The wrappers that a document tells, {} where it tells none. Raises Damaged."""
    wraps = config.get("wraps", {})
    if not isinstance(wraps, dict) or not all(isinstance(v, list) for v in wraps.values()):
        raise Damaged("wraps is not module -> segments", where="remap.adapter.json")
    return {str(m): tuple(map(str, v)) for m, v in wraps.items()}
