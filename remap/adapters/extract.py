"""``remap adapter extract``: a checkpoint with adapters in it -> one of its parts.

adapter       the adapter alone (and MAGMA's image prefix), as a folder that PEFT or ``graft`` takes
image-prefix  MAGMA's image prefix alone
base          the weights of the base under their own names
unwrapped     the base's names, adapters kept beside them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from remap.adapters.check import check
from remap.adapters.chosen import Chosen, choose
from remap.adapters.config import rebuilt
from remap.adapters.own import about
from remap.adapters.read import CONFIG, OWN, read, read_json
from remap.adapters.trained import trained
from remap.adapters.write import write_adapter, write_model
from remap.api import Source, catalog
from remap.dialects import registry
from remap.dialects.base import AdapterTensor
from remap.dialects.magma import is_prefix
from remap.dialects.peft import SAVED, WRAPPER
from remap.dialects.peft_model import PROMPT
from remap.errors import UsageError
from remap.expr import Take
from remap.output import How
from remap.plan import Drop, Output, Plan
from remap.receipt import Receipt

PARTS = ("adapter", "image-prefix", "base", "unwrapped")
ALONE = ("peft", "kohya", "diffusers", "mlx")
"""Dialects of files that hold an adapter and no model: what else is in them is left out."""


def extract(
    source: Source,
    destination: str | Path,
    *,
    part: str = "adapter",
    name: str | None = None,
    base: Source | None = None,
    settings: Mapping[str, object] | None = None,
    config: str | Path | None = None,
    at: str | None = None,
    to: str | None = None,
    how: How | None = None,
) -> tuple[Receipt, tuple[str, ...]]:
    """Write one part of the checkpoint at ``source``; the receipt, and what to know of it.

    name      the adapter's name, where there are several
    base      what the model was made from: weights that differ from it were trained: they are the adapter's
    settings  of ``adapter_config.json``, which the tensors don't tell: ``{"lora_alpha": 16}``
    config    an ``adapter_config.json``, where none lies beside the checkpoint
    at        where the state dict lies in a torch file
    to        format, where the base is written

    Raises UsageError, InputError; nothing is written then.
    """
    if part not in PARTS:
        raise UsageError(f"there is no part {part!r}", remedy=f"use one of {', '.join(PARTS)}")
    chosen = choose(read(source, at=at), name)
    if part in ("base", "unwrapped"):
        plan = _plan(chosen, _weights(chosen, adapters=part == "unwrapped"), part)
        return write_model(plan, destination, how or How(), to=to), ()
    check(chosen.adapter)
    given = chosen.adapter.config if config is None else read_json(Path(config))
    if part == "image-prefix":
        chosen = _prefix(chosen)
    outputs: list[Output]
    document: dict[str, object] | None
    if chosen.adapter.dialect == "peft-model":
        outputs, document = _peft(chosen, given, settings or {}, base)
    elif chosen.adapter.dialect in ALONE:
        outputs, document = [_copied(t, t.key, chosen) for t in chosen.adapter.tensors], dict(given) or None
    else:
        outputs, document = _own(chosen, base)
    file = OWN if document and "dialect" in document else CONFIG
    return write_adapter(_plan(chosen, outputs, part), destination, document, how or How(), file), ()


def _plan(chosen: Chosen, outputs: Iterable[Output], part: str) -> Plan:
    made = tuple(outputs)
    if not made:
        raise UsageError(f"no {part} is in it", where=chosen.adapter.catalog.root)
    read_keys = {k for o in made for k in o.sources}
    entries = chosen.adapter.catalog.entries
    drops = tuple(Drop(k, "", f"it is not of the {part}") for k in entries if k not in read_keys)
    return Plan(chosen.adapter.catalog, made, drops)


def _copied(tensor: AdapterTensor, key: str, chosen: Chosen) -> Output:
    return _copy(tensor.key, key, chosen)


def _copy(old: str, new: str, chosen: Chosen) -> Output:
    op = "copy" if old == new else "rename"
    return Output(new, Take(chosen.adapter.catalog.entries[old]), "", (old,), op)


def _weights(chosen: Chosen, *, adapters: bool) -> Iterator[Output]:
    for name, key in chosen.model.items():
        yield _copy(key, name, chosen)
    for t in chosen.adapter.tensors if adapters else ():
        yield _copied(t, t.key, chosen)


def _prefix(chosen: Chosen) -> Chosen:
    """The image prefix alone."""
    tensors = tuple(t for t in chosen.adapter.tensors if is_prefix(t))
    return replace(chosen, adapter=replace(chosen.adapter, tensors=tensors), around={})


def _peft(
    chosen: Chosen,
    config: Mapping[str, object],
    settings: Mapping[str, object],
    base: Source | None,
) -> tuple[list[Output], dict[str, object]]:
    """PEFT's file, and its configuration."""
    adapter = chosen.adapter
    file = registry.get("peft")
    outputs = []
    for t in adapter.tensors:
        front = WRAPPER if t.module else WRAPPER[:1]
        tensor = _prompt(t) if t.leaf.startswith(PROMPT) else replace(t, wrapper=".".join(front))
        outputs.append(_copied(t, file.spell(tensor), chosen))
    known = {k.rpartition(".")[0] for k in chosen.model} | set(adapter.modules)
    more = _biases(chosen, (config | settings).get("bias"))  # type: ignore[operator]
    saved: list[str] = []
    if base is not None:
        saved = _saved(chosen, base, {o.sources[0] for o in (*outputs, *more)})
        more += [_copy(chosen.model[k], ".".join((*WRAPPER, k)), chosen) for k in saved]
    document = dict(config) | dict(settings) if config else rebuilt(adapter, known, settings)
    if saved:
        modules = {k.rpartition(".")[0] for k in saved} | set(document.get(SAVED) or ())  # type: ignore[call-overload]
        document[SAVED] = sorted(modules)
    return outputs + more, document


