"""``remap adapter``: split an adapter off, put it on a base, carry it to other names, merge it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remap.cli import options, terminal
from remap.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from remap.receipt import Receipt

MOST = 8
"""Tensors of a module that are listed; of an image prefix there are hundreds."""
adapter = click.argument("adapter", type=options.Place())
destination = click.option(
    "-o",
    "--output",
    "destination",
    type=options.Place(),
    required=True,
    help="What is written: a folder, or one file where it ends in .safetensors.",
)
others = click.option(
    "--others",
    type=click.Choice(["refuse", "drop", "keep"]),
    default="refuse",
    show_default=True,
    help="Tensors in an adapter's file that are no adapter's (weights of the base).",
)


@click.group()
def command() -> None:
    """Take adapters out of checkpoints, put them on bases, carry them to other names, merge them."""


@command.command("show", short_help="Whose words, which modules, ranks and scales.")
@adapter
@options.at
@options.as_json
def show(adapter: Path, at: str | None, as_json: bool) -> None:
    """What is this adapter? Whose words, which modules, ranks and scales; exit code 1 if it is not whole."""
    from remap.adapters import read
    from remap.adapters.about import about
    from remap.reports.collapse import collapse

    found = about(read(adapter, at=at))
    if as_json:
        terminal.print_json({"version": 1, "adapter": found})
        raise SystemExit(1 if found.problems else 0)
    click.echo(f"dialect    {found.dialect} ({found.title})")
    click.echo(f"method     {found.method}")
    if len(found.names) > 1:
        click.echo(f"adapters   {', '.join(map(printable, found.names))}")
    if found.others:
        count = terminal.count(len(found.others), "tensor")
        click.echo(f"others     {count}, {found.share:.0%} of the bytes, are no adapter's")
    rows = [(m.adapter, m.module or "(no module)", m.rank, m.scale, _listed(m.leaves)) for m in found.modules]
    lines = [(f"{line.count}", *line.cells) for line in collapse(rows)]
    click.echo()
    terminal.table(lines, ("modules", "adapter", "module", "rank", "scale", "tensors"), frozenset({0}))
    for problem in found.problems:
        terminal.note(f"problem: {problem}")
    raise SystemExit(1 if found.problems else 0)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= MOST else terminal.count(len(names), "tensor")


@command.command("extract", short_help="Out of the checkpoint of a model that has it.")
@options.source
@destination
@click.option(
    "--part",
    type=click.Choice(["adapter", "image-prefix", "base", "unwrapped"]),
    default="adapter",
    show_default=True,
    help="What is taken out: the adapter (and MAGMA's image prefix), the image prefix alone, the base under "
    "its own names, or the base's names with the adapters kept beside.",
)
@click.option("--name", help="The adapter's name, where the model has several.")
@click.option(
    "--base",
    type=options.Place(exists=True),
    help="What it was made from: weights that differ from it were trained, and go with the adapter.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=options.Setting(),
    help="A setting of adapter_config.json that the tensors don't tell, lora_alpha=16 (repeatable).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An adapter_config.json, where none lies beside the checkpoint.",
)
@options.at
@options.to
@options.writing
@options.as_json
def extract(
    source: Path,
    destination: Path,
    part: str,
    name: str | None,
    base: Path | None,
    settings: tuple[tuple[str, str], ...],
    config: Path | None,
    at: str | None,
    to: str | None,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Take an adapter out of the checkpoint SOURCE of a model that has it, in any format.

    Of a model wrapped by PEFT a PEFT folder is made; MAGMA's adapters get a small JSON beside them that says
    what they are.
    """
    from remap.adapters import extract as run
    from remap.output import How

    with terminal.progress("extracting") as progress:
        receipt, notes = run(
            source,
            destination,
            part=part,
            name=name,
            base=base,
            settings={key: plain(value) for key, value in settings},
            config=config,
            at=at,
            to=to,
            how=How(progress=progress, **writing),
        )
    report(receipt, destination, notes, as_json, drops=False)


