"""``remap rules``: what pack authors run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal
from remap.errors import PackError

if TYPE_CHECKING:
    from remap.authoring.findings import PackFinding
    from remap.packs.pack import Pack


@click.group()
def command() -> None:
    """List, show, check and test rule packs."""


packs = click.argument("packs", nargs=-1, metavar="[PACK]...")


@command.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """The packs that can be named with -r."""
    from remap.packs import load
    from remap.packs.load import available

    found = [load(name) for name in available()]
    if as_json:
        fields = ({"pack": p.name, "version": p.version, "title": p.title, "file": p.file} for p in found)
        terminal.print_json({"version": 1, "packs": list(fields)})
        return
    terminal.table([(p.name, p.version, p.title) for p in found], ("pack", "version", "what it does"))


@command.command("show")
@click.argument("pack")
def show(pack: str) -> None:
    """The page of a pack: names, parameters, evidence, examples, and how it goes back."""
    from remap.authoring.page import page
    from remap.packs import load

    click.echo(page(load(pack)), nl=False)


@command.command("new")
@click.argument("name")
@options.output
def new(name: str, output: Path | None) -> None:
    """A commented skeleton of the pack NAME (family/name), which passes lint."""
    from remap.authoring.skeleton import skeleton

    terminal.write(skeleton(name), output)


@command.command("invert")
@click.argument("pack")
@options.output
def invert(pack: str, output: Path | None) -> None:
    """The inverse of a pack, as a pack of its own."""
    from remap.authoring.inverse import inverse_text
    from remap.packs import load

    terminal.write(inverse_text(load(pack)), output)


@command.command("lint")
@packs
@options.as_json
def lint(packs: tuple[str, ...], as_json: bool) -> None:
    """Check packs without any keys; all packs that come with remap, if none is named."""
    from remap.authoring.lint import lint

    _report(packs, lint, as_json, "sound")


@command.command("test")
@packs
@options.as_json
def test(packs: tuple[str, ...], as_json: bool) -> None:
    """Run the examples of packs, forward and back; of all packs, if none is named."""
    from remap.authoring.examples import run_examples

    _report(packs, run_examples, as_json, "as their examples say")


def _report(
    names: Iterable[str], check: Callable[[Pack], list[PackFinding]], as_json: bool, praise: str
) -> None:
    """Check every pack; one that does not even load is a finding, too. Exit code 1 for an error."""
    from remap.packs import load
    from remap.packs.load import available

    wanted = tuple(names) or tuple(available())
    findings: list[PackFinding] = []
    broken: list[str] = []
    for name in wanted:
        try:
            findings += check(load(name))
        except PackError as e:
            broken.append(str(e))
    if as_json:
        terminal.print_json({"version": 1, "packs": wanted, "findings": findings, "errors": broken})
    else:
        for line in [*broken, *map(str, findings)]:
            click.echo(line)
        if not broken and not findings:
            click.echo(f"{terminal.count(len(wanted), 'pack')} {praise}")
    if broken or any(f.level == "error" for f in findings):
        raise SystemExit(2 if broken else 1)
