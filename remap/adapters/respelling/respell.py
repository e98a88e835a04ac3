"""An adapter -> the plan of the same adapter in another dialect, and the configuration that goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from remap.adapters.check import check, strangers
from remap.adapters.configuring.peft_config import lora_config
from remap.adapters.model import Adapter
from remap.adapters.respelling.places import Place, places
from remap.adapters.respelling.scales import BESIDE, CONFIG, beside, into_b, kept
from remap.dialects import registry
from remap.dialects.base import AdapterTensor, from_peft
from remap.dialects.magma import is_prefix
from remap.dialects.peft import WRAPPER
from remap.errors import UsageError
from remap.expr import Expr, Take
from remap.plan import Drop, Output, Plan
from remap.types import Catalog

TARGETS = ("peft", "kohya", "diffusers", "magma", "megatron")
_KOHYA = {
    "unet": "lora_unet",
    "transformer": "lora_unet",
    "text_encoder": "lora_te",
    "text_encoder_2": "lora_te2",
    "text_encoder_3": "lora_te3",
}
_LORA = frozenset({"lora_A.weight", "lora_B.weight", "lora_magnitude_vector", "alpha"})


@dataclass(frozen=True)
class Respelled:
    """What is to be written: the plan, and ``adapter_config.json``, None for a dialect without one."""

    plan: Plan
    config: Mapping[str, object] | None


def respell(
    adapter: Adapter,
    to: str,
    *,
    folder: bool,
    base: Catalog | None = None,
    component: str = "",
    others: str = "refuse",
) -> Respelled:
    """The adapter in the dialect ``to``, one of TARGETS.

    folder     a folder is written, which has room for ``adapter_config.json``
    base       the model that it was made for: tells what flattened names mean
    component  the part of a pipeline that it is for, where its keys name none: ``unet``
    others     what is done with tensors of the file that are no adapter's: see ``check.KEEP``

    Raises UsageError for what the dialect has no word for, Damaged for an adapter that is not whole.
    """
    check(adapter)
    kept_keys = strangers(adapter, others)
    dialect = "magma-lora" if to == "magma" and _is_lora(adapter) else to
    _check_words(adapter, dialect)
    placed = places(adapter, None if base is None else base.entries)
    placed = {k: p if p.component else Place(component, p.module) for k, p in placed.items()}
    if folder and dialect == "peft":
        _check_one(placed, adapter)
    outputs = [*_outputs(adapter, dialect, placed, folder), *_kept(adapter.catalog, kept_keys)]
    _check_unique(outputs)
    made = {s for o in outputs for s in o.sources}
    drops = [
        Drop(k, "", _because(k, adapter, kept(dialect, folder=folder)))
        for k in adapter.catalog.entries
        if k not in made
    ]
    notes = [f"the scale alpha/r is multiplied into lora_B: {dialect} files keep no alpha"] * any(
        o.op == "scale" for o in outputs
    )
    plan = Plan(adapter.catalog, tuple(outputs), tuple(drops), notes=tuple(notes))
    config = (
        lora_config(adapter, {k: p.module for k, p in placed.items()})
        if folder and dialect == "peft"
        else None
    )
    return Respelled(plan, config)


def _is_lora(adapter: Adapter) -> bool:
    return all(t.leaf in _LORA or is_prefix(t) for t in adapter.tensors)


def _check_words(adapter: Adapter, dialect: str) -> None:
    """Every leaf has a word in the dialect; all that have none are named at once."""
    spell = registry.get(dialect).spell
    problems = []
    for t in adapter.tensors:
        if t.leaf == "alpha":
            continue
        try:
            spell(t)
        except UsageError as e:
            problems.append(f"{t.key}: {e.what}")
    if not problems and dialect == "peft" and not _is_lora(adapter) and adapter.dialect != "peft":
        problems = [f"{t.key}: no part of a LoRA" for t in adapter.tensors if t.leaf not in _LORA]
    if problems:
        raise UsageError(
            f"a {adapter.dialect} adapter with these tensors can't be said in {dialect}",
            where=adapter.catalog.asked or adapter.catalog.root,
            problems=problems,
        )


def _check_one(placed: Mapping[str, Place], adapter: Adapter) -> None:
    parts = sorted({p.component for p in placed.values()})
    if len(parts) > 1:
        raise UsageError(
            f"it is for {len(parts)} models ({', '.join(parts)}); a PEFT folder is for one",
            where=adapter.catalog.root,
            remedy="write one file, -o adapter.safetensors, which diffusers loads",
        )


def _outputs(adapter: Adapter, dialect: str, placed: Mapping[str, Place], folder: bool) -> Iterator[Output]:
    where = kept(dialect, folder=folder)
    say = registry.get(dialect)
    for t in adapter.tensors:
        if t.leaf == "alpha" and where != BESIDE:
            continue
        new = _renamed(t, placed[t.key], dialect, folder, placed)
        value = from_peft(say, t.leaf, adapter.expr(t))
        op = "rename" if isinstance(value, Take) else "reshape"
        if t.leaf == "lora_B.weight" and not where:
            scaled = into_b(adapter, t.module, dialect, value)
            value, op = scaled, op if scaled is value else "scale"
        yield Output(say.spell(new), value, "", (t.key,), op)
        if where == BESIDE and t.leaf == "lora_A.weight" and "alpha" not in adapter.of(t.module):
            alpha = replace(new, leaf="alpha")
            yield Output(say.spell(alpha), beside(adapter, t.module), "", (), "alpha")


def _renamed(
    t: AdapterTensor, place: Place, dialect: str, folder: bool, placed: Mapping[str, Place]
) -> AdapterTensor:
    """The tensor with the wrapper that the dialect puts in front."""
    if dialect == "kohya":
        wrapper = _KOHYA.get(place.component, "")
        two = any(p.component == "text_encoder_2" for p in placed.values())
        return replace(
            t, module=place.module, wrapper="lora_te1" if two and wrapper == "lora_te" else wrapper
        )
    if dialect == "peft" and folder:
        return replace(t, module=place.module, wrapper=".".join(WRAPPER if t.module else WRAPPER[:1]))
    return replace(t, module=place.module, wrapper=place.component)


def _kept(catalog: Catalog, keys: tuple[str, ...]) -> Iterator[Output]:
    for key in keys:
        expr: Expr = Take(catalog.entries[key])
        yield Output(key, expr, "", (key,), "keep")


def _because(key: str, adapter: Adapter, where: str) -> str:
    if key in adapter.base:
        return "it is no adapter's"
    return "adapter_config.json has it" if where == CONFIG else "no alpha is kept: the scale is in lora_B"


def _check_unique(outputs: list[Output]) -> None:
    seen: dict[str, Output] = {}
    problems = []
    for o in outputs:
        if o.key in seen:
            problems.append(f"{o.key}: from {', '.join((*seen[o.key].sources, *o.sources))}")
        seen[o.key] = o
    if problems:
        raise UsageError("two tensors get one name", problems=problems)
