"""The shape of a pack's YAML: which names may stand where, and of which type.

The structures here are the one description: unknown names, wrong types and the JSON Schema for editors
all come from it. What a template or a parameter means is checked in ``reading``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar, Union

import msgspec

from remap.errors import PackError
from remap.packs.language.yaml_source import Node

Anything = Any
"""What is checked elsewhere: an op's arguments, a model's config."""

Texts = Union[str, list[str]]
Parts = Union[str, list[str], dict[str, str]]
Whole = Union[int, str]


class RawInverse(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The stated inverse of a ``regex:`` rule."""

    to: str
    regex: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")


class RawNormal(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Random values of a new tensor."""

    std: float
    seed: int = 0


class RawRotary(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Frequencies of rotary positions, by their base."""

    rotary: Whole


class RawRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One rule. Exactly one of from, regex, keep, drop, add."""

    id: str | None = None
    from_: Parts | None = msgspec.field(default=None, name="from")
    regex: str | None = None
    keep: Texts | None = None
    drop: Texts | None = None
    add: str | None = None
    each: dict[str, Whole] = {}
    shape: list[Whole] | None = None
    dtype: str | None = None
    fill: Union[float, Literal["zeros", "ones"], dict[str, Anything]] = "zeros"
    to: Parts | None = None
    do: Union[str, dict[str, Anything], list[Union[str, dict[str, Anything]]], None] = None
    because: str | None = None
    optional: bool = False
    expect: Whole | None = None
    replaces: Texts = ()  # type: ignore[assignment]
    inverse: Union[Literal["none"], RawInverse, None] = None
    only: Literal["forward", "inverse", None] = None
    when: dict[str, Union[Whole, list[Whole]]] = {}
    partition: str | None = None
    confirm: str = ""


class RawStage(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Rules, or another pack, or wrappers to be taken off."""

    rules: list[RawRule] | None = None
    use: str | None = None
    unwrap: list[str] | None = None
    inverse: bool = False
    with_: dict[str, Whole] = msgspec.field(default_factory=dict, name="with")
    when: dict[str, Union[Whole, list[Whole]]] = {}


class RawShape(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A size of a tensor: dimension ``dim`` of what matches ``key``."""

    key: str
    dim: int = 0


class RawParam(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where a parameter's value may come from."""

    about: str = ""
    choices: Union[list[str], dict[str, Union[str, dict[str, str]]], None] = None
    from_config: Texts = ()  # type: ignore[assignment]
    or_count: Texts = ()  # type: ignore[assignment]
    or_shape: Union[RawShape, list[RawShape]] = ()  # type: ignore[assignment]
    or_present: dict[str, Texts] = {}
    value: str | None = None
    default: Whole | None = None
    min: int = 0
    times: int = 1


class RawEvidence(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where a fact comes from."""

    project: str
    path: str = ""
    commit: Whole = ""
    version: Whole = ""
    url: str = ""
    note: str = ""


class RawExample(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Keys in, keys out."""

    given: dict[str, str]
    expect: dict[str, str] | None = None
    dropped: dict[str, str] = {}
    fails: str | None = None
    params: dict[str, Whole] = {}
    config: dict[str, Anything] = {}
    inverse: bool = False


class RawPack(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole pack."""

    remap: int
    pack: str
    version: str
    title: str
    stages: list[RawStage]
    evidence: list[RawEvidence] = []
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    params: dict[str, RawParam] = {}
    tables: dict[str, dict[str, str]] = {}
    categories: dict[str, Texts] = {}
    examples: list[RawExample] = []


Role = Literal[
    "weight", "bias", "norm", "embedding", "head", "buffer", "adapter", "image-prefix", "companion"
]
"""What a tensor is for. A companion belongs to another: the scale of a quantised weight."""


class RawKey(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Keys of a layout, and what is known of their tensors. ``optional`` may name the parameter that says
    whether a model has them."""

    key: str
    role: Role
    shape: list[Whole] | None = None
    each: dict[str, Whole] = {}
    partition: str = "replicated"
    slot: Whole | None = None
    optional: Union[bool, str] = False
    derived: bool = False
    tied: str | None = None
    when: dict[str, Union[Whole, list[Whole]]] = {}


class RawLike(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Another layout, its keys behind a prefix."""

    layout: str
    prefix: str = ""


class RawLayout(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole layout."""

    remap: int
    layout: str
    title: str
    format: str | None = None
    keys: list[RawKey] = []
    like: RawLike | None = None
    evidence: list[RawEvidence] = []
    params: dict[str, RawParam] = {}


Raw = TypeVar("Raw", RawPack, RawLayout)

_LISTS: dict[type[msgspec.Struct], dict[str, type[msgspec.Struct]]] = {
    RawPack: {"stages": RawStage, "evidence": RawEvidence, "examples": RawExample, "params": RawParam},
    RawStage: {"rules": RawRule},
    RawLayout: {"keys": RawKey, "evidence": RawEvidence, "params": RawParam},
}


def checked(root: Node, file: str, kind: type[Raw]) -> Raw:
    """The document as structures. Raises PackError with every unknown name, else with every wrong type."""
    if not isinstance(root.value, dict):
        raise PackError("not a mapping", where=f"{file}:{root.line}", remedy="see `remap rules new`")
    structs = list(_walk(root, kind))
    _refuse(file, [p for node, struct in structs for p in _unknown(node, struct, file)])
    _refuse(file, [p for node, struct in structs for p in _wrong(node, struct, file)])
    return msgspec.convert(root.plain(), kind)


def json_schema() -> dict[str, object]:
    """The JSON Schema of a pack, for editors."""
    schema = msgspec.json.schema(RawPack)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "remap rule pack", **schema}


def suggestion(name: str, known: Iterator[str] | list[str]) -> str:
    """``; did you mean 'x'?`` where something known is near, else nothing."""
    from rapidfuzz.process import extractOne

    near = extractOne(name, list(known), score_cutoff=60)
    return f"; did you mean {near[0]!r}?" if near else ""


def _refuse(file: str, problems: list[str]) -> None:
    if len(problems) == 1:
        where, _, what = problems[0].partition(": ")
        raise PackError(what, where=where)
    if problems:
        raise PackError(f"{len(problems)} problems", where=file, problems=problems)


def _walk(node: Node, struct: type[msgspec.Struct]) -> Iterator[tuple[Node, type[msgspec.Struct]]]:
    yield node, struct
    for name, inner in _LISTS.get(struct, {}).items():
        child = node.mapping.get(name)
        if child is not None:
            for member in _parts(child):
                if isinstance(member.value, dict):
                    yield from _walk(member, inner)


def _parts(node: Node) -> list[Node]:
    return node.items or list(node.mapping.values())


def _unknown(node: Node, struct: type[msgspec.Struct], file: str) -> Iterator[str]:
    known = list(struct.__struct_encode_fields__)
    for name in node.mapping:
        if name not in known:
            what = struct.__name__.removeprefix("Raw").lower()
            yield f"{file}:{node.key_lines[name]}: a {what} has no {name!r}{suggestion(name, known)}"


def _wrong(node: Node, struct: type[msgspec.Struct], file: str) -> Iterator[str]:
    """What is wrong with a node's own entries; its parts are looked at by themselves."""
    own = {k: n.plain() for k, n in node.mapping.items()}
    for name in _LISTS.get(struct, {}):
        if name in own and all(isinstance(m.value, dict) for m in _parts(node.mapping[name])):
            own[name] = type(own[name])()
    try:
        msgspec.convert(own, struct)
    except msgspec.ValidationError as e:
        what, _, path = str(e).partition(" - at `$")
        at = _line(node, path.rstrip("`"))
        hint = ""
        if "`object`" in what and "got `object`" in what.replace("Expected", "").lower():
            hint = '; a template that begins with { must stand in quotes: "{x}.weight"'
        yield f"{file}:{at}: {_readable(what, path)}{hint}"


def _readable(what: str, path: str) -> str:
    place = path.rstrip("`").lstrip(".")
    what = what[:1].lower() + what[1:]
    for theirs, ours in (
        ("object", "mapping"),
        ("array", "list"),
        ("str", "text"),
        ("bool", "true or false"),
    ):
        what = what.replace(f"`{theirs}", f"`{ours}").replace(f"| {theirs}", f"| {ours}")
    return f"{place}: {what}" if place else what


def _line(node: Node, path: str) -> int:
    """The line of the node that msgspec's path names, or of the nearest above it."""
    at = node
    for step in path.replace("[", ".[").split("."):
        if not step:
            continue
        inner: Node | None = None
        if step.startswith("[") and step[1:-1].isdigit():
            inner = at.items[int(step[1:-1])] if int(step[1:-1]) < len(at.items) else None
        else:
            inner = at.mapping.get(step)
        if inner is None:
            break
        at = inner
    return at.line
