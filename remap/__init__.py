"""remap moves checkpoints between the names that models give their weights.

    catalog = remap.open("pythia-410m")
    plan = remap.plan("pythia-410m", ["magma/from-hf"])
    remap.convert("pythia-410m", "out", ["magma/from-hf"], to="deepspeed-pipeline")

``remap.api`` has the whole flow; these names are handed on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remap.api import convert, diff, open, plan, verify

__version__ = "0.1.0"
__all__ = ["__version__", "convert", "diff", "open", "plan", "verify"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from remap import api

        return getattr(api, name)
    raise AttributeError(f"module 'remap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
