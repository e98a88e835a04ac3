"""Adapters: read one, split it off a checkpoint, put it on a base, say it in another dialect.

    read(source) -> Adapter

A key's spelling is ``remap.dialects``' matter; here are whole adapters and what is done with them. Tensors
are never held: everything is a plan that ``remap.output`` streams.
"""

from remap.adapters.model import Adapter
from remap.adapters.read import read
from remap.dialects.base import AdapterTensor

__all__ = ["Adapter", "AdapterTensor", "read"]
