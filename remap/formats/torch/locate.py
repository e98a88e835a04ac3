"""Finds the state dict in a torch file, below the names that training loops wrap it in.

In: the root of a walked pickle. Out: the path of the one dict of tensors that is the model. Where
several may be meant, all are named and ``--at`` decides; where there is none, the message says
what the file holds instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from remap.errors import NotACheckpoint, UsageError
from remap.pickles.graph import Opaque, attributes, items_of, key_of, lookup, mapping_pairs, plain
from remap.pickles.nodes import Call, Text, Value
from remap.pickles.survey import Survey
from remap.pickles.tensors import TensorRef

WRAPPERS = ("module", "model", "state_dict", "model_state_dict")
"""Names under which training loops keep the model: DeepSpeed, Megatron, Lightning and fairseq, tutorials."""

NOT_MODEL = ("optim", "lr_scheduler", "scheduler", "scaler", "rng", "random")
"""Beginnings of names whose tensors are not the model's."""

Step = str | int
Place = tuple[Step, ...]
"""A path of dict keys."""


def dotted(place: Place) -> str:
    """The path as ``--at`` takes it."""
    return ".".join(map(str, place))


def follow(node: Value, place: Place) -> Value:
    """The value at a path that is known to exist."""
    for step in place:
        node = lookup(node, step)[1]
    return node


def resolve(root: Value, at: str, path: Path) -> Place:
    """The path that ``at`` means: ``a.b`` is a key, or ``b`` in ``a``. Raises UsageError."""
    if not at:
        return ()
    names = {key_of(k): v for k, v in mapping_pairs(root) or ()}
    for name, value in names.items():
        if str(name) == at and name is not None:
            return (name,)
        if name is not None and at.startswith(f"{name}."):
            try:
                return (name, *resolve(value, at[len(str(name)) + 1 :], path))
            except UsageError:
                continue
    raise UsageError(
        f"there is no {at!r} in it",
        where=path,
        problems=[ascii(n) for n in names],
        remedy="give --at one of these, and names below it after a dot",
    )


def _direct(node: Value, survey: Survey) -> int:
    """Number of tensors that are values of this very dict."""
    return sum(id(v) in survey.tensors for _, v in mapping_pairs(node) or ())


def _dicts(node: Value, place: Place, seen: set[int], survey: Survey) -> Iterator[tuple[Place, Value]]:
    """Dicts with tensors as values, by path, each object once; optimizers and the like left out."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if _direct(node, survey):
        yield place, node
    for key, value in mapping_pairs(node) or ():
        if type(key) is Text and not key.text.startswith(NOT_MODEL):
            yield from _dicts(value, (*place, key.text), seen, survey)


def locate(root: Value, survey: Survey, path: Path, *, required: bool) -> Place | None:
    """Where the state dict lies; None where there is none and none is ``required``.

    Raises NotACheckpoint where there is none, UsageError where several may be meant.
    """
    place: Place = ()
    node = root
    while True:
        wrapped = {
            id(v): (k.text, v)
            for k, v in reversed(mapping_pairs(node) or ())
            if type(k) is Text and k.text in WRAPPERS and any(_dicts(v, (), set(), survey))
        }
        if len(wrapped) > 1:
            _ambiguous(path, [((*place, name), v) for name, v in wrapped.values()], survey)
        if not wrapped:
            break
        ((name, node),) = wrapped.values()
        place = (*place, name)
    if _direct(node, survey):
        return place
    found = list(_dicts(node, place, set(), survey))
    if len(found) > 1 and not required:
        return None
    if len(found) > 1:
        _ambiguous(path, found, survey)
    if found:
        return found[0][0]
    if required:
        raise NotACheckpoint(
            f"no state dict: the file holds {_describe(root, survey)}",
            where=path,
            remedy="a state dict is a dict of tensors: torch.save(model.state_dict(), path)",
        )
    return None


def _ambiguous(path: Path, found: list[tuple[Place, Value]], survey: Survey) -> None:
    raise UsageError(
        f"{len(found)} parts of the file may be the state dict",
        where=path,
        problems=[f"{dotted(p)!a}: {sum(1 for _ in _below(v, survey))} tensors" for p, v in found],
        remedy="say which is meant, for example --at " + dotted(found[0][0]),
    )


def _below(node: Value, survey: Survey) -> Iterator[TensorRef]:
    for _, d in _dicts(node, (), set(), survey):
        yield from (survey.tensors[id(v)] for _, v in mapping_pairs(d) or () if id(v) in survey.tensors)


def _describe(root: Value, survey: Survey) -> str:
    """What the root is, for the message that it is no state dict."""
    if id(root) in survey.tensors:
        return "a single tensor"
    if type(root) is Call and mapping_pairs(root) is None:
        module = any(key_of(k) == "_modules" for k, _ in attributes(root))
        what = "a whole pickled module" if module else "an object"
        return f"{what} of class {root.name}, whose code alone knows what its tensors are called"
    if items_of(root) is not None:
        return "a list"
    pairs = mapping_pairs(root)
    if pairs is None:
        return f"a {type(plain(root)).__name__}"
    names = [str(plain(k)) for k, _ in pairs[:8]]
    return f"a dict of {', '.join(names)}" if names else "an empty dict"


def beside(root: Value, place: Place, survey: Survey) -> Iterator[str]:
    """Names of what lies beside the state dict, and beside the tensors in it."""
    node = root
    for depth, step in enumerate(place):
        for key, _ in mapping_pairs(node) or ():
            if key_of(key) != step:
                name = plain(key)
                yield dotted((*place[:depth], "<object>" if isinstance(name, Opaque) else str(name)))
        node = lookup(node, step)[1]
    if not place and mapping_pairs(root) is None:
        return
    for key, value in mapping_pairs(node) or ():
        if type(key) is not Text or id(value) not in survey.tensors:
            yield dotted((*place, str(plain(key))))
