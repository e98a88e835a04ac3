"""Lays out fresh torch zips: a pickle that was written from nothing, then the storages.

In: expressions by key, and plain values beside them. Out: an OutFile that ``torch.load`` opens,
with ``weights_only=True`` and with ``mmap=True`` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from remap.errors import UsageError
from remap.expr import Expr, is_expr
from remap.expr.ties import tied_outputs
from remap.formats.base import OutFile, TensorBytes
from remap.formats.torch.locate import Place, dotted
from remap.formats.torch.state import ODD
from remap.formats.torch.writing.layout import ALIGNMENT, NewRecord, lay_out_zip
from remap.pickles.build import node_of, ordered_dict
from remap.pickles.emit import NewTensor, Writer
from remap.pickles.nodes import Dict, Text, Value
from remap.pickles.walk import no_gc

PREFIX = "archive"
"""The folder in the zip: what torch calls it where it does not know the file's name."""


@no_gc()
def emit(
    name: str,
    tensors: Mapping[str, Expr],
    extras: Mapping[str, object] | None = None,
    at: str | None = None,
) -> OutFile:
    """A torch file of a state dict, in the order of ``tensors``; the same bytes for the same input.

    extras  plain values (None, bool, int, float, str, list, tuple, dict) at the top level, and expressions
            at any depth in them; beside the state dict where ``at`` is given, in it where it is not
    at      the path of the state dict, ``a.b``; None for the root

    Ties among plain sources share a storage. Raises UsageError for keys that UTF-8 can't hold.
    """
    inside = {dotted(path): expr for path, expr in _expressions(extras or {}, ())}
    check_names([*tensors, *inside])
    made, records = new_tensors({**inside, **tensors}, taken=())
    nodes = {key: made[key] for key in tensors}
    pairs: dict[str, Value] = dict(nodes)
    if at:
        for part in reversed(at.split(".")):
            pairs = {
                part: ordered_dict(pairs) if pairs is not None and _is_state(pairs, nodes) else _dict(pairs)
            }
    for key, value in (extras or {}).items():
        if key in pairs:
            raise UsageError(f"{key!r} is a tensor's key and an extra's", where=name)
        pairs[key] = node_of(_with_tensors(value, (key,), made))
    root = _dict(pairs) if at or not nodes else ordered_dict(pairs)
    return lay_out_zip(name, PREFIX, [*skeleton(Writer().write(root)), *records, VERSION])


def emit_root(
    name: str, tensors: Mapping[str, Expr], build: Callable[[Mapping[str, NewTensor]], object]
) -> OutFile:
    """A torch file of one value: a tensor, a plain value, or a dict of both.

    tensors  what is in it, by the names that digests go by
    build    makes the root of the tensors' nodes
    """
    nodes, records = new_tensors(tensors, taken=())
    stream = Writer().write(node_of(build(nodes)))
    return lay_out_zip(name, PREFIX, [*skeleton(stream), *records, VERSION])


def _expressions(value: object, path: Place) -> Iterator[tuple[Place, Expr]]:
    """Every expression in a nested value, by its path."""
    if is_expr(value):
        yield path, value
    inside = enumerate(value) if isinstance(value, list) else ()
    for step, inner in value.items() if isinstance(value, Mapping) else inside:
        yield from _expressions(inner, (*path, step))


def _with_tensors(value: object, path: Place, nodes: Mapping[str, NewTensor]) -> object:
    """A nested value with nodes for its expressions."""
    if is_expr(value):
        return nodes[dotted(path)]
    if isinstance(value, Mapping):
        return {k: _with_tensors(v, (*path, k), nodes) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_tensors(v, (*path, i), nodes) for i, v in enumerate(value)]
    return value


def _is_state(pairs: Mapping[str, Value], nodes: Mapping[str, NewTensor]) -> bool:
    return pairs.keys() == nodes.keys() and all(isinstance(v, NewTensor) for v in pairs.values())


def _dict(pairs: Mapping[str, Value]) -> Dict:
    return Dict([(Text(k), v) for k, v in pairs.items()])


VERSION = NewRecord.of("version", b"3\n")


def skeleton(stream: bytes) -> list[NewRecord]:
    """The records before the storages, as torch orders them; ``VERSION`` comes after."""
    return [
        NewRecord.of("data.pkl", stream),
        NewRecord.of(".format_version", b"1"),
        NewRecord.of(".storage_alignment", b"%d" % ALIGNMENT),
        NewRecord.of("byteorder", b"little"),
    ]


def new_tensors(
    tensors: Mapping[str, Expr], taken: Iterable[str]
) -> tuple[dict[str, NewTensor], list[NewRecord]]:
    """Nodes for a pickle and records for a zip, storage keys counted up past those ``taken``."""
    used = set(taken)
    nodes: dict[str, NewTensor] = {}
    records: list[NewRecord] = []
    ties = tied_outputs(tensors)
    number = 0
    for key, expr in tensors.items():
        first = ties.get(key)
        if first is not None:
            nodes[key] = nodes[first]
            continue
        while str(number) in used:
            number += 1
        spec = expr.spec
        nodes[key] = NewTensor(str(number), spec.dtype, spec.shape, spec.numel)
        records.append(NewRecord(f"data/{number}", TensorBytes(key, expr) if spec.nbytes else None, None))
        number += 1
    return nodes, records


def check_names(keys: Iterable[str]) -> None:
    """Raise UsageError for keys with NUL or lone surrogates, which loaders and formats disagree on."""
    odd = [ascii(k) for k in keys if ODD.search(k)]
    if odd:
        raise UsageError("keys hold NUL or lone surrogates", problems=odd, remedy="rename them")
