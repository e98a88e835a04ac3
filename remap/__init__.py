"""remap moves checkpoints between the names that models give their weights.

    remap.open("pythia-410m")
    remap.plan("pythia-410m", ["magma/from-hf"])
    remap.convert("pythia-410m", "out", ["magma/from-hf"], to="deepspeed-pipeline")

``remap.api`` has the whole flow, ``remap.loading`` what concerns models; their names are handed on here,
and imported when they are used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from remap.errors import RemapError
from remap.version import __version__

if TYPE_CHECKING:
    from remap.api import convert, diff, open, plan, verify
    from remap.loading import audit, load_into, watch

__all__ = [
    "RemapError",
    "__version__",
    "audit",
    "convert",
    "diff",
    "load_into",
    "open",
    "plan",
    "verify",
    "watch",
]


def _handed_on(name: str) -> property:
    """A name of ``remap.api`` or ``remap.loading``. A property wins over the module of the same name
    (``remap/plan.py``), which the import system would put in its place."""
    module = "remap.loading" if name in ("audit", "load_into", "watch") else "remap.api"
    return property(lambda _: getattr(import_module(module), name), lambda *_: None)


sys.modules[__name__].__class__ = type(
    "Package", (ModuleType,), {name: _handed_on(name) for name in __all__ if name[0].islower()}
)
