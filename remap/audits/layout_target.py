"""A layout as the target of an audit: the keys and shapes of a family, for the parameters of one model.

A layout knows no element types: a key has the type in which the source gives it. Keys that it calls
optional are wanted where the source gives them, but for an output head: it is wanted unless the config ties
it. Buffers that the model computes are known as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remap.audits.target import Target
from remap.dtypes import BY_NAME
from remap.errors import UsageError
from remap.packs import Layout
from remap.packs.language.schema import suggestion
from remap.packs.matching.matcher import Matcher
from remap.types import Entry, TensorSpec


def from_layout(
    layout: Layout,
    offered: Iterable[Entry],
    config: Mapping[str, object] | None = None,
    params: Mapping[str, str] | None = None,
) -> Target:
    """The model that the layout describes.

    params  its parameters; what is not given is read from ``config``, then counted in the ``offered``
            entries, where a source that was cut is not found out: give the number of layers
    Raises UsageError for a parameter that the layout does not have, PackError for a size without a value.
    """
    given = {e.key: e.spec for e in offered}
    _check(layout, params or {})
    values = layout.resolve([Entry(k, s) for k, s in given.items()], config or {}, dict(params or {}))
    specs: dict[str, TensorSpec] = {}
    buffers = set()
    for key, made in layout.expected(values).items():
        spec = given.get(key)
        if made.of.optional and spec is None and not made.of.tied:
            continue
        shape = made.shape if made.shape is not None else spec.shape if spec else ()
        specs[key] = TensorSpec(spec.dtype if spec else BY_NAME["float32"], shape)
        if made.of.derived:
            buffers.add(key)
    others = [Matcher(k.template.bind(values.values)) for k in layout.keys if k.open]
    specs |= {k: s for k, s in given.items() if k not in specs and any(m.match(k) for m in others)}
    return Target(layout.name, specs, frozenset(buffers), config=config or {})


def _check(layout: Layout, params: Mapping[str, str]) -> None:
    strange = [n for n in params if n not in layout.params]
    if strange:
        raise UsageError(
            f"the layout has no parameter {strange[0]!r}{suggestion(strange[0], list(layout.params))}",
            where=layout.name,
            remedy=f"there are: {', '.join(layout.params)}",
        )
