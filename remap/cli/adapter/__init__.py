"""``remap adapter``: split an adapter off, put it on a base, carry it to other names, merge it."""

from __future__ import annotations

import click

from remap.cli.adapter.extract import extract
from remap.cli.adapter.graft import graft
from remap.cli.adapter.merge import merge, unmerge
from remap.cli.adapter.migrate import migrate
from remap.cli.adapter.show import show


@click.group()
def command() -> None:
    """Take adapters out of checkpoints, put them on bases, carry them to other names, merge them."""


for each in (show, extract, graft, migrate, merge, unmerge):
    command.add_command(each)
