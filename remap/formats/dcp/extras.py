"""What a DCP folder holds beside the tensors, as plain values: read when asked for, never unpickled."""

from __future__ import annotations

from remap.formats.dcp.items import Items
from remap.formats.dcp.metadata import Path_
from remap.formats.dcp.reader import Folder
from remap.formats.torch.locate import dotted
from remap.pickles.graph import Opaque


def peek(folder: Folder, name: str) -> object:
    """The value at the dotted path ``name``, dicts and lists as they were; tensors are ``Opaque`` markers.

    Raises KeyError.
    """
    metadata = folder.metadata
    inside: dict[Path_, object] = {}
    with Items(folder.path) as items:
        for flat, path in metadata.paths.items():
            for length in range(1, len(path) + 1):
                if dotted(path[:length]) == name:
                    item = metadata.objects.get(flat)
                    inside[path[length:]] = items.value(item, flat) if item else Opaque("tensor")
                    break
    if not inside:
        raise KeyError(name)
    return nested(inside)


def nested(values: dict[Path_, object]) -> object:
    """Values by path, as nested dicts; integers are indices of lists."""
    if () in values:
        return values[()]
    below: dict[str | int, dict[Path_, object]] = {}
    for path, value in values.items():
        below.setdefault(path[0], {})[path[1:]] = value
    if all(isinstance(key, int) for key in below):
        return [nested(below[key]) for key in sorted(below, key=int)]
    return {key: nested(inner) for key, inner in below.items()}
