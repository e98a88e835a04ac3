"""Where each module of an adapter lies: the part of a pipeline (unet, text_encoder), and its dotted path.

kohya's names have underscores for dots; which is which is looked up in the base's keys, or in the lists of
``remap.dialects.modules``. One that means nothing, or two things, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from remap.adapters.model import Adapter
from remap.dialects.base import AdapterTensor
from remap.dialects.modules import COMPONENTS, index, shipped
from remap.errors import UsageError

WRAPPERS = {
    "lora_te": "text_encoder",
    "lora_te1": "text_encoder",
    "lora_te2": "text_encoder_2",
    "lora_te3": "text_encoder_3",
}
"""kohya's word in front -> the part of the pipeline; ``lora_unet`` is the UNet or the transformer."""


class Place(NamedTuple):
    """A module: its part of the pipeline (empty where none is named), and its path in it."""

    component: str
    module: str


def places(adapter: Adapter, keys: Iterable[str] | None = None) -> Mapping[str, Place]:
    """Key of a tensor -> its module's place.

    keys  of the base's weights; None where there is no base at hand

    Raises UsageError for names that mean nothing or several things.
    """
    if adapter.dialect != "kohya":
        return {t.key: _split(t) for t in adapter.tensors}
    listed = None if keys is None else index(keys)
    found: dict[str, Place] = {}
    problems: dict[str, str] = {}
    for t in adapter.tensors:
        meant = _meanings(t, listed)
        if len(meant) == 1:
            (found[t.key],) = meant
        else:
            said = ", ".join(sorted(p.module for p in meant)) or "no module is called that"
            problems[t.key.partition(".")[0]] = said
    if problems:
        raise UsageError(
            "these names have underscores where the modules have dots, and which, is not known",
            where=adapter.catalog.root,
            problems=[f"{name}: {said}" for name, said in problems.items()],
            remedy="give the model that it was made for, --base MODEL: its modules' names tell",
        )
    return found


def _split(tensor: AdapterTensor) -> Place:
    if tensor.wrapper in COMPONENTS:
        return Place(tensor.wrapper, tensor.module)
    first, _, rest = tensor.module.partition(".")
    return Place(first, rest) if rest and first in COMPONENTS else Place("", tensor.module)


def _meanings(tensor: AdapterTensor, listed: Mapping[str, frozenset[str]] | None) -> set[Place]:
    component = WRAPPERS.get(tensor.wrapper, "")
    known = shipped(tensor.module)
    if listed is not None:
        modules = listed.get(tensor.module, frozenset())
        kinds = {kind for kind, _ in known} if tensor.wrapper == "lora_unet" else {""}
        return {Place(component or _only(kinds, "unet" * bool(tensor.wrapper)), m) for m in modules}
    kinds = {"text_encoder"} if component else {"unet", "transformer"} if tensor.wrapper else set()
    there = {(kind, m) for kind, m in known if not kinds or kind in kinds}
    return {Place((component or kind) if tensor.wrapper else "", m) for kind, m in there}


def _only(kinds: set[str], otherwise: str) -> str:
    """The one part of the pipeline that these can be."""
    return next(iter(kinds)) if len(kinds) == 1 else otherwise
