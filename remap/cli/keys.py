"""``remap keys PATH -o keys.json``: the key list of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write; stdout without it.")
@options.at
def command(path: Path, output: Path | None, at: str | None) -> None:
    """Write the key list of a checkpoint: {key: [shape, dtype]}, as JSON.

    Where no data is needed (plan, rules), it does as well as the checkpoint.
    """
    from remap import api
    from remap.formats.keylist import dump

    catalog = api.catalog(path, at=at)
    text = dump(catalog)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as e:
        raise click.FileError(str(output), e.strerror) from None
    terminal.note(f"{terminal.count(len(catalog.entries), 'key')} written to {output}")
