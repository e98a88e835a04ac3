"""Adapters: read one, split it off a checkpoint, put it on a base, say it in other words, merge it.

    read(source) -> Adapter
    extract(checkpoint, folder)    graft(base, adapter, model)
    migrate(adapter, new)          merge(base, adapters, model)

A key's spelling is ``remap.dialects``' matter; here are whole adapters and what is done with them. Tensors
are never held: everything is a plan that ``remap.output`` streams.

    model, read, write     an adapter, in and out
    check, scaling, about  is it whole, what are its factors multiplied by, what is it
    placing                where its tensors belong on a base
    configuring            what it says of itself, and what its shapes tell
    extracting, grafting   out of a checkpoint, onto a base
    migrating, respelling  after other names, in other words
    algebra, merging       the product of its factors, carried along and added up
"""

from remap.adapters.extracting.extract import extract
from remap.adapters.grafting.graft import graft
from remap.adapters.merging.write import merge
from remap.adapters.migrating.migrate import migrate
from remap.adapters.model import Adapter
from remap.adapters.read import read
from remap.dialects.base import AdapterTensor

__all__ = ["Adapter", "AdapterTensor", "extract", "graft", "merge", "migrate", "read"]
