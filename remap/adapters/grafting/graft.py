"""``remap adapter graft``: a base and an adapter -> a checkpoint under the names of the wrapped model.

The base's weights get the wrappers of the modules that the adapter changes, and of no others; the adapter's
tensors get their places beside them. What was there of another adapter is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from remap.adapters.check import check, strangers
from remap.adapters.configuring.own import around_of
from remap.adapters.extracting.chosen import SHARED, choose
from remap.adapters.grafting.fitting import Target, bare_names, fitted
from remap.adapters.grafting.shapes import misfits
from remap.adapters.model import Adapter
from remap.adapters.read import read
from remap.adapters.write import write_model
from remap.audits.names.ties import embedding_of
from remap.dialects import registry
from remap.dialects.base import AdapterTensor, Dialect, Wraps
from remap.dialects.peft import LAYERS, PROMPTS, TOKENS, WRAPPER
from remap.dialects.wrapping import Around, bare, wrapped
from remap.dtypes import dtype
from remap.errors import UsageError
from remap.expr import Constant, Expr, Take
from remap.files import locate
from remap.opening import Source, catalog
from remap.output import How
from remap.plan import Drop, Output, Plan
from remap.planning import Rules
from remap.receipt import Receipt
from remap.stream.placing.destination import check_apart
from remap.types import Catalog, TensorSpec

_IN_MODEL = {"peft": "peft-model"}
_SHARING = ("vera_lambda_d", "pvera_lambda_d", "vblora_logits_A")
"""Leaves of modules that hold what all of them share once more."""


def graft(
    base: Source,
    adapter: Source,
    destination: str | Path,
    *,
    rules: Rules = (),
    params: Mapping[str, str] | None = None,
    name: str = "default",
    names_only: bool = False,
    others: str = "refuse",
    to: str | None = None,
    shard_size: int | None = None,
    tag: str | None = None,
    how: How | None = None,
) -> tuple[Receipt, tuple[str, ...]]:
    """Write the base with the adapter in it; the receipt, and what to know of it.

    adapter     an adapter's folder or file, or a checkpoint that has one in it
    rules       packs that bring the base to the names that the adapter was made for, with their ``params``
    name        the adapter's name in the model (PEFT)
    names_only  the wrapped names without the adapter: its tensors keep their initial values in the model
    others      tensors in the adapter's file that are none of an adapter's: refuse, drop or keep
    to, shard_size, tag   as for ``api.convert``

    Raises UsageError, InputError; nothing is written then.
    """
    _check_name(name)
    part = choose(read(adapter)).adapter
    check(part)
    check_apart(locate(destination), part.catalog)
    more = _trained(part, others)
    dialect = _in_model(part)
    tensors = [_named(t, part, name) for t in part.tensors]
    around = {**dialect.around(tensors), **around_of(part.config)}  # type: ignore[attr-defined]
    target = Target(dialect, around)
    source, notes = fitted(catalog(base), target, rules, params or {})
    weights = bare_names(source, target)
    again = _tied(tensors, source.catalog, weights)
    around = {**around, **dialect.around(again)}  # type: ignore[attr-defined]
    tensors += again
    _check_fit(part, {k: o.expr.spec for k, o in weights.items()}, source)
    outputs: dict[str, Output] = {}
    for key, o in weights.items():
        outputs[wrapped(key, around)] = replace(o, key=wrapped(key, around))
    if not names_only:
        for o in (*_adapted(part, tensors, dialect), *_replaced(part, more, around)):
            outputs[o.key] = o
    plan = Plan(
        _both(source.catalog, part.catalog),
        tuple(outputs.values()),
        (*source.drops, *_dropped(source, {s for o in outputs.values() for s in o.sources}, part)),
        source.steps,
    )
    return write_model(plan, destination, how or How(), to=to, shard_size=shard_size, tag=tag), notes


def _check_name(name: str) -> None:
    """Of a name that is a word of PEFT's, nobody could tell the one from the other again."""
    if not name or "." in name or name in LAYERS | {"weight", "bias"}:
        raise UsageError(f"an adapter can't be called {name!r}", remedy="give it another --name")


def _in_model(part: Adapter) -> Dialect:
    found = registry.get(_IN_MODEL.get(part.dialect, part.dialect))
    if not isinstance(found, Wraps):
        raise UsageError(
            f"{part.dialect} adapters lie in no model under names of their own",
            where=part.catalog.root,
            remedy="say it in PEFT's words first: remap adapter migrate --to peft",
        )
    prompts = [t.key for t in part.tensors if t.leaf in PROMPTS]
    if prompts:
        raise UsageError(
            "a prompt changes no weight of the base, and PEFT's file has not what the model holds",
            where=part.catalog.root,
            problems=prompts,
            remedy="let PEFT load it: PeftModel.from_pretrained",
        )
    return found


