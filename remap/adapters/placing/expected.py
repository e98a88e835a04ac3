"""What an adapter must have on a base: the target of its audit.

An adapter's keys are none of the base's. Held against a base, it is held against the keys that PEFT would
look for there: ``target_modules`` and ``modules_to_save`` of its configuration, found in the base, with the
sizes of the base's weights and the configuration's ranks. Sources: peft 0.21 ``tuners/tuners_utils.py``
(``check_target_module_exists``), ``tuners/lora/layer.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from remap.adapters.model import Adapter
from remap.adapters.placing.heads import left_out
from remap.adapters.placing.naming import by_segments, layer
from remap.adapters.placing.orientation import Orientation
from remap.adapters.read import recognised
from remap.adapters.scaling import by_pattern, matches, rank
from remap.audits.names.adapters import is_adapter
from remap.audits.target import Target
from remap.dialects import registry
from remap.dialects.base import AdapterTensor
from remap.dialects.peft import SAVED, WRAPPER
from remap.dialects.peft_model import depth
from remap.types import Catalog, TensorSpec

Specs = Mapping[str, TensorSpec]
_FACTORS = ("lora_A.weight", "lora_B.weight")


def on_base(found: Catalog, target: Target) -> Target:
    """The target as it is, unless ``found`` is an adapter in PEFT's words and the target a base: then the
    keys that the adapter must have on it."""
    adapter = recognised(found) if any(map(is_adapter, found.entries)) else None
    if adapter is None or adapter.dialect != "peft":
        return target
    model = registry.get("peft-model")
    if any(model.parse(k) or registry.get("peft").parse(k) for k in target.specs):
        return target
    return replace(
        target,
        name=f"{target.name} with the adapter",
        specs=_expected(adapter, _with_heads(adapter, target)),
        buffers=None,
        ties={},
        catalog=None,
    )


def _with_heads(adapter: Adapter, target: Target) -> Specs:
    """The base's keys, with a head that is the embedding, and left out for that."""
    wanted = (f"{m}.weight" for m in adapter.modules)
    heads = left_out(wanted, target.specs, target.config)
    return {**target.specs, **{head: target.specs[embedding] for head, embedding in heads.items()}}


def _expected(adapter: Adapter, base: Specs) -> Specs:
    modules = {k.rpartition(".")[0] for k in base}
    lies = Orientation(adapter.config, base)
    found: dict[str, TensorSpec] = {}
    for t in adapter.tensors:
        if not t.module or depth(t.module)[0] in modules:
            found[t.key] = _spec(adapter, t, base, lies)
    done = {t.module for t in adapter.tensors}
    dtype = adapter.spec(adapter.tensors[0]).dtype
    for module in _targeted(adapter.config, base):
        if module in done:
            continue
        for leaf in _leaves(adapter):
            t = AdapterTensor("", module, leaf, wrapper=".".join(WRAPPER))
            found[registry.get("peft").spell(t)] = TensorSpec(dtype, _shape(adapter, t, base, lies) or ())
    for module in _saved(adapter.config, modules - done):
        for key, spec in base.items():
            if key.startswith(f"{module}."):
                found[".".join((*WRAPPER, key))] = spec
    return found


def _spec(adapter: Adapter, t: AdapterTensor, base: Specs, lies: Orientation) -> TensorSpec:
    """Of a tensor that the adapter has: as the base has it, or as it is where the base doesn't tell."""
    own = adapter.spec(t)
    shape = _shape(adapter, t, base, lies)
    return own if shape is None else TensorSpec(own.dtype, shape)


def _shape(adapter: Adapter, t: AdapterTensor, base: Specs, lies: Orientation) -> tuple[int, ...] | None:
    """None where the base doesn't tell."""
    head, _, rest = t.leaf.partition(".")
    if head == SAVED or t.leaf in ("bias", "base_layer.bias"):
        spec = base.get(f"{t.module}.{rest or t.leaf}")
        return spec.shape if spec else None
    weight = base.get(f"{t.module}.weight")
    if weight is None or len(weight.shape) < 2:
        return None
    r = by_pattern(adapter.config.get("rank_pattern"), t.module) or adapter.config.get("r")
    r = r if isinstance(r, int) and adapter.config.get("peft_type") == "LORA" else rank(adapter, t.module)
    out, inner, *window = weight.shape
    mine = adapter.of(t.module)
    rows = adapter.spec(mine["lora_B.weight"]).shape[0] if "lora_B.weight" in mine else None
    if "lora_embedding_B" in mine or lies.flipped(f"{t.module}.weight", rows):
        out, inner = inner, out
    sizes = {
        "lora_A.weight": (r, inner, *window),
        "lora_B.weight": (out, r, *(1 for _ in window)),
        "lora_embedding_A": (r, weight.shape[0]),
        "lora_embedding_B": (weight.shape[1], r),
        "lora_magnitude_vector": (out,) if not window else None,
    }.get(t.leaf)
    return tuple(int(n) for n in sizes if n is not None) if sizes and None not in sizes else None


def _leaves(adapter: Adapter) -> Iterable[str]:
    """What a module of it has."""
    if adapter.config.get("peft_type") == "LORA":
        return (*_FACTORS, *(("lora_magnitude_vector",) if adapter.config.get("use_dora") else ()))
    first = next((m for m in adapter.modules), "")
    return tuple(adapter.of(first))


def _targeted(config: Mapping[str, object], base: Specs) -> Iterable[str]:
    """The base's modules that the configuration names; none where it says ``all-linear``, which depends on
    the model's code."""
    said, not_said = config.get("target_modules"), config.get("exclude_modules")
    layers = config.get("layers_to_transform")
    chosen = [layers] if isinstance(layers, int) else layers
    for key, spec in base.items():
        module, _, leaf = key.rpartition(".")
        if leaf != "weight" or not _matches(said, module) or _matches(not_said, module):
            continue
        if isinstance(chosen, list) and _layer(config, module) not in chosen:
            continue
        if len(spec.shape) >= 2 or config.get("peft_type") == "LN_TUNING":
            yield module


def _matches(said: object, module: str) -> bool:
    if isinstance(said, str):
        return said != "all-linear" and matches(rf"(?:{said})\Z", module) is not None
    return isinstance(said, list) and any(by_segments(str(n), module) for n in said)


def _layer(config: Mapping[str, object], module: str) -> int | None:
    said = config.get("layers_pattern")
    for name in [said] if isinstance(said, str) else said if isinstance(said, list) else []:
        found = matches(rf".*\.{name}\.(\d+)\.", module)
        if found:
            return int(found[1])
    return None if said else layer(module)


def _saved(config: Mapping[str, object], modules: Iterable[str]) -> Iterable[str]:
    """Modules that are trained in full: PEFT matches the end of their paths."""
    said = config.get(SAVED)
    names = said if isinstance(said, list) else []
    return [m for m in modules if m and any(m.endswith(str(n)) for n in names)]
