"""What a checkpoint is to be loaded into: keys, shapes, which are buffers, which are tied.

    Target            the value
    from_catalog      a checkpoint or key list as target
    open_target       a path, ``module:function``, a folder with a config.json only, a layout's name, a model

What needs torch or transformers is found by a dotted name in ``OPENERS`` and imported when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remap.errors import UsageError
from remap.files import is_remote, locate
from remap.formats import registry
from remap.formats.keylist import UNKNOWN
from remap.packs import available_layouts, load_layout
from remap.packs.load import LAYOUT
from remap.parallel import AS_FOUND, Settings, whole
from remap.types import Catalog, Entry, TensorSpec

if TYPE_CHECKING:
    from torch.nn import Module


@dataclass(frozen=True)
class Target:
    """What a checkpoint is to be loaded into.

    name        how reports call it
    specs       key -> spec, in the model's order
    buffers     keys that are buffers; None where that isn't known (a key list has names only)
    ties        key -> the first key that shares its storage; None where that isn't known (a list of names
                says nothing of it)
    names_only  shapes and dtypes are not known
    catalog     the checkpoint that it was read from, where its values may be compared
    config      the model's config.json
    optional    groups of keys that it may have and that the source has not, one line each
    untyped     its element types are not known; it has those of the source
    """

    name: str
    specs: Mapping[str, TensorSpec]
    buffers: frozenset[str] | None = None
    ties: Mapping[str, str] | None = None
    names_only: bool = False
    catalog: Catalog | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    untyped: bool = False


def names_only(catalog: Catalog) -> bool:
    """Was it read from an index whose shards are absent?"""
    return any(e.spec is UNKNOWN for e in catalog.entries.values())


def from_catalog(catalog: Catalog) -> Target:
    """A checkpoint or a key list as the target. A list may say which keys are buffers, and which are tied."""
    said = catalog.metadata if catalog.format == "keys" else {}
    return Target(
        name=str(catalog.root),
        specs={k: e.spec for k, e in catalog.entries.items()},
        buffers=frozenset(json.loads(said["buffers"])) if "buffers" in said else None,
        ties=json.loads(said["ties"]) if "ties" in said else catalog.aliases or None,
        names_only=names_only(catalog),
        catalog=catalog,
        config=catalog.config,
    )


def as_catalog(target: Target) -> Catalog:
    """A target as a catalog without locations, for its key list."""
    if target.catalog is not None:
        return target.catalog
    known: dict[str, object] = {}
    if target.buffers is not None:
        known["buffers"] = sorted(target.buffers)
    if target.ties is not None:
        known["ties"] = dict(target.ties)
    return Catalog(
        format="model",
        root=Path(target.name),
        files=(),
        entries={k: Entry(k, s) for k, s in target.specs.items()},
        metadata={k: json.dumps(v) for k, v in known.items()},
        config=target.config,
    )


Opener = Callable[[Any], Target]
OPENERS = {
    "model": "remap.integrations.torch_model:target_of",
    "function": "remap.integrations.torch_model:open_function",
    "config": "remap.integrations.transformers_model:open_folder",
}
"""What opens a target that is no file of tensors: dotted name of a function from its text, or the model, to a
Target."""


def open_target(
    what: str | Path | Catalog | Target | Module,
    *,
    at: str | None = None,
    offered: Iterable[Entry] = (),
    config: Mapping[str, object] | None = None,
    params: Mapping[str, str] | None = None,
    settings: Settings = AS_FOUND,
) -> Target:
    """The target that ``what`` names, or is. Raises UsageError, InputError, PackError.

    A path is a checkpoint, a key list, or a Hugging Face folder with a ``config.json`` and no weights.
    ``package.module:function`` and ``path.py:function`` return an ``nn.Module``. ``family/name``, or the path
    of a ``.layout.yaml``, is a layout, whose parameters are ``params``, or read from ``config`` and the
    ``offered`` entries of the source. Other targets but the ranks of a parallel run have no parameters:
    UsageError.
    """
    if isinstance(what, Target):
        return what
    if isinstance(what, Catalog):
        return from_catalog(what)
    if not isinstance(what, (str, Path)):
        return _of_model(what)
    path = locate(what).expanduser()
    text = str(path) if is_remote(path) else str(what)
    if text in available_layouts() or (path.name.endswith(LAYOUT) and path.is_file()):
        return _from_layout(text, offered, config, params)
    if path.exists() and not _config_only(path):
        found = registry.open_catalog(path, at=at, options=settings.reading)
        model = whole(found, replace(settings, params=params or {}))
        if model is found:
            _check_no_params(params, text)
        return from_catalog(model)
    if path.exists() or ":" in text:
        _check_no_params(params, text)
        return _opener("config" if path.exists() else "function")(text)
    raise UsageError(
        "nothing to audit against: no such file or folder",
        where=text,
        remedy="give a checkpoint, a key list (remap keys MODEL -o keys.json), a folder with config.json, "
        f"package.module:function or path.py:function, or a layout: {', '.join(available_layouts())}",
    )


def _of_model(model: Module) -> Target:
    if not hasattr(model, "named_parameters"):
        raise UsageError(
            f"nothing to audit against: this is a {type(model).__name__}",
            remedy="give a path, a model (torch.nn.Module), or a Target",
        )
    return _opener("model")(model)


def _check_no_params(params: Mapping[str, str] | None, text: str) -> None:
    if params:
        raise UsageError(
            "a target that is no layout, nor the ranks of a parallel run, has no parameters",
            where=text,
            problems=[f"{k}={v}" for k, v in params.items()],
            remedy=f"leave them out, or name a layout: {', '.join(available_layouts())}",
        )


def _from_layout(
    name: str,
    offered: Iterable[Entry],
    config: Mapping[str, object] | None,
    params: Mapping[str, str] | None,
) -> Target:
    from remap.audits.layout_target import from_layout

    return from_layout(load_layout(name), offered, config, params)


def _opener(kind: str) -> Opener:
    module, _, name = OPENERS[kind].partition(":")
    found: Opener = getattr(import_module(module), name)
    return found


def _config_only(path: Path) -> bool:
    """A Hugging Face folder whose weights are absent."""
    if not path.is_dir() or not (path / "config.json").is_file():
        return False
    try:
        is_model = "model_type" in json.loads((path / "config.json").read_bytes())
    except (ValueError, OSError):
        return False
    return is_model and not registry.find(path)
