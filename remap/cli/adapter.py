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
    """Take adapters out of checkpoints, put them on bases, carry them to other names."""


@command.command("extract")
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
    type=click.Path(path_type=Path, exists=True),
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
    from remap.adapters.extract import extract as run
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


@command.command("graft")
@click.argument("base", type=click.Path(path_type=Path))
@adapter
@destination
@options.rules
@click.option(
    "-p", "--param", "params", multiple=True, type=options.Setting(), help="A pack's parameter (repeatable)."
)
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
    from remap.adapters.graft import graft as run
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
