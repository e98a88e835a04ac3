"""What is printed: results to stdout, everything else to stderr; progress where a terminal watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from remap.errors import DestinationError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from remap.receipt import Receipt

WIDTH = 10_000
"""Characters. A line of a table is never cut or folded: a terminal wraps it, a pipe takes it whole."""


def out() -> Console:
    """A console on stdout."""
    from rich.console import Console

    return Console(width=WIDTH, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    click.echo(printable(text), err=True)


def print_json(document: object) -> None:
    """A document on stdout, indented."""
    click.echo(json_text(document), nl=False)


def json_text(document: object) -> str:
    """A document as indented JSON."""
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    except UnicodeEncodeError:  # a lone surrogate, in a key or a file name: JSON can escape it
        return json.dumps(msgspec.to_builtins(document), indent=2) + "\n"


def write(text: str, output: Path | None) -> None:
    """A document to a file, or to stdout."""
    if output is None:
        click.echo(text, nl=False)
        return
    if output.is_file() and _holds_weights(output):
        raise DestinationError("is part of a checkpoint, not to be replaced by a document", where=output)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise DestinationError(f"can't be written: {e.strerror}", where=output) from None


def _holds_weights(path: Path) -> bool:
    """Is it a file of weights, or one that lies beside them: a configuration, a tokenizer, an index?"""
    from remap.formats import registry
    from remap.formats.companions import NAMES

    beside = path.name in NAMES or path.name.endswith(".index.json")
    places = (path, path.absolute().parent) if beside else (path,)
    return any(f.name != "keys" for place in places for f, _ in registry.find(place))


def table(rows: Iterable[Sequence[str]], header: Sequence[str], right: frozenset[int] = frozenset()) -> None:
    """Aligned columns on stdout, without frames; ``right`` are the columns that end on one line."""
    from rich.cells import cell_len  # letters that take two places

    lines = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = []
        for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if i in right else cell + space)
        text = "  ".join(cells).rstrip()
        click.echo(text if number else click.style(text, bold=True))


def size(nbytes: int) -> str:
    """``1.6 GB``."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}" if unit != "B" else f"{nbytes} B"
        value /= 1000
    return f"{value:.3g} TB"


def count(number: int, what: str) -> str:
    """``1 file``, ``3 files``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def written(destination: Path, receipt: Receipt) -> None:
    """One line of what lies at ``destination``."""
    click.echo(
        f"{destination}: {receipt.format}, {count(len(receipt.tensors), 'tensor')} in "
        f"{count(len(receipt.files), 'file')}, {size(receipt.nbytes)}"
    )


def dropped(receipt: Receipt) -> None:
    """How many tensors were dropped, and why."""
    if receipt.drops:
        reasons = sorted({d.because for d in receipt.drops})
        note(f"note: {count(len(receipt.drops), 'tensor')} dropped: {'; '.join(reasons)}")


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], Callable[[int], None]] | None]:
    """Bytes, rate and time left on a terminal; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def start(files: int, total: int) -> Callable[[int], None]:
            task = bar.add_task(title, total=total)
            return lambda n: bar.advance(task, n)

        yield start
