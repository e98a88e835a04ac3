"""``remap adapter graft``."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal
from remap.cli.adapter import shared


@click.command("graft", short_help="Onto a base, under the wrapped model's names.")
@click.argument("base", type=options.Place())
@shared.adapter
@shared.destination
@options.rules
@options.merging
@click.option("--name", default="default", show_default=True, help="The adapter's name in the model (PEFT).")
@click.option(
    "--names-only",
    is_flag=True,
    help="The wrapped names without the adapter: in the model it keeps its initial values.",
)
@shared.others
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
    merged: options.Merging,
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
    from remap.opening import catalog
    from remap.output import How

    with terminal.progress("grafting") as progress:
        receipt, notes = run(
            catalog(base, **merged),
            catalog(adapter, **merged),
            destination,
            rules=rules,
            params=merged["params"],
            name=name,
            names_only=names_only,
            others=others,
            to=to,
            shard_size=shard_size,
            tag=tag,
            how=How(progress=progress, **writing),
        )
    shared.report(receipt, destination, notes, as_json)
