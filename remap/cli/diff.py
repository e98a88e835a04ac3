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

    Formats may differ; a tensor is the same if its bytes in row-major order are. Of one that is not, it is
    said whether it is the other's cast, transposed, its rows in another order, scaled, or by how much
    it differs.
    """
    from remap import api
    from remap.reports.collapse import collapse

    left, right = api.catalog(a, **merged), api.catalog(b, **merged)
    found = api.diff(left, right, values=not no_values)
    if as_json:
        differences = [{"key": d.key, "verdict": d.verdict, "detail": d.detail} for d in found]
        apart = {d.key for d in found}
        terminal.print_json(
            {
                "version": 1,
                "a": str(a),
                "b": str(b),
                "compared": "specs" if no_values else "bytes",
                "equal": [k for k in left.entries if k in right.entries and k not in apart],
                "differences": differences,
            }
        )
    elif found:
        lines = collapse((d.verdict, d.key, d.detail) for d in found)
        terminal.table(
            [(str(line.count), *line.cells) for line in lines],
            ("tensors", "differs", "key", ""),
            frozenset({0}),
        )
    equal = len(left.entries.keys() & right.entries.keys() - {d.key for d in found})
    if equal and not as_json:
        what = "keys, shapes and dtypes; values were not compared" if no_values else "bit for bit"
        click.echo(f"the same: {terminal.count(equal, 'tensor')}, {what}")
    if found:
        raise SystemExit(1)
