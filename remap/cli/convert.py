"""``remap convert SRC DST -r PACK...``: do it."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import in_place as renaming
from remap.cli import options, terminal


@click.command()
@options.source
@click.argument("destination", type=options.Place(), required=False)
@options.conversion
@options.to
@click.option("--shard-size", type=options.Size(), help="Largest file of the output: 5GB, 500MiB, ...")
@click.option("--tag", help="Name of the step folder (DeepSpeed); global_step0 without it.")
@click.option(
    "--ranks",
    type=click.IntRange(1),
    metavar="N",
    help="Cut every tensor over so many ranks, a file each (DCP).",
)
@click.option("--under", metavar="A.B", help="Where in the output the state dict is to lie (DCP, torch).")
@options.tp
@options.pp
@options.optimizer
@click.option("--in-place", is_flag=True, help="Rename keys inside SOURCE's safetensors files.")
@click.option("--undo", is_flag=True, help="Take back what --in-place did.")
@options.writing
@options.as_json
def command(
    source: Path,
    destination: Path | None,
    how: options.How,
    to: str | None,
    shard_size: int | None,
    tag: str | None,
    ranks: int | None,
    under: str | None,
    tp: int | None,
    pp: int | None,
    optimizer: bool,
    in_place: bool,
    undo: bool,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Convert a checkpoint: other names, another format, or both.

    DESTINATION is one file where it ends in .safetensors, .pt, .pth, .bin or .ckpt, else a folder. It
    appears once it is written whole and checked; a receipt lies beside it. With --in-place there is none.
    """
    from remap import api

    if in_place or undo:
        given = {
            "to": to,
            "shard_size": shard_size,
            "tag": tag,
            "ranks": ranks,
            "under": under,
            "tp": tp,
            "pp": pp,
            "no_optimizer": not optimizer,
            "dtype": how["dtype"],
            "at": how["at"],
            "overwrite": writing["overwrite"],
        }
        renaming.check(destination, given)
        renaming.run(source, how, undo, writing["resume"])
        return
    if destination is None:
        raise click.UsageError("say where to: DESTINATION, or --in-place")

    with terminal.progress("converting") as progress:
        receipt = api.convert(
            source,
            destination,
            to=to,
            shard_size=shard_size,
            tag=tag,
            ranks=ranks,
            under=under,
            tp=tp,
            pp=pp,
            optimizer=optimizer,
            progress=progress,
            **writing,
            **how,
        )
    if as_json:
        terminal.print_json(receipt)
        return
    terminal.written(destination, receipt)
    terminal.dropped(receipt)
    for text in receipt.warnings:
        terminal.note(f"warning: {text}")
    if receipt.left_behind:
        terminal.note(f"note: not carried along: {', '.join(receipt.left_behind)}")
