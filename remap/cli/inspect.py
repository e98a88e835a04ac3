"""``remap inspect PATH``: what is this?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal
from remap.errors import printable

if TYPE_CHECKING:
    from rich.tree import Tree

    from remap.types import Catalog


@click.command()
@click.argument("path", type=options.Place())
@click.option("--tree", is_flag=True, help="Print the keys as a tree of modules.")
@options.at
@options.partition
@options.as_json
def command(path: Path, tree: bool, at: str | None, partition: Path | None, as_json: bool) -> None:
    """What is this? Format, keys, sizes, ties, and what to beware of.

    PATH is any file of a checkpoint, or its folder. Only headers are read.
    """
    from remap.formats.base import ReadOptions
    from remap.formats.registry import open_catalog  # all that it takes: the fewer imports, the sooner

    catalog = open_catalog(path, at=at, options=ReadOptions(partition=partition))
    if as_json:
        terminal.print_json(_document(catalog))
        return
    _summary(catalog)
    if tree:
        terminal.out().print(_tree(catalog))
    else:
        _table(catalog)
    for warning in catalog.warnings:
        terminal.note(f"warning: {warning}")


def _document(catalog: Catalog) -> dict[str, object]:
    return {
        "version": 1,
        "format": catalog.format,
        "root": str(catalog.root),
        "files": {f.name: f.stat().st_size for f in catalog.files},
        "tensors": {
            k: {"dtype": e.spec.dtype.name, "shape": e.spec.shape, "nbytes": e.spec.nbytes}
            for k, e in catalog.entries.items()
        },
        "ties": dict(catalog.aliases),
        "metadata": dict(catalog.metadata),
        "extras": catalog.extras,
        "opaque": catalog.opaque,
        "companions": [p.name for p in catalog.companions],
        "warnings": catalog.warnings,
    }


def _summary(catalog: Catalog) -> None:
    elements = sum(e.spec.numel for k, e in catalog.entries.items() if k not in catalog.aliases)
    types = Counter(e.spec.dtype.name for e in catalog.entries.values())
    rows = [
        ("format", catalog.format),
        ("path", str(catalog.root)),
        ("files", terminal.count(len(catalog.files), "file")),
        ("tensors", f"{len(catalog.entries):,} ({elements:,} elements, {terminal.size(catalog.nbytes)})"),
        ("dtypes", ", ".join(f"{n:,} {name}" for name, n in types.most_common())),
    ]
    if catalog.ranks:
        rows.append(("ranks", f"{len(catalog.ranks)} tensor-parallel; what rank 1 has of x is x@1"))
    if catalog.aliases:
        rows.append(("ties", ", ".join(f"{a} = {b}" for a, b in catalog.aliases.items())))
    if catalog.extras:
        rows.append(("also in it", ", ".join(catalog.extras)))
    if catalog.opaque:
        rows.append(("unopened", ", ".join(catalog.opaque)))
    if catalog.companions:
        rows.append(("beside it", ", ".join(p.name for p in catalog.companions)))
    for name, value in rows:
        click.echo(f"{name:<11}{printable(value)}")
    click.echo()


def _table(catalog: Catalog) -> None:
    from remap.reports.collapse import collapse

    lines = collapse((k, str(e.spec)) for k, e in catalog.entries.items())
    terminal.table(
        [(f"{line.count}", *line.cells) for line in lines], ("tensors", "key", "spec"), frozenset({0})
    )


def _tree(catalog: Catalog) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(printable(catalog.root.name)))
    nodes: dict[str, Tree] = {"": root}
    for key, entry in catalog.entries.items():
        *parents, leaf = key.split(".")
        node = root
        path = ""
        for part in parents:
            path = f"{path}.{part}"
            if path not in nodes:
                nodes[path] = node.add(Text(printable(part)))
            node = nodes[path]
        node.add(Text(printable(f"{leaf}  {entry.spec}")))
    return root
