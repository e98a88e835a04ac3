"""``remap verify DST``: an output re-read against its receipt."""

from __future__ import annotations

from pathlib import Path

import click

from remap.cli import options, terminal
from remap.errors import VerifyError


@click.command()
@click.argument("path", type=options.Place())
@click.option("--against", type=options.Place(), help="The source: convert it once more, compare digests.")
@options.rules
@options.as_json
def command(path: Path, against: Path | None, rules: tuple[str, ...], as_json: bool) -> None:
    """Re-read an output against its receipt. Exit code 4 where it is not what was written.

    With --against, -r gives the packs that made it, where they can't be found by their names.
    """
    from remap import api

    receipt, problems = api.verify(path, against=against, rules=rules)
    if as_json:
        terminal.print_json({"version": 1, "path": str(path), "problems": problems})
    elif not problems:
        click.echo(f"{path}: {terminal.count(len(receipt.tensors), 'tensor')} as the receipt says")
    if problems:
        raise VerifyError("the output is not what the receipt says", where=path, problems=problems)
