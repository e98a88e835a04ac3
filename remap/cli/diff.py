"""``remap diff A B``: two checkpoints compared."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal


@click.command()
@click.argument("a", type=options.Place())
@click.argument("b", type=options.Place())
@click.option("--no-values", is_flag=True, help="Compare keys, shapes and dtypes only.")
@options.merging
@options.as_json
def command(a: Path, b: Path, no_values: bool, merged: options.Merging, as_json: bool) -> None:
    """Compare two checkpoints: keys, shapes, dtypes, values. Exit code 1 where they differ.

    Formats may differ; a tensor is the same if its bytes in row-major order are.
    """
    from remap import api
    from remap.reports.collapse import collapse

    left, right = api.catalog(a, **merged), api.catalog(b, **merged)
    found = api.diff(left, right, values=not no_values)
    if as_json:
        differences = [{"key": d.key, "verdict": d.verdict, "detail": d.detail} for d in found]
        terminal.print_json({"version": 1, "a": str(a), "b": str(b), "differences": differences})
    elif found:
        lines = collapse((d.verdict, d.key, d.detail) for d in found)
        terminal.table(
            [(str(line.count), *line.cells) for line in lines],
            ("tensors", "differs", "key", ""),
            frozenset({0}),
        )
    else:
        what = "keys, shapes and dtypes" if no_values else "bit for bit"
        click.echo(f"the same: {terminal.count(len(left.entries), 'tensor')}, {what}")
    if found:
        raise SystemExit(1)
