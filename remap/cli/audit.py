"""``remap audit SRC --against TARGET``: does it load, and if not, why?"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remap.cli import options, terminal
from remap.errors import UsageError
from remap.reports.registry import MODULES

if TYPE_CHECKING:
    from remap.audits.suggest.suggestion import Suggestion


@click.command()
@options.source
@click.option(
    "--against",
    required=True,
    metavar="TARGET",
    help="A checkpoint, a key list, a folder with a config.json only, package.module:function or "
    "path.py:function that returns the model, or a layout.",
)
@click.option(
    "--target-param", multiple=True, type=options.Setting(), help="A layout's parameter (repeatable)."
)
@options.conversion
@click.option(
    "--policy",
    metavar="POLICY",
    help="strict (default), magma, lora, adapter, finetune-head, or a YAML file.",
)
@click.option("--format", "form", type=click.Choice(list(MODULES)), default="text", show_default=True)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the report there.")
@click.option("--values", is_flag=True, help="Compare values, too, where both sides have them.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Findings that are known and don't fail.")
@click.option("--update-baseline", is_flag=True, help="Write what fails now into the file of --baseline.")
@click.option(
    "--write-fix",
    type=click.Path(path_type=Path),
    help="Write the pack that mends most, where one was found.",
)
def command(
    source: Path,
    against: str,
    target_param: tuple[tuple[str, str], ...],
    how: options.How,
    policy: str | None,
    form: str,
    output: Path | None,
    values: bool,
    baseline: Path | None,
    update_baseline: bool,
    write_fix: Path | None,
) -> None:
    """Does a checkpoint load, and if not, why? Exit code 1 where the policy fails it.

    Only names, shapes and types are looked at, unless --values is given. With --format github, annotations
    go to stdout and a summary to the file that GITHUB_STEP_SUMMARY names.
    """
    from remap import loading
    from remap.audits import baseline as baselines
    from remap.reports import registry

    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs a file to write", remedy="give --baseline FILE")
    for written in (output, baseline if update_baseline else None, write_fix):
        _check_output(written, source, against)
    gc.disable()  # many small frozen values, none of them in a circle: a third of the time otherwise
    audit = partial(
        loading.audit, source, against, policy=policy, values=values, target_params=dict(target_param), **how
    )
    report = audit(baseline=None if update_baseline else baseline)
    if update_baseline and baseline is not None:
        terminal.write(baselines.dump(report.judged), baseline)
        terminal.note(f"written: {baseline}")
        report = audit(baseline=baseline)
    terminal.write(registry.render(report, form), output)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if form == "github" and summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(registry.render(report, "markdown"))
    if write_fix is not None:
        _write_fix(write_fix, report.suggestions)
    if form != "text" or output is not None:
        terminal.note(str(report))
    raise SystemExit(report.exit_code)


def _check_output(path: Path | None, source: Path, against: str) -> None:
    """Neither side of an audit is ever written to. Raises UsageError."""
    for name in (source, against):
        if path is not None and path.exists() and Path(name).exists() and path.samefile(name):
            raise UsageError("it is one of the two that are compared", where=path, remedy="write elsewhere")


def _write_fix(path: Path, suggestions: Sequence[Suggestion]) -> None:
    if not suggestions:
        terminal.note("no fix was written: no prefix, wrapper or renamed segment explains what is missing")
    elif not suggestions[0].pack:
        terminal.note(f"no fix was written: {suggestions[0].what} does it: {suggestions[0].command}")
    else:
        terminal.write(suggestions[0].pack, path)
        terminal.note(f"written: {path}; read it, then use it with -r {path}")
