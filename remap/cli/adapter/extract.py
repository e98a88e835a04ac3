"""``remap adapter extract``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from remap.cli import options, terminal
from remap.cli.adapter import shared


@click.command("extract", short_help="Out of the checkpoint of a model that has it.")
@options.source
@shared.destination
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
@options.merging
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
    merged: options.Merging,
    to: str | None,
    writing: options.Writing,
    as_json: bool,
) -> None:
    """Take an adapter out of the checkpoint SOURCE of a model that has it, in any format.

    Of a model wrapped by PEFT a PEFT folder is made; MAGMA's adapters get a small JSON beside them that says
    what they are.
    """
    from remap.adapters import extract as run
    from remap.opening import catalog
    from remap.output import How

    with terminal.progress("extracting") as progress:
        receipt, notes = run(
            catalog(source, at=at, **merged),
            destination,
            part=part,
            name=name,
            base=base,
            settings={key: _plain(value) for key, value in settings},
            config=config,
            to=to,
            how=How(progress=progress, **writing),
        )
    shared.report(receipt, destination, notes, as_json, drops=False)


def _plain(text: str) -> object:
    """The value of a setting: JSON where it is some, else text."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
