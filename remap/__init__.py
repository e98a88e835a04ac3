"""remap moves checkpoints between the names that models give their weights.

    remap.open("pythia-410m")
    remap.plan("pythia-410m", ["magma/from-hf"])
    remap.convert("pythia-410m", "out", ["magma/from-hf"], to="deepspeed-pipeline")

``remap.api`` has the whole flow; its names are handed on here.
"""

from remap.api import audit, convert, diff, open, plan, verify
from remap.version import __version__

__all__ = ["__version__", "audit", "convert", "diff", "open", "plan", "verify"]