@command.command("graft", short_help="Onto a base, under the wrapped model's names.")
@click.argument("base", type=options.Place())
@adapter
@destination
@options.rules
@options.params
@click.option("--name", default="default", show_default=True, help="The adapter's name in the model (PEFT).")
@click.option(
    "--names-only",
    is_flag=True,
    help="The wrapped names without the adapter: in the model it keeps its initial values.",
)
@others
@options.to
@click.option("--shard-size", type=options.Size(), help="Largest file of the output: 5GB, 500MiB, ...")
@click.option("--tag", help="Name of the step folder (DeepSpeed); global_step0 without it.")
@options.writing
@options.as_json
def graft(
    base: Path,
    adapter: Path,
    destination: Path,
    rules: tuple[str, ...],
    params: tuple[tuple[str, str], ...],
    name: str,
    names_only: bool,
    others: str,
    to: str | None,
    shard_size: int | None,
    tag: str | None,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Put an adapter on a base: a checkpoint under the names of the wrapped model, for a strict load.

    ADAPTER is an adapter, or a checkpoint with one in it: adapters of one run go on another base. A base
    under other names is renamed by the packs of -r, or by the one installed pack that gives all of the
    adapter's modules.
    """
    from remap.adapters import graft as run
    from remap.output import How

    with terminal.progress("grafting") as progress:
        receipt, notes = run(
            base,
            adapter,
            destination,
            rules=rules,
            params=dict(params),
            name=name,
            names_only=names_only,
            others=others,
            to=to,
            shard_size=shard_size,
            tag=tag,
            how=How(progress=progress, **writing),
        )
    report(receipt, destination, notes, as_json)


@command.command("migrate", short_help="To other names, or another library's words.")
@adapter
@destination
@options.rules
@click.option("--inverse", is_flag=True, help="Apply the packs backwards.")
@options.params
@click.option(
    "--to",
    metavar="DIALECT",
    help="Whose words: peft, kohya, diffusers, magma or megatron.",
)
@click.option(
    "--base",
    type=options.Place(exists=True),
    help="The model that it was made for, or its key list: for packs that join or cut weights, and for "
    "kohya's flattened names.",
)
@click.option("--base-name", metavar="NAME", help="What the configuration is to call the new base.")
@click.option(
    "--component",
    default="",
    metavar="NAME",
    help="The part of a pipeline that it is for, where no key says so: unet, text_encoder, ...",
)
@others
@options.writing
@options.as_json
def migrate(
    destination: Path,
    adapter: Path,
    params: tuple[tuple[str, str], ...],
    writing: options.Writing,
    as_json: bool,
    **how: Any,
) -> None:
    """Let an adapter follow its base through packs (-r), or say it in another library's words (--to).

    The rules that a base is converted with are the rules of its adapter: query, key and value that are split
    share A, what is joined is laid side by side, and adapter_config.json names the new modules. What can't
    follow is refused by name.

    A PEFT folder has room for alpha in adapter_config.json, kohya's files for one beside the factors; where
    there is room for none, the scale is multiplied into B.
    """
    from remap.adapters.migrating.migrate import migrate as run
    from remap.output import How

    with terminal.progress("migrating") as progress:
        receipt, notes = run(
            adapter, destination, params=dict(params), how=How(progress=progress, **writing), **how
        )
    report(receipt, destination, notes, as_json)


def merging(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments of ``merge`` and ``unmerge``."""
    for option in (
        options.as_json,
        options.writing,
        click.option(
            "--shard-size", type=options.Size(), help="Largest file of the output: 5GB, 500MiB, ..."
        ),
        options.to,
        options.at,
        click.option(
            "--weight",
            "weights",
            multiple=True,
            type=float,
            help="How much of the change: once for all adapters, or once for each; 1 without.",
        ),
        destination,
        click.argument("adapters", nargs=-1, required=True, type=options.Place()),
        click.argument("base", type=options.Place()),
    ):
        function = option(function)
    return function


@command.command("merge", short_help="Into the weights of its base.")
@merging
def merge(**given: Any) -> None:
    """Write BASE with the changes of ADAPTERS in it: W + weight * alpha/r * B @ A, computed in float32 and
    rounded once to the base's type.

    Of DoRA, IA3 and what was trained in full, the weight is the share of the new. Tensors that no adapter
    changes are copied as bytes.
    """
    _merge("merging", undo=False, **given)


@command.command("unmerge", short_help="Out of the weights that it was merged into.")
@merging
def unmerge(**given: Any) -> None:
    """Take the changes of ADAPTERS out of BASE, into which they were merged with these weights.

    The result is right up to the precision of the base's type. What was replaced is not known any more.
    """
    _merge("taking out", undo=True, **given)


def _merge(
    what: str,
    base: Path,
    adapters: tuple[Path, ...],
    destination: Path,
    writing: options.Writing,
    as_json: bool,
    **how: Any,
) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads are --jobs; NumPy's would wait for them
    from remap.adapters.merging.write import merge as run
    from remap.output import How
    from remap.reports.collapse import collapse

    with terminal.progress(what) as progress:
        receipt, plan = run(base, adapters, destination, how=How(progress=progress, **writing), **how)
    changed = [o.key for o in plan.outputs if o.op == "merge"]
    report(receipt, destination, plan.notes, as_json)
    if not as_json:
        click.echo(f"changed: {len(changed)} of {terminal.count(len(plan.outputs), 'tensor')}")
        for line in collapse([[key] for key in changed]):
            click.echo(f"  {line.count:6}  {line.cells[0]}")


def plain(text: str) -> object:
    """The value of a setting: JSON where it is some, else text."""
    import json

    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def report(
    receipt: Receipt, destination: Path, notes: Iterable[str], as_json: bool, *, drops: bool = True
) -> None:
    """What was written, and what is to be known of it."""
    for text in (*notes, *receipt.warnings):
        terminal.note(f"note: {text}")
    if as_json:
        terminal.print_json(receipt)
        return
    click.echo(
        f"{destination}: {receipt.format}, {terminal.count(len(receipt.tensors), 'tensor')} in "
        f"{terminal.count(len(receipt.files), 'file')}, {terminal.size(receipt.nbytes)}"
    )
    if receipt.drops and drops:
        reasons = sorted({d.because for d in receipt.drops})
        terminal.note(f"note: {terminal.count(len(receipt.drops), 'tensor')} dropped: {'; '.join(reasons)}")
