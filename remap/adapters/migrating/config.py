"""``adapter_config.json`` of a migrated adapter: the old one, with the new names, ranks and alphas.

What names modules is said anew, from the modules that really have tensors: where all modules of the new base
are known in short names, else in whole paths. Everything else stays as it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from remap.adapters.migrating.carriers.factors import Multiplied
from remap.adapters.migrating.carriers.low_rank import Ranked
from remap.adapters.migrating.carriers.renamed import Renamed
from remap.adapters.migrating.carriers.whole import Trained
from remap.adapters.migrating.job import Job, split
from remap.adapters.placing.naming import Match, by_pattern, by_segments, by_text, layer, names, strays
from remap.adapters.scaling import by_pattern as value_of
from remap.errors import UsageError

Config = dict[str, object]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Found:
    """What the carriers made."""

    ranked: Sequence[Ranked]
    multiplied: Sequence[Multiplied]
    trained: Sequence[Trained]
    renamed: Sequence[Renamed]

    @property
    def modules(self) -> list[str]:
        """Modules that PEFT is to wrap."""
        return list(
            dict.fromkeys(
                [
                    *(r.module for r in self.ranked if not r.bare),
                    *(m.module for m in self.multiplied),
                    *(t.module for t in self.trained if t.head == "ln_tuning_layers"),
                    *(r.module for r in self.renamed if not _tokens(r)),
                ]
            )
        )


def _tokens(renamed: Renamed) -> bool:
    return any(c.tensor.leaf.startswith("token_adapter.") for c in renamed.carried)


def configured(job: Job, found: Found, base_name: str | None) -> Config:
    """The new configuration; one of LoRA where there was none."""
    old = dict(job.adapter.config)
    universe = _modules(o.key for o in job.plan.outputs) if job.whole else None
    new: Config = dict(old) or {"peft_type": "LORA"}
    new.update(_followed(old, found.renamed))
    if found.modules or found.ranked:
        new.update(_targets(old, found, universe, job))
    if found.ranked:
        new.update(_ranks(old, found.ranked))
    if old.get("feedforward_modules") is not None:
        ahead = [m.module for m in found.multiplied if m.inputs]
        behind = [m.module for m in found.multiplied if not m.inputs]
        new["feedforward_modules"] = _named(ahead, behind, universe, by_text)
    saved = list(dict.fromkeys(t.module for t in found.trained if t.head == "modules_to_save"))
    if old.get("modules_to_save") is not None:
        new["modules_to_save"] = _named(saved, (), universe, by_text)
    if isinstance(old.get("trainable_token_indices"), Mapping):
        new["trainable_token_indices"] = _token_indices(old, found.renamed, universe)
    if base_name is not None:
        new["base_model_name_or_path"] = base_name
    return new


def _modules(keys: Iterable[str]) -> frozenset[str]:
    """Every module on the paths of the keys."""
    found: set[str] = set()
    for key in keys:
        module = split(key)[0]
        while module and module not in found:
            found.add(module)
            module = split(module)[0]
    return frozenset(found)


def _named(
    chosen: Sequence[str],
    others: Iterable[str],
    universe: frozenset[str] | None,
    match: Match,
    least: int = 1,
) -> list[str]:
    """Short names where all modules are known, else whole paths. Raises UsageError where PEFT would match
    more."""
    if universe is None:
        return sorted(chosen)
    foreign = universe | set(others)
    found = list(names(chosen, foreign, match, least))
    more = strays(found, chosen, foreign, match)
    if more:
        raise UsageError(
            f"PEFT has no name for {', '.join(found)} that is not a name of other modules, too", problems=more
        )
    return found


def _target_modules(chosen: Sequence[str], universe: frozenset[str] | None) -> list[str] | str:
    """As ``_named``; a regular expression of whole paths where one is the end of another."""
    if universe is None:
        return sorted(chosen)
    found = list(names(chosen, universe, by_segments))
    if strays(found, chosen, universe, by_segments):
        return "|".join(map(re.escape, sorted(chosen)))
    return found


def _targets(old: Config, found: Found, universe: frozenset[str] | None, job: Job) -> Config:
    """``target_modules`` and what narrows them; ``target_parameters``."""
    modules = found.modules
    new: Config = {}
    if "exclude_modules" in old:
        new["exclude_modules"] = None
    layers = sorted({n for m in modules if (n := layer(m)) is not None})
    narrowed = old.get("layers_to_transform") is not None
    if narrowed:
        new |= {"layers_to_transform": None, "layers_pattern": None}
    new["target_modules"] = _target_modules(modules, universe)
    if narrowed and universe is not None and all(layer(m) is not None for m in modules):
        short = _target_modules(modules, frozenset(m for m in universe if layer(m) in layers))
        if not isinstance(short, str):  # PEFT takes layers beside a list only
            new |= {"layers_to_transform": layers, "target_modules": short}
    bare = [f"{r.module}.{r.name}" for r in found.ranked if r.bare]
    if bare or old.get("target_parameters"):
        every = frozenset(o.key for o in job.plan.outputs) if job.whole else None
        new["target_parameters"] = _named(bare, (), every, by_segments, least=2) or None
    flipped = {r.factors.flipped for r in found.ranked if r.factors.kind == "linear"}
    flipped |= {m.flipped for m in found.multiplied}
    if flipped:
        new["fan_in_fan_out"] = flipped == {True}
    return new


def _ranks(old: Config, ranked: Sequence[Ranked]) -> Config:
    """``r``, ``lora_alpha`` and the patterns for modules that differ from them."""
    ranks = {_path(r): r.rank for r in ranked}
    alphas = {_path(r): _whole(r.alpha) for r in ranked}
    r, alpha = _default(old.get("r"), ranks), _default(old.get("lora_alpha"), alphas)
    return {
        "r": r,
        "lora_alpha": alpha,
        "rank_pattern": _patterns(ranks, r),
        "alpha_pattern": _patterns(alphas, alpha),
    }


def _path(ranked: Ranked) -> str:
    """What PEFT matches patterns with: a module's path, a parameter's key."""
    return f"{ranked.module}.{ranked.name}" if ranked.bare else ranked.module


def _whole(number: float) -> float:
    """An integer where it is one: alphas are written so."""
    near = round(number)
    return near if abs(number - near) < 1e-9 * max(1.0, abs(number)) else number


def _default(said: object, values: Mapping[str, float]) -> float:
    """What was said, while a module still has it, else what most modules have."""
    if isinstance(said, (int, float)) and said in values.values():
        return said
    return Counter(values.values()).most_common(1)[0][0]


def _patterns(values: Mapping[str, Value], default: Value) -> dict[str, Value]:
    """Patterns for what differs from the default. Only modules with factors are asked, so only they count."""
    found: dict[str, Value] = {}
    for value in dict.fromkeys(v for v in values.values() if v != default):
        mine = [m for m, v in values.items() if v == value]
        rest = set(values) - set(mine)
        for name in names(mine, rest, by_pattern):
            found[f"^{name}" if strays([name], mine, rest, by_pattern) else name] = value
    return found


def _followed(old: Config, renamed: Sequence[Renamed]) -> Config:
    """What is set for some modules of methods whose tensors go along as they are: ``rank_pattern`` of LoHa
    and LoKr, ``n_frequency_pattern``, ``block_size_pattern``; AdaLoRA's ranks, by the names of tensors."""
    new: Config = {}
    for name, said in old.items():
        if not name.endswith("_pattern") or not isinstance(said, Mapping) or not renamed:
            continue
        values = {r.module: value_of(said, r.before) for r in renamed}
        tensors = {f"{r.before}.lora_E": f"{r.module}.lora_E" for r in renamed}
        new[name] = _patterns(values, None) | {tensors[k]: v for k, v in said.items() if k in tensors}
    return new


def _token_indices(
    old: Config, renamed: Sequence[Renamed], universe: frozenset[str] | None
) -> dict[str, object]:
    said = old["trainable_token_indices"]
    assert isinstance(said, Mapping)
    new: dict[str, object] = {}
    for r in (r for r in renamed if _tokens(r)):
        indices = next((v for name, v in said.items() if by_text(str(name), r.before)), None)
        if indices is None:
            raise UsageError(f"trainable_token_indices has no tokens of {r.before}")
        (name,) = _named([r.module], (), universe, by_text)
        new[name] = indices
    return new
