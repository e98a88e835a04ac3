"""Arguments that several commands of ``remap adapter`` have, and what they say when they are done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remap.receipt import Receipt

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


def report(
    receipt: Receipt, destination: Path, notes: Iterable[str], as_json: bool, *, drops: bool = True
) -> None:
    """What was written, and what is to be known of it."""
    for text in (*notes, *receipt.warnings):
        terminal.note(f"note: {text}")
    if as_json:
        terminal.print_json(receipt)
        return
    terminal.written(destination, receipt)
    if drops:
        terminal.dropped(receipt)
