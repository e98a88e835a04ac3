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
    from remap.packs.language.pack import Pack


@click.group()
def command() -> None:
    """Packs and layouts: what there is, what one does, whether it is sound; for authors a start."""


packs = click.argument("packs", nargs=-1, metavar="[PACK]...")


@command.command("list", short_help="The packs and layouts that can be named.")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@options.as_json
def list_(words: tuple[str, ...], as_json: bool) -> None:
    """Packs and layouts that can be named; those that have all WORDS.

    Packs are for -r; <-> go both ways. Layouts are for --layout, and for --against of audits.
    """
    from remap.authoring.catalogue import layouts, listing

    found, known = listing(words), layouts(words)
    if as_json:
        terminal.print_json({"version": 1, "packs": found, "layouts": known})
        return
    rows = [(p.name, p.version, "<->" if p.inverse else "->", p.broken or p.title) for p in found]
    if rows:
        terminal.table(rows, ("pack", "version", "ways", "what it does"))
    if rows and known:
        click.echo()
    if known:
        terminal.table([(x.name, x.broken or x.title) for x in known], ("layout", "what it is"))
    if not rows and not known:
        terminal.note("no pack and no layout has all of these words")


@command.command("show", short_help="What a pack does, and how it goes back.")
@click.argument("pack")
def show(pack: str) -> None:
    """The page of a pack: names, parameters, evidence, examples, and how it goes back."""
    from remap.authoring.page import page
    from remap.packs import load

    click.echo(page(load(pack)), nl=False)


@command.command("new", short_help="A commented skeleton.")
@click.argument("name")
@options.output
def new(name: str, output: Path | None) -> None:
    """A commented skeleton of the pack NAME (family/name), which passes lint."""
    from remap.authoring.skeleton import skeleton

    terminal.write(skeleton(name), output)


@command.command("invert", short_help="The inverse, as a pack of its own.")
@click.argument("pack")
@options.output
def invert(pack: str, output: Path | None) -> None:
    """The inverse of a pack, as a pack of its own."""
    from remap.authoring.inverse import inverse_text
    from remap.packs import load

    terminal.write(inverse_text(load(pack)), output)


@command.command("lint", short_help="What is wrong with packs, without any tensors.")
@packs
@click.option("--keys", type=options.Place(), help="A checkpoint or key list: find dead rules, too.")
@options.params
@options.as_json
def lint(
    packs: tuple[str, ...], keys: Path | None, params: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Check packs without any tensors; all packs that come with remap, if none is named."""
    from remap import api
    from remap.authoring.lint import lint

    catalog = api.catalog(keys) if keys else None
    _report(packs, lambda pack: lint(pack, catalog, dict(params)), as_json, "sound")


@command.command("test", short_help="Examples, run forward and back.")
@packs
@options.as_json
def test(packs: tuple[str, ...], as_json: bool) -> None:
    """Run the examples of packs, forward and back; of all packs, if none is named."""
    from remap.authoring.examples import run_examples

    _report(packs, run_examples, as_json, "as their examples say")


@command.command("schema", short_help="For editors: completes and checks packs.")
@options.output
def schema(output: Path | None) -> None:
    """The JSON Schema of packs: with it, editors complete and check them."""
    from remap.packs.language.schema import json_schema

    terminal.write(terminal.json_text(json_schema()), output)


@command.command("infer", short_help="A proposal from two checkpoints or key lists.")
@click.argument("a", type=options.Place())
@click.argument("b", type=options.Place())
@click.option("--name", default="local/inferred", show_default=True, help="Name of the pack.")
@options.output
def infer(a: Path, b: Path, name: str, output: Path | None) -> None:
    """Propose a pack that makes B's keys of A's: two checkpoints, or their key lists.

    Where both have weights, equal bytes prove a rename. What names and shapes can't say is written as
    confirm:, and lint asks for it. What could not be explained is said; exit code 1.
    """
    from remap import api
    from remap.authoring.inference import infer
    from remap.packs.applying.complaints import grouped

    found = infer(api.catalog(a), api.catalog(b), name)
    terminal.write(found.text, output)
    terminal.note(
        f"explained: {found.explained:,} of {found.targets:,} keys, {found.proved:,} by their bytes"
    )
    for title, keys in (("nothing makes", found.missing), ("nothing uses", found.unused)):
        if keys:
            lines = grouped(keys)
            terminal.note(f"{title} {len(keys):,}: {', '.join(lines[:8])}{', ...' * (len(lines) > 8)}")
    for rule, what in found.confirm.items():
        terminal.note(f"to be confirmed, rule {rule}: {what}")
    if found.problem:
        terminal.note(f"the pack does not run on {a} as it is: {found.problem}")
    if found.missing or found.problem:
        raise SystemExit(1)


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
