"""``remap adapter``: split an adapter off, put it on a base, carry it to other names, merge it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal
from remap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remap.receipt import Receipt

adapter = click.argument("adapter", type=click.Path(path_type=Path))
destination = click.option(
    "-o",
    "--output",
    "destination",
    type=click.Path(path_type=Path),
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
    """Adapters: split off a checkpoint, put on a base, carried to other names, merged."""


@command.command("migrate")
@adapter
@destination
@click.option(
    "--to",
    metavar="DIALECT",
    help="Whose words: peft, kohya, diffusers, magma or megatron.",
)
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True),
    help="The model that it was made for (or its key list): tells what kohya's flattened names mean.",
)
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
    adapter: Path,
    destination: Path,
    to: str | None,
    base: Path | None,
    component: str,
    others: str,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Say an adapter in another library's words (--to).

    A PEFT folder has room for alpha in adapter_config.json, kohya's files for one beside the factors; where
    there is room for none, the scale is multiplied into B.
    """
    from remap.adapters.migrate import migrate as run
    from remap.output import How

    if to is None:
        raise UsageError("nothing is to be done", remedy="say what with --to")
    with terminal.progress("migrating") as progress:
        receipt, notes = run(
            adapter,
            destination,
            to=to,
            base=base,
            component=component,
            others=others,
            how=How(progress=progress, **writing),
        )
    report(receipt, destination, notes, as_json)


def report(receipt: Receipt, destination: Path, notes: Iterable[str], as_json: bool) -> None:
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
    if receipt.drops:
        reasons = sorted({d.because for d in receipt.drops})
        terminal.note(f"note: {terminal.count(len(receipt.drops), 'tensor')} dropped: {'; '.join(reasons)}")
