"""Adapters: read one, split it off a checkpoint, put it on a base, say it in other words, merge it.

    read(source) -> Adapter
    extract(checkpoint, folder)    graft(base, adapter, model)
    migrate(adapter, new)          merge(base, adapters, model)

A key's spelling is ``remap.dialects``' matter; here are whole adapters and what is done with them. Tensors
are never held: everything is a plan that ``remap.output`` streams.

    model, read, check, scaling    an adapter, and what is known of it
    methods, config, own           what it says of itself, and what its shapes tell
    expected                       what it must have on a base
    extracting, grafting           out of a checkpoint, onto a base
    respelling, migration          in other words, after other names
    algebra, merging               the product of its factors, carried along and added up
    write                          all of them are written in one way
"""

from remap.adapters.extracting.extract import extract
from remap.adapters.grafting.graft import graft
from remap.adapters.merging.write import merge
from remap.adapters.migrate import migrate
from remap.adapters.model import Adapter
from remap.adapters.read import read
from remap.dialects.base import AdapterTensor

__all__ = ["Adapter", "AdapterTensor", "extract", "graft", "merge", "migrate", "read"]
