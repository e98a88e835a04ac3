"""``remap adapter show``."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal
from remap.cli.adapter import shared
from remap.errors import printable

MOST = 8
"""Tensors of a module that are listed; of an image prefix there are hundreds."""


@click.command("show", short_help="Whose words, which modules, ranks and scales.")
@shared.adapter
@options.at
@options.merging
@options.as_json
def show(adapter: Path, at: str | None, merged: options.Merging, as_json: bool) -> None:
    """What is this adapter? Whose words, which modules, ranks and scales; exit code 1 if it is not whole."""
    from remap.adapters import read
    from remap.adapters.about import about
    from remap.opening import catalog
    from remap.reports.collapse import collapse

    found = about(read(catalog(adapter, at=at, **merged)))
    if as_json:
        terminal.print_json({"version": 1, "adapter": found})
        raise SystemExit(1 if found.problems else 0)
    click.echo(f"dialect    {found.dialect} ({found.title})")
    click.echo(f"method     {found.method}")
    if len(found.names) > 1:
        click.echo(f"adapters   {', '.join(map(printable, found.names))}")
    if found.others:
        count = terminal.count(len(found.others), "tensor")
        click.echo(f"others     {count}, {found.share:.0%} of the bytes, are no adapter's")
    rows = [(m.adapter, m.module or "(no module)", m.rank, m.scale, _listed(m.leaves)) for m in found.modules]
    lines = [(f"{line.count}", *line.cells) for line in collapse(rows)]
    click.echo()
    terminal.table(lines, ("modules", "adapter", "module", "rank", "scale", "tensors"), frozenset({0}))
    for problem in found.problems:
        terminal.note(f"problem: {problem}")
    raise SystemExit(1 if found.problems else 0)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= MOST else terminal.count(len(names), "tensor")
