"""``remap adapter migrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remap.cli import options, terminal
from remap.cli.adapter import shared


@click.command("migrate", short_help="To other names, or another library's words.")
@shared.adapter
@shared.destination
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
@shared.others
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
    shared.report(receipt, destination, notes, as_json)
