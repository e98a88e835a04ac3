"""A path or catalog -> the Adapter in it: which dialect, which tensors, and what is none of it.

The dialect that knows most keys is the file's. PEFT keeps modules that were trained in full, and biases,
under their own names: only ``adapter_config.json`` tells them from the base's weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from remap.adapters.model import Adapter
from remap.audits.names.wrappers import unwrap
from remap.dialects import registry
from remap.dialects.base import AdapterTensor, Dialect
from remap.dialects.peft import SAVED, WRAPPER
from remap.dialects.plain import joined
from remap.documents import parse_json, read_document
from remap.errors import Damaged, NotACheckpoint
from remap.opening import Source, catalog
from remap.types import Catalog

CONFIG = "adapter_config.json"
OWN = "remap.adapter.json"
"""What ``extract`` leaves beside an adapter that PEFT doesn't know."""


def read(source: Source, *, at: str | None = None) -> Adapter:
    """The adapter at ``source``: a folder, a file, a checkpoint of a wrapped model. Raises InputError."""
    found = catalog(source, at=at)
    adapter = recognised(found)
    if adapter is None:
        raise NotACheckpoint(
            "no tensor of an adapter is in it",
            where=found.asked or found.root,
            problems=[str(f) for f in found.files],
            remedy=f"remap knows the adapters of {', '.join(d.title for d in registry.dialects())}",
        )
    return adapter


def recognised(found: Catalog) -> Adapter | None:
    """The adapter in a catalog, None where there is none. Raises Damaged for a broken configuration."""
    best = _best(found)
    if best is None:
        return None
    dialect, tensors = best
    config = read_config(found)
    if dialect.name == "peft":
        tensors += _named_by(config, found, tensors)
    tensors += _alphas(found, tensors)
    mine = {t.key for t in tensors}
    order = {k: i for i, k in enumerate(found.entries)}
    return Adapter(
        dialect=dialect.name,
        catalog=found,
        config=config,
        tensors=tuple(sorted(tensors, key=lambda t: order[t.key])),
        base=tuple(k for k in found.entries if k not in mine),
    )


def read_config(found: Catalog) -> Mapping[str, object]:
    """The adapter's configuration, {} where none lies beside it. Raises Damaged."""
    folder = found.root if found.root.is_dir() else found.root.parent
    path = next((folder / n for n in (CONFIG, OWN) if (folder / n).is_file()), None)
    return {} if path is None else read_json(path)


def read_json(path: Path) -> Mapping[str, object]:
    """A table of settings. Raises Damaged."""
    config = parse_json(read_document(path), "JSON", path)
    if not isinstance(config, dict):
        raise Damaged("not a table of settings", where=path)
    return config


def _best(found: Catalog) -> tuple[Dialect, list[AdapterTensor]] | None:
    best: tuple[Dialect, list[AdapterTensor]] | None = None
    for dialect in registry.dialects():
        tensors = [replace(t, key=k) for k in found.entries if (t := dialect.parse(unwrap(k)))]
        if tensors and (best is None or len(tensors) > len(best[1])):
            best = dialect, tensors
    return best


def _named_by(
    config: Mapping[str, object], found: Catalog, tensors: Iterable[AdapterTensor]
) -> list[AdapterTensor]:
    """Modules that were trained in full, and biases: PEFT's file has them under the base's own names."""
    known = {t.key for t in tensors}
    saved = tuple(map(str, _list(config.get(SAVED))))
    biases = config.get("bias", "none") in ("all", "lora_only")
    more = []
    for key in found.entries:
        segments = key.split(".")
        if key in known or tuple(segments[: len(WRAPPER)]) != WRAPPER:
            continue
        path = segments[len(WRAPPER) :]
        end = _module_end(path, saved)
        if end is not None:
            leaf = ".".join((SAVED, *path[end:]))
            more.append(AdapterTensor(key, ".".join(path[:end]), leaf, wrapper=".".join(WRAPPER)))
        elif biases and path[-1] == "bias":
            cut = -2 if path[-2:-1] == ["base_layer"] else -1
            more.append(
                AdapterTensor(key, ".".join(path[:cut]), ".".join(path[cut:]), wrapper=".".join(WRAPPER))
            )
    return more


def _alphas(found: Catalog, tensors: Iterable[AdapterTensor]) -> list[AdapterTensor]:
    """``alpha`` beside the factors of a module."""
    known = {t.key for t in tensors}
    first = {joined(t.wrapper, t.module): t for t in tensors}
    more = []
    for key, entry in found.entries.items():
        module, _, leaf = key.rpartition(".")
        if leaf == "alpha" and key not in known and module in first and entry.spec.numel == 1:
            more.append(replace(first[module], key=key, leaf="alpha"))
    return more


def _module_end(path: list[str], names: tuple[str, ...]) -> int | None:
    """Where the path of the first module that ends with one of ``names`` ends; PEFT matches any text, so
    ``head`` is ``lm_head``."""
    return next((n for n in range(1, len(path)) if ".".join(path[:n]).endswith(names)), None)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []
