"""``remap adapter merge`` and ``unmerge``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remap.cli import options, terminal
from remap.cli.adapter import shared

if TYPE_CHECKING:
    from collections.abc import Callable


def merging(function: Callable[..., None]) -> Callable[..., None]:
    """The arguments of ``merge`` and ``unmerge``."""
    for option in (
        options.as_json,
        options.writing,
        click.option(
            "--shard-size", type=options.Size(), help="Largest file of the output: 5GB, 500MiB, ..."
        ),
        options.to,
        options.merging,
        options.at,
        click.option(
            "--weight",
            "weights",
            multiple=True,
            type=float,
            help="How much of the change: once for all adapters, or once for each; 1 without.",
        ),
        shared.destination,
        click.argument("adapters", nargs=-1, required=True, type=options.Place()),
        click.argument("base", type=options.Place()),
    ):
        function = option(function)
    return function


@click.command("merge", short_help="Into the weights of its base.")
@merging
def merge(**given: Any) -> None:
    """Write BASE with the changes of ADAPTERS in it: W + weight * alpha/r * B @ A, computed in float32 and
    rounded once to the base's type.

    Of DoRA, IA3 and what was trained in full, the weight is the share of the new. Tensors that no adapter
    changes are copied as bytes.
    """
    _merge("merging", undo=False, **given)


@click.command("unmerge", short_help="Out of the weights that it was merged into.")
@merging
def unmerge(**given: Any) -> None:
    """Take the changes of ADAPTERS out of BASE, into which they were merged with these weights.

    The result is right up to the precision of the base's type. What was replaced is not known any more.
    """
    _merge("taking out", undo=True, **given)


def _merge(
    what: str,
    base: Path,
    adapters: tuple[Path, ...],
    destination: Path,
    writing: options.Writing,
    as_json: bool,
    at: str | None,
    merged: options.Merging,
    **how: Any,
) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads are --jobs; NumPy's would wait for them
    from remap.adapters.merging.write import merge as run
    from remap.opening import catalog
    from remap.output import How
    from remap.reports.collapse import collapse

    with terminal.progress(what) as progress:
        receipt, plan = run(
            catalog(base, at=at, **merged),
            adapters,
            destination,
            how=How(progress=progress, **writing),
            **how,
        )
    changed = [o.key for o in plan.outputs if o.op == "merge"]
    shared.report(receipt, destination, plan.notes, as_json)
    if not as_json:
        click.echo(f"changed: {len(changed)} of {terminal.count(len(plan.outputs), 'tensor')}")
        for line in collapse([[key] for key in changed]):
            click.echo(f"  {line.count:6}  {line.cells[0]}")
