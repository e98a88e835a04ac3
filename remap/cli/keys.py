"""``remap keys PATH -o keys.json``: the key list of a checkpoint or a model."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal


@click.command()
@click.argument("path", type=options.Place())
@options.output
@options.at
@options.merging
def command(path: Path, output: Path | None, at: str | None, merged: options.Merging) -> None:
    """Write the key list of a checkpoint or a model: {key: [shape, dtype]}, as JSON.

    Where no data is needed (plan, audit, rules), it does as well as the checkpoint. PATH may also be
    package.module:function or path.py:function that returns the model, or a folder with a config.json only.
    """
    from remap.audits.target import as_catalog, open_target
    from remap.formats.keylist import dump

    catalog = as_catalog(open_target(path, at=at, **merged))
    terminal.write(dump(catalog), output)
    if output is not None:
        terminal.note(f"{terminal.count(len(catalog.entries), 'key')} written to {output}")
