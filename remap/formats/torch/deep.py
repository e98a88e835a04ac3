"""Tensors at any depth of a torch file: what ``--at`` means where the dict it names holds dicts, not tensors.

In: a walked pickle and a place in it. Out: the nodes of all tensors below, by their dotted path; and the file
with other tensors in their places.
"""

from __future__ import annotations

from collections.abc import Mapping

from remap.errors import UsageError
from remap.expr import Expr
from remap.formats.base import OutFile
from remap.formats.torch.state import TorchFile
from remap.formats.torch.writing.emit import new_tensors
from remap.formats.torch.writing.rebuild import reassemble
from remap.pickles.nodes import Value
from remap.pickles.walk import no_gc


@no_gc()
def replant(file: TorchFile, name: str, tensors: Mapping[str, Expr]) -> OutFile:
    """The file ``name``: ``file`` with ``tensors`` where those of their keys lie.

    Raises UsageError where there are others, or fewer: where in the nested dicts these lie nothing says.
    """
    odd = sorted(tensors.keys() ^ file.deep.keys())
    if odd:
        raise UsageError(
            "what lies in nested dicts keeps its keys: none is renamed, added or dropped",
            where=file.path,
            problems=odd,
            remedy="take one state dict: --at model",
        )
    nodes, records = new_tensors(tensors, taken=file.contents.storages)
    changed: dict[int, Value] = {id(file.deep[key]): node for key, node in nodes.items()}
    return reassemble(file.contents, name, changed, records)
