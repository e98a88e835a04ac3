"""Arguments that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from remap.files import is_remote, locate

if TYPE_CHECKING:
    from remap.parallel import Settings

_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", re.IGNORECASE)


class Size(click.ParamType[int]):
    """A number of bytes: ``500000``, ``5GB``, ``1GiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        size = int(float(found[1]) * _UNITS[(found[2] or "").upper()]) if found else 0
        if size <= 0:
            self.fail(f"{value!r} is not a size; write 500MB, 5GB or 1GiB", param, ctx)
        return size


class Place(click.Path):
    """A path, or the URL of a remote file: what it says in confidence goes no further."""

    def __init__(self, exists: bool = False) -> None:
        super().__init__(exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = locate(value)
        return found if is_remote(found) else Path(str(super().convert(value, param, ctx)))


class Setting(click.ParamType[tuple[str, str]]):
    """``name=value``."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, sep, text = value.partition("=")
        if not (sep and name):
            self.fail(f"{value!r} is not name=value", param, ctx)
        return name, text


source = click.argument("source", type=Place())
destination = click.argument("destination", type=Place())
at = click.option(
    "--at",
    metavar="A.B",
    help='Where the state dict lies in a torch file or DCP folder, if that is ambiguous; "" is everything.',
)
weights = click.option(
    "--weights",
    type=click.Choice(["model", "zero"]),
    default="model",
    show_default=True,
    help="Those that a DeepSpeed run trained with, or the fp32 weights in its ZeRO files.",
)
rules = click.option(
    "-r", "--rules", multiple=True, metavar="PACK", help="A pack, family/name or a file (repeatable)."
)
output = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write; stdout without it."
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON (it has a version) instead of text."
)
optimizer = click.option(
    "--optimizer/--no-optimizer", default=True, help="Keep the optimizer's state (the default), or not."
)
to = click.option(
    "--to",
    metavar="FORMAT",
    help="Output format: safetensors, torch, dcp, metaseq, megatron, deepspeed-pipeline, deepspeed, "
    "deepspeed-universal.",
)


params = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    type=Setting(),
    help="A pack's or layout's parameter (repeatable).",
)
layout = click.option(
    "--layout",
    metavar="NAME",
    help="How tensor-parallel ranks divide tensors: family/name, or a file; by default the layout that knows "
    "the keys.",
)
on_disagree = click.option(
    "--on-disagree",
    type=click.Choice(["error", "first", "mean"]),
    default="error",
    show_default=True,
    help="Copies that differ between ranks: refuse them, take rank 0's, or average them.",
)
partition = click.option(
    "--partition",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="YAML file: how metaseq's parts divide tensors with further names.",
)
tp = click.option("--tp", type=click.IntRange(1), metavar="N", help="Tensor-parallel ranks; model parts.")
pp = click.option("--pp", type=click.IntRange(1), metavar="N", help="Pipeline stages (DeepSpeed, Megatron).")


class Merging(TypedDict):
    """How tensor-parallel ranks are merged: arguments of ``api.catalog``."""

    settings: Settings
    params: dict[str, str]


def merging(function: Callable[..., None]) -> Callable[..., None]:
    """The options of ``Merging``, which the command takes as one argument, ``merged``."""

    @functools.wraps(function)
    def command(**given: Any) -> None:
        function(merged=Merging(settings=_settings(given), params=dict(given.pop("params"))), **given)

    for option in (partition, on_disagree, layout, params):
        command = option(command)
    return command


class How(TypedDict):
    """What is to be converted, and how: the arguments that ``api.plan`` and ``api.convert`` share."""

    rules: tuple[str, ...]
    inverse: bool
    params: dict[str, str]
    dtype: str | None
    again: tuple[str, ...]
    at: str | None
    settings: Settings


def conversion(function: Callable[..., None]) -> Callable[..., None]:
    """The options of ``How``, which the command takes as one argument, ``how``."""

    @functools.wraps(function)
    def command(**given: Any) -> None:
        given["params"] = dict(given["params"])
        given["at"] = _place(given["at"], given.pop("weights"))
        given["settings"] = _settings(given)
        how = {name: given.pop(name) for name in How.__annotations__}
        function(how=how, **given)

    for option in (
        at,
        weights,
        partition,
        on_disagree,
        layout,
        click.option(
            "--again", multiple=True, metavar="RULE", help="Let this rule apply to names that it made."
        ),
        click.option("--dtype", metavar="TYPE", help="Cast floating-point tensors: f16, bf16, f32, ..."),
        params,
        click.option("--inverse", is_flag=True, help="Apply the packs backwards."),
        rules,
    ):
        command = option(command)
    return command


def _settings(given: dict[str, Any]) -> Settings:
    """What was given of it, which is taken out."""
    from remap.parallel import Settings

    return Settings(
        layout=given.pop("layout"), copies=given.pop("on_disagree"), partition=given.pop("partition")
    )


def _place(at: str | None, weights: str) -> str | None:
    """Where the weights lie; ZeRO's have a place of their own."""
    if weights == "model":
        return at
    if at is not None:
        raise click.UsageError("--weights zero says where the weights lie, and so does --at: give one")
    return weights


class Writing(TypedDict):
    """How an output is written: the arguments that ``api.convert`` and ``reshard`` share."""

    jobs: int | None
    memory: int
    sync: bool
    overwrite: bool
    resume: bool
    executor: str | None


def writing(function: Callable[..., None]) -> Callable[..., None]:
    """The options of ``Writing``, which the command takes as one argument, ``writing``."""

    @functools.wraps(function)
    def command(**given: Any) -> None:
        function(writing={name: given.pop(name) for name in Writing.__annotations__}, **given)

    for option in (
        click.option(
            "--resume", is_flag=True, help="Go on where a run that was killed stopped; keep what is written."
        ),
        click.option("--overwrite", is_flag=True, help="Replace what remap wrote there before."),
        click.option("--sync", is_flag=True, help="Return only when the disk has it (cp does not wait)."),
        click.option(
            "--memory", type=Size(), default="1GiB", show_default=True, help="What computed tensors may take."
        ),
        click.option("--jobs", type=click.IntRange(1, 64), metavar="N", help="Threads, or processes."),
        click.option(
            "--executor",
            metavar="WHO",
            help="Who does the work: threads (the default), processes, dask://host:port, mpi.",
        ),
    ):
        command = option(command)
    return command
