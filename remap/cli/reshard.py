"""``remap reshard SRC DST``: the same tensors in other shards and parts."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal


@click.command()
@options.source
@options.destination
@click.option("--fsdp", type=click.IntRange(1), metavar="N", help="Shards of every part; ranks.")
@options.tp
@options.pp
@click.option("--unflatten", is_flag=True, help="Tensors under their own names instead of flat ones.")
@options.optimizer
@click.option("--dtype", metavar="TYPE", help="Cast floating-point weights: f16, bf16, f32, ...")
@click.option("--optimizer-dtype", metavar="TYPE", help="Cast the optimizer's moments.")
@options.merging
@options.writing
@options.as_json
def command(
    source: Path,
    destination: Path,
    fsdp: int | None,
    tp: int | None,
    pp: int | None,
    unflatten: bool,
    optimizer: bool,
    dtype: str | None,
    optimizer_dtype: str | None,
    merged: options.Merging,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Cut a checkpoint anew: other FSDP shards, other model parts, or unflattened; other ranks and stages.

    SOURCE is any file of the checkpoint: of metaseq or fairscale, of a DCP folder, of torch FSDP's rank files
    (which become a DCP folder). DESTINATION is a folder, or one .pt file where one is written. The
    optimizer's state is cut like the weights; whatever else the files hold comes along.
    """
    from remap.reshard import reshard

    with terminal.progress("resharding") as progress:
        receipt = reshard(
            source,
            destination,
            fsdp=fsdp,
            tp=tp,
            pp=pp,
            unflatten=unflatten,
            optimizer=optimizer,
            dtype=dtype,
            optimizer_dtype=optimizer_dtype,
            progress=progress,
            **merged,
            **writing,
        )
    if as_json:
        terminal.print_json(receipt)
        return
    click.echo(
        f"{destination}: {terminal.count(len(receipt.files), 'file')}, {terminal.size(receipt.nbytes)}"
    )
    if receipt.left_behind:
        terminal.note(f"note: not carried along: {', '.join(receipt.left_behind)}")