def _prompt(tensor: AdapterTensor) -> AdapterTensor:
    """Prompt learning: the embedding is the file; what is behind a network would have to be computed."""
    if tensor.leaf != f"{PROMPT}.embedding.weight":
        raise UsageError(
            "the prompt is what a network makes of an embedding, and PEFT's file has its result only",
            where=tensor.key,
            remedy="let PEFT save it: model.save_pretrained",
        )
    return replace(tensor, leaf="prompt_embeddings", wrapper="")


def _biases(chosen: Chosen, which: object) -> list[Output]:
    """Biases of the base that ``bias`` of the configuration says were trained: under their names in the
    model."""
    if which not in ("all", "lora_only"):
        return []
    adapted = {t.module for t in chosen.adapter.tensors}
    return [
        _copy(key, key, chosen)
        for name, key in chosen.model.items()
        if name.endswith(".bias") and (which == "all" or name.rpartition(".")[0] in adapted)
    ]


def _saved(chosen: Chosen, base: Source, taken: set[str]) -> list[str]:
    """Names of the weights of modules that were trained in full. Raises UsageError where the weight under
    an adapter was."""
    model = {n: chosen.adapter.catalog.entries[k] for n, k in chosen.model.items() if k not in taken}
    changed = trained(model, catalog(base))
    modules = {k.rpartition(".")[0] for k in changed}
    wrong = sorted(modules & set(chosen.adapter.modules))
    if wrong:
        raise UsageError(
            "weights under the adapter differ from the base's: it is not the base that it was trained on",
            where=catalog(base).root,
            problems=wrong,
        )
    return [n for n in model if n.rpartition(".")[0] in modules]


def _own(chosen: Chosen, base: Source | None) -> tuple[list[Output], dict[str, object]]:
    """An adapter under the names that it has in the model, and what it is."""
    adapter = chosen.adapter
    outputs = [_copied(t, registry.get(adapter.dialect).spell(t), chosen) for t in adapter.tensors]
    changed: tuple[str, ...] = ()
    if base is not None:
        model = {n: adapter.catalog.entries[k] for n, k in chosen.model.items()}
        changed = trained(model, catalog(base))
        outputs += [_copy(chosen.model[n], n, chosen) for n in changed]
    return outputs, about(adapter, chosen.around, changed)