def _trained(part: Adapter, others: str) -> tuple[str, ...]:
    """Weights of the base that are the adapter's, too."""
    if part.dialect != "peft" and part.config.get("dialect") != part.dialect:
        return ()  # a whole checkpoint: the rest of it is another base
    said = part.config.get("trained")
    listed = [k for k in said if k in part.base] if isinstance(said, list) else []
    rest = replace(part, base=tuple(k for k in part.base if k not in listed))
    return (*listed, *strangers(rest, others))


def _named(t: AdapterTensor, part: Adapter, name: str) -> AdapterTensor:
    """The tensor of an adapter of that name; PEFT's model is wrapped by two modules."""
    if not part.dialect.startswith("peft"):
        return t
    front = WRAPPER if t.module else WRAPPER[:1]
    return replace(t, adapter=name, wrapper=".".join(front))


def _tied(tensors: Iterable[AdapterTensor], base: Catalog, weights: Iterable[str]) -> list[AdapterTensor]:
    """Trained tokens once more, for the output head that is tied to the embedding: PEFT wraps both. Source:
    peft 0.21 ``utils/other.py`` (``set_additional_trainable_modules``)."""
    if not base.config.get("tie_word_embeddings"):
        return []
    keys = list(weights)
    heads = {h: embedding_of(h, keys) for h in keys if embedding_of(h, keys)}
    return [
        replace(t, module=head.removesuffix(".weight"))
        for t in tensors
        for head, embedding in heads.items()
        if t.leaf.startswith(TOKENS) and embedding == f"{t.module}.weight"
    ]


def _adapted(part: Adapter, tensors: Iterable[AdapterTensor], dialect: Dialect) -> Iterator[Output]:
    for t in tensors:
        yield Output(dialect.spell(t), Take(part.catalog.entries[t.key]), "", (t.key,), "rename")
    yield from _unsaved(part, list(tensors), dialect)


def _unsaved(part: Adapter, tensors: list[AdapterTensor], dialect: Dialect) -> Iterator[Output]:
    """What PEFT's model holds and its file does not: AdaLoRA's rank; VeRA's projections and VB-LoRA's vectors
    in every module. Source: peft 0.21 ``tuners/adalora/layer.py``, ``vera/layer.py``, ``vblora/model.py``."""
    shared = [t for t in tensors if t.leaf in SHARED and not t.module]
    if not shared and any(t.leaf.startswith("vera_lambda") for t in tensors):
        raise UsageError(
            "the file lacks VeRA's projections, which are drawn from projection_prng_key",
            where=part.catalog.root,
            remedy="save it with save_projection=True",
        )
    for t in tensors:
        if t.leaf == "lora_E":
            value: Expr = Constant(TensorSpec(dtype("float32"), (1,)), part.spec(t).shape[0])
            yield Output(dialect.spell(replace(t, leaf="ranknum")), value, "", (), "constant")
        for s in shared if t.leaf in _SHARING else ():
            copy = replace(t, leaf=s.leaf)
            yield Output(dialect.spell(copy), Take(part.catalog.entries[s.key]), "", (s.key,), "copy")


def _replaced(part: Adapter, keys: Iterable[str], around: Around) -> Iterator[Output]:
    for key in keys:
        yield Output(wrapped(bare(key, around), around), Take(part.catalog.entries[key]), "", (key,), "copy")


def _check_fit(part: Adapter, weights: Mapping[str, TensorSpec], source: Plan) -> None:
    problems = list(misfits(part, weights))
    if problems:
        raise UsageError(
            "the adapter was made for a base of other sizes", where=source.catalog.root, problems=problems
        )


def _both(base: Catalog, part: Catalog) -> Catalog:
    """Where the output comes from: the base, and the adapter's files."""
    return replace(base, files=tuple(dict.fromkeys((*base.files, *part.files))), native=None)


def _dropped(source: Plan, used: set[str], part: Adapter) -> Iterator[Drop]:
    gone = {d.key for d in source.drops}
    for key in source.catalog.entries:
        if key not in used and key not in gone:
            yield Drop(key, "", f"the adapter of {part.catalog.root.name} is in its place")
