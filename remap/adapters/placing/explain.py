"""A base that has not the modules of an adapter: what it calls them, and the pack that says so."""

from __future__ import annotations

from collections.abc import Mapping

from remap.adapters.model import Adapter
from remap.audits.comparison import compare
from remap.audits.suggest import packs
from remap.audits.suggest.search import suggest
from remap.audits.target import Target
from remap.errors import UsageError
from remap.formats.keylist import UNKNOWN
from remap.types import Catalog, TensorSpec


def explained(adapter: Adapter, base: Catalog, told: Mapping[str, TensorSpec | None]) -> UsageError:
    """The error for modules that a base has not.

    told  key of a base's tensor -> its spec, as far as the adapter tells
    """
    missing = [k for k in told if k not in base.entries]
    every = "none" if len(missing) == len(told) else f"{len(missing)} of {len(told)}"
    what = f"{every} of the tensors that the adapter changes are in the base"
    if every != "none":
        what = f"{every} tensors that the adapter changes are not in the base"
    remedy = _remedy(adapter, base, told, len(told) - len(missing))
    return UsageError(what, where=base.root, problems=missing, remedy=remedy)


def _remedy(adapter: Adapter, base: Catalog, told: Mapping[str, TensorSpec | None], there: int) -> str:
    """What would make more of them fit than are ``there``."""
    wanted = Target(
        str(adapter.catalog.root),
        {k: s or UNKNOWN for k, s in told.items()},
        names_only=None in told.values(),
    )
    table = compare(base, wanted, None)
    best = max(packs.names(table), key=lambda t: t.after, default=None)
    if best is not None and best.after > there:
        back = "" if best.inverse else " --inverse"
        source = adapter.catalog.asked or adapter.catalog.root
        return (
            f"the pack {best.pack} knows both names: remap adapter migrate {source} -o NEW "
            f"-r {best.pack}{back}"
        )
    for suggestion in suggest(table):
        return f"the base has other names; what would make {suggestion.after} fit: {suggestion.what}"
    return "give the base that the adapter was made on, or a pack that leads to this one's names"
