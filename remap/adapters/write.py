"""A plan -> an adapter's files, or a checkpoint's, through the one way by which outputs are written.

An adapter is a folder (``adapter_model.safetensors`` and ``adapter_config.json``, as PEFT has it) or one
safetensors file. A checkpoint is whatever ``remap convert`` could write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from remap.adapters.read import CONFIG
from remap.destination import SUFFIXES, laid_out
from remap.errors import UsageError
from remap.files import locate
from remap.formats import registry
from remap.formats.base import Format, Literal, OutFile, WriteOptions
from remap.formats.companions import CONFIG as MODEL
from remap.formats.companions import carried
from remap.output import How, What, reopened, write_output
from remap.plan import Plan, Step
from remap.receipt import BY_ADAPTER, Receipt
from remap.version import __version__

NAME = "adapter_model.safetensors"
_MODEL_S = (MODEL, "generation_config.json")
"""Beside an adapter they would make its folder a model's."""
_STEP = Step(BY_ADAPTER, __version__, "", False, {})


def write_adapter(
    plan: Plan,
    destination: str | Path,
    config: Mapping[str, object] | None,
    how: How,
    name: str = CONFIG,
) -> Receipt:
    """Write an adapter, whole and checked, or nothing.

    config  what ``adapter_config.json`` is to say; None for none. A single file has no place for it: the
            caller has made sure that nothing is lost.
    name    of the configuration's file

    Raises UsageError, DestinationError, Damaged, VerifyError.
    """
    path = locate(destination)
    single = path.suffix in SUFFIXES
    fmt = registry.get(SUFFIXES.get(path.suffix, "safetensors"))
    tensors = {o.key: o.expr for o in plan.outputs}
    fresh = replace(plan.catalog, native=None)  # nothing of its file is carried along
    files = fmt.lay_out(tensors, fresh, WriteOptions(name=path.name if single else NAME))
    if not single:
        beside = tuple(p for p in plan.catalog.companions if p.name not in _MODEL_S)
        files = [*carried(beside), *_config(config, name), *files]
    return _write(plan, fmt, files, single, path, how, ties=False)  # parts of one module share its A


def write_model(
    plan: Plan,
    destination: str | Path,
    how: How,
    *,
    to: str | None = None,
    shard_size: int | None = None,
    tag: str | None = None,
    says: Mapping[str, object] | None = None,
) -> Receipt:
    """Write a checkpoint, in the format of ``plan.catalog`` or the one asked for; as ``write_adapter``.

    says  what ``config.json`` is to say, where it comes along
    """
    fresh = replace(plan, catalog=replace(plan.catalog, native=None))
    fmt, files = laid_out(fresh, destination, to=to, shard_size=shard_size, tag=tag)[:2]
    if says:
        told = _config({**plan.catalog.config, **says}, MODEL)
        files = [f for file in files for f in (told if file.name == MODEL else [file])]
    path = locate(destination)
    return _write(plan, fmt, files, path.suffix in SUFFIXES, path, how)


def _config(config: Mapping[str, object] | None, name: str) -> list[OutFile]:
    if config is None:
        return []
    text = json.dumps(dict(config), indent=2, ensure_ascii=False)
    return [OutFile(name, (Literal(f"{text}\n".encode()),))]


def _write(
    plan: Plan,
    fmt: Format,
    files: Sequence[OutFile],
    single: bool,
    destination: Path,
    how: How,
    *,
    ties: bool = True,
) -> Receipt:
    if not plan.outputs:
        raise UsageError("nothing is left to write", where=plan.catalog.root)
    what = What(format=fmt.name, files=files, single=single, left=plan.catalog.extras, ties=ties)

    steps = (*plan.steps, _STEP)
    return write_output(replace(plan, steps=steps), what, destination, how, partial(reopened, fmt))
