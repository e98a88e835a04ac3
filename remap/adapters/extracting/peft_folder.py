"""A model that PEFT wrapped -> what ``save_pretrained`` would have written: tensors and configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from remap.adapters.configuring.peft_config import rebuilt
from remap.adapters.extracting.chosen import Chosen
from remap.adapters.extracting.trained import trained
from remap.audits.names.wrappers import unwrap
from remap.dialects import registry
from remap.dialects.base import AdapterTensor
from remap.dialects.peft import SAVED, WRAPPER
from remap.dialects.peft_model import PROMPT, depth
from remap.errors import UsageError
from remap.plan import Output
from remap.types import Catalog


def peft_folder(
    chosen: Chosen,
    config: Mapping[str, object],
    settings: Mapping[str, object],
    base: Catalog | None,
) -> tuple[list[Output], dict[str, object]]:
    """The tensors of ``adapter_model.safetensors``, and ``adapter_config.json``.

    config    of the checkpoint, {} where it has none: then it is made from the shapes
    settings  what the user says, which has the last word
    base      what the model was made from: modules that differ from it were trained, and are saved

    Raises UsageError for what the tensors don't tell, and for a base that it was not trained on.
    """
    adapter = chosen.adapter
    file = registry.get("peft")
    outputs = []
    if any(t.leaf == "shira_weight" for t in adapter.tensors):
        raise UsageError(
            "a model's state dict has not the indices of SHiRA's weights",
            where=adapter.catalog.root,
            remedy="let PEFT save it: model.save_pretrained",
        )
    for t in adapter.tensors:
        front = WRAPPER if t.module else WRAPPER[:1]
        tensor = _prompt(t) if t.leaf.startswith(PROMPT) else replace(t, wrapper=".".join(front))
        outputs.append(chosen.copy(t.key, file.spell(tensor)))
    known = {k.rpartition(".")[0] for k in chosen.model} | set(adapter.modules)
    more = _biases(chosen, settings.get("bias", config.get("bias")))
    saved: list[str] = []
    if base is not None:
        saved = _saved(chosen, base, {o.sources[0] for o in (*outputs, *more)})
        more += [chosen.copy(chosen.model[k], ".".join((*WRAPPER, k))) for k in saved]
    if not config:
        _check_told(chosen)
    document = dict(config) | dict(settings) if config else rebuilt(adapter, known, settings)
    if saved:
        modules = {k.rpartition(".")[0] for k in saved} | set(document.get(SAVED) or ())  # type: ignore[call-overload]
        document[SAVED] = sorted(modules)
    return outputs + more, document


def _check_told(chosen: Chosen) -> None:
    """Raise UsageError for factors of bare parameters: only a configuration has their names and ranks."""
    there = {k.rpartition(".")[0] for k in chosen.model}
    factors = {depth(t.module) for t in chosen.adapter.tensors if t.leaf == "lora_A.weight"}
    bare = sorted({m for m, n in factors if n or (m in there and f"{m}.weight" not in chosen.model)})
    if bare:
        raise UsageError(
            "the tensors don't tell which parameters of a module (stacked experts) have factors",
            where=chosen.adapter.catalog.root,
            problems=bare,
            remedy="give its configuration, --config adapter_config.json",
        )


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
        chosen.copy(key, unwrap(key))
        for name, key in chosen.model.items()
        if name.endswith(".bias") and (which == "all" or name.rpartition(".")[0] in adapted)
    ]


def _saved(chosen: Chosen, base: Catalog, taken: set[str]) -> list[str]:
    """Names of the weights of modules that were trained in full. Raises UsageError where the weight under
    an adapter was."""
    model = {n: chosen.adapter.catalog.entries[k] for n, k in chosen.model.items() if k not in taken}
    changed = trained(model, base)
    modules = {k.rpartition(".")[0] for k in changed}
    wrong = sorted(modules & set(chosen.adapter.modules))
    if wrong:
        raise UsageError(
            "weights under the adapter differ from the base's: it is not the base that it was trained on",
            where=base.root,
            problems=wrong,
        )
    return [n for n in model if n.rpartition(".")[0] in modules]
