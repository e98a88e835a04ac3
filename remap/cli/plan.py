"""``remap plan SRC -r PACK...``: what a conversion would do, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal

if TYPE_CHECKING:
    from remap.plan import Plan


@click.command()
@options.source
@options.conversion
@options.to
@click.option(
    "--all", "every", is_flag=True, help="A line for every tensor; repeated layers are not collapsed."
)
@options.as_json
def command(
    source: Path,
    how: options.How,
    to: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show what a conversion would do, key by key. Nothing is written, no weights are read.

    SOURCE may be a key list, too.
    """
    from remap import api
    from remap.destination import laid_out

    made = api.plan(source, **how)
    if to is not None:
        laid_out(made, "output", to=to)
    if as_json:
        terminal.print_json(made.to_json())
        return
    print_plan(made, every)


def print_plan(made: Plan, every: bool = False) -> None:
    """The plan as text: packs and parameters, outputs, drops, totals."""
    from remap.reports.collapse import Line, collapse

    for step in made.steps:
        params = "".join(f" {k}={v}" for k, v in step.params.items())
        click.echo(f"{step.pack} {step.version}{' (inverse)' if step.inverse else ''}{params}")
    rows = [(" + ".join(o.sources), o.key, str(o.expr.spec), o.rule or "") for o in made.outputs]
    lines = [Line(tuple(r), 1) for r in rows] if every else collapse(rows)
    terminal.table(
        [(str(line.count), line.cells[0], "->", *line.cells[1:]) for line in lines],
        ("tensors", "from", "", "to", "spec", "rule"),
        frozenset({0}),
    )
    if made.drops:
        click.echo()
        dropped = collapse((d.key, d.because, d.rule) for d in made.drops)
        terminal.table(
            [(str(line.count), *line.cells) for line in dropped],
            ("dropped", "key", "because", "rule"),
            frozenset({0}),
        )
    nbytes = sum(o.expr.spec.nbytes for o in made.outputs)
    click.echo(
        f"\n{terminal.count(len(made.outputs), 'tensor')} ({terminal.size(nbytes)}), "
        f"{len(made.drops):,} dropped"
    )
    for text in [*made.catalog.warnings, *made.notes]:
        terminal.note(f"note: {text}")
