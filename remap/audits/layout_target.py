"""A layout as the target of an audit: the keys and shapes of a family, for the parameters of one model.

Optional keys that a parameter stands for (adapters, an image prefix) are wanted all or none of them: all
where the source has one, or where the parameter says ``present``. Other optional keys are wanted where the
source gives them, but for an output head: it is wanted unless the config ties it. What is optional and absent
is told. Buffers that the model computes are known as such. A layout knows no element types: a key has that
in which the source gives it, or, with the parameter ``dtype``, floating-point tensors have that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from remap.audits.target import Target
from remap.dtypes import BY_NAME, DType, dtype
from remap.errors import PackError, UsageError
from remap.packs import Layout
from remap.packs.applying.params import Resolved
from remap.packs.language.schema import suggestion
from remap.packs.layout import PRESENT, Absent, Expected
from remap.types import Entry, TensorSpec

DTYPE = "dtype"
"""The parameter that every layout has."""


def from_layout(
    layout: Layout,
    offered: Iterable[Entry],
    config: Mapping[str, object] | None = None,
    params: Mapping[str, str] | None = None,
) -> Target:
    """The model that the layout describes.

    params  its parameters; what is not given is read from ``config``, then counted in the ``offered``
            entries, where a source that was cut is not found out: give the number of layers
    Raises UsageError for a parameter that the layout does not have, and for a size without a value.
    """
    given = {e.key: e.spec for e in offered}
    asked = dict(params or {})
    kind = dtype(asked.pop(DTYPE)) if DTYPE in asked else None
    _check(layout, asked)
    values = layout.resolve([Entry(k, s) for k, s in given.items()], config or {}, asked)
    specs: dict[str, TensorSpec] = {}
    buffers = set()
    for key, made in _expected(layout, values).items():
        spec = given.get(key)
        if made.of.optional and spec is None and not made.of.tied:
            continue
        shape = made.shape if made.shape is not None else spec.shape if spec else ()
        specs[key] = _typed(TensorSpec(spec.dtype if spec else kind or BY_NAME["float32"], shape), kind)
        if made.of.derived:
            buffers.add(key)
    others = layout.open_keys(values)
    specs |= {
        k: _typed(s, kind) for k, s in given.items() if k not in specs and any(m.match(k) for m in others)
    }
    absent = tuple(_told(layout.absent(given, values)))
    return Target(
        layout.name, specs, frozenset(buffers), config=config or {}, optional=absent, untyped=kind is None
    )


def _expected(layout: Layout, values: Resolved) -> dict[str, Expected]:
    """The keys of the model. Raises UsageError for a size that nothing tells."""
    try:
        return layout.expected(values)
    except PackError as e:
        raise UsageError(
            f"a size of the model is not known: {e.what}",
            where=layout.name,
            remedy="give it with --target-param; or is the checkpoint, after its packs, of another kind?",
        ) from None


def _typed(spec: TensorSpec, kind: DType | None) -> TensorSpec:
    return TensorSpec(kind, spec.shape) if kind is not None and spec.dtype.is_float else spec


def _told(absent: Iterable[Absent]) -> Iterator[str]:
    """A line for each group, and for each template that is in none."""
    groups: dict[str, list[Absent]] = {}
    for one in absent:
        groups.setdefault(one.group or one.template, []).append(one)
    for name, several in groups.items():
        counts = [one.count for one in several]
        number = sum(filter(None, counts))
        known = "" if None in counts else f", {number} tensor{'s' * (number != 1)}"
        ask = f"; --target-param {name}={PRESENT} wants them" if several[0].group else ""
        yield f"{', '.join(one.template for one in several)}{known}{ask}"


def _check(layout: Layout, params: Mapping[str, str]) -> None:
    strange = [n for n in params if n not in layout.params]
    if strange:
        known = [*layout.params, DTYPE]
        raise UsageError(
            f"the layout has no parameter {strange[0]!r}{suggestion(strange[0], known)}",
            where=layout.name,
            remedy=f"there are: {', '.join(known)}",
        )
