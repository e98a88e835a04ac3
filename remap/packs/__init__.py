"""The rule language: YAML -> checked pack -> what becomes of every key.

    load(ref) -> Pack                      by ``family/name``, or by a path that ends in .yaml
    read(data, file) -> Pack               from bytes
    available() -> {name: file}            what can be asked for by name
    load_layout(ref) -> Layout             a family's keys and shapes; ``available_layouts()`` names them

The way of the data: ``yaml_source`` (text -> nodes with lines) > ``schema`` (names and types) > ``reading``,
``rules`` (meaning) > ``pack`` (the checked values). A plan then goes through ``compose`` (stages in order),
``params`` (values for these keys), ``invert`` (rules undone), ``owners`` and ``stage`` (who owns each
key, what it becomes), ``complaints`` (what was wrong). Below them: ``template``, ``arithmetic``, ``keyset``,
``matching``, ``rendering``. Nothing here knows a format, and nothing imports torch.
"""

from remap.packs.layout import Layout
from remap.packs.load import available, available_layouts, load, load_layout, read
from remap.packs.pack import Pack

__all__ = ["Layout", "Pack", "available", "available_layouts", "load", "load_layout", "read"]
