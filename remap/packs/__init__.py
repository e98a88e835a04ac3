"""The rule language: YAML -> checked pack -> what becomes of every key.

    load(ref) -> Pack                      by ``family/name``, or by a path that ends in .yaml
    read(data, file) -> Pack               from bytes
    available() -> {name: file}            what can be asked for by name
    load_layout(ref) -> Layout             a family's keys and shapes; ``available_layouts()`` names them

The way of the data: ``language`` (text -> nodes with lines > names and types > meaning > checked values),
``applying`` (parameters for these keys, stages in order or undone, what was wrong, the proof of the way
back), and below it ``matching`` (keys by skeleton, templates on them, owners, what is written). Nothing here
knows a format, and nothing imports torch.
"""

from remap.packs.language.pack import Pack
from remap.packs.layout import Layout
from remap.packs.load import available, available_layouts, load, load_layout, read, recognised

__all__ = ["Layout", "Pack", "available", "available_layouts", "load", "load_layout", "read", "recognised"]
