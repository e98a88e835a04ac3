"""A DCP folder's state dict as it was before DCP flattened it, for those who look things up in it."""

from __future__ import annotations

from collections.abc import Mapping

from remap.expr import Expr
from remap.formats.dcp.extras import nested
from remap.formats.dcp.items import Items
from remap.formats.dcp.metadata import Path_
from remap.formats.dcp.reader import Folder
from remap.formats.torch.locate import dotted
from remap.pickles.graph import Opaque


def is_nested(folder: Folder) -> bool:
    """True where tensors lie deeper than right below the place that was asked for."""
    depth = len(folder.selection.at) + 1
    return any(len(folder.metadata.paths[n]) > depth for n in folder.selection.names.values())


def nest(folder: Folder, tensors: Mapping[str, Expr]) -> tuple[dict[str, object], list[str]]:
    """The nested state dict from its root on, as ``dcp_to_torch_save`` makes it of what lies at the place
    that was asked for: ``tensors`` by key, plain values as they were. Then the names of what is an object of
    a class, which can't be written again."""
    metadata, selection = folder.metadata, folder.selection
    values: dict[Path_, object] = {}
    for key, expr in tensors.items():
        name = selection.names.get(key)
        values[metadata.paths[name] if name else (*selection.at, key)] = expr
    left: list[str] = []
    with Items(folder.path) as items:
        for name, item in metadata.objects.items():
            path = metadata.paths[name]
            if path[: len(selection.at)] != selection.at:
                continue
            value = items.value(item, name)
            if _is_plain(value):
                values[path] = value
            else:
                left.append(dotted(path))
    tree = nested(values)
    assert isinstance(tree, dict)
    return tree, left


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return not isinstance(value, (Opaque, bytes))
