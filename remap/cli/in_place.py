"""``remap convert SRC --in-place``: keys renamed inside the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from remap.cli import options, terminal


def check(destination: Path | None, given: Mapping[str, object]) -> None:
    """Raise click.UsageError for arguments that mean nothing in place; ``given`` are the others' values."""
    if destination is not None:
        raise click.UsageError("--in-place takes no DESTINATION: the files of SOURCE are rewritten")
    idle = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if idle:
        raise click.UsageError(f"in place, keys are renamed and nothing else: leave out {', '.join(idle)}")


def run(source: Path, how: options.How, undo: bool, resume: bool) -> None:
    """Rename, finish or take back, and say so."""
    from remap import api, inplace, planning

    if undo:
        inplace.undo(source)
        click.echo(f"{source}: as it was")
        return
    packs = [p.digest for p in planning.load_packs(how["rules"])]
    path = inplace.finish(source, packs) if resume else None
    if path is None:
        path = inplace.rename(api.plan(source, **how))
    click.echo(f"{source}: keys renamed in place")
    terminal.note(f"note: --undo takes it back, with {path.name}; without that file the names are for good")
