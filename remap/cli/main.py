"""The ``remap`` command. Commands are imported when they run, so that ``--help`` is instant."""

from __future__ import annotations

import gc
import io
import signal
import sys
from importlib import import_module

import click

from remap.errors import RemapError, printable
from remap.version import __version__

COMMANDS = {
    "inspect": "what is this? format, keys, sizes, ties",
    "keys": "write a checkpoint's key list",
    "plan": "what a conversion would do, key by key",
    "convert": "convert a checkpoint",
    "reshard": "the same tensors over other ranks: shards, parts, stages",
    "audit": "does it load, and if not, why",
    "diff": "compare two checkpoints",
    "verify": "re-read an output against its receipt",
    "rules": "packs and layouts: list, show, lint, test, infer, invert",
    "adapter": "adapters: show, extract, graft, migrate, merge, unmerge",
}
"""Name -> summary. The command is in ``remap.cli.<name>``, as ``command``."""


STOPPED = 130
"""Exit code after Ctrl-C, as a shell gives it."""

COLLECT_AFTER = 1_000_000
"""Objects. Python's own 700 suit programs that throw most of them away."""


class Lazy(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"remap.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remap")
def cli() -> None:
    """Move checkpoints between the names that models give their weights.

    Exit codes: 0 fine; 1 findings or a difference; 2 wrong use or a wrong pack; 3 unreadable or
    hostile input; 4 the output failed verification.
    """


def main() -> None:
    """Run the command line; errors become one paragraph on stderr and an exit code."""
    _settle()
    try:
        code = cli.main(prog_name="remap", standalone_mode=False)
    except click.Abort:  # what click makes of KeyboardInterrupt
        click.echo("stopped; the destination is as it was", err=True)
        code = STOPPED
    except click.ClickException as e:
        e.show()
        code = 2
    except RemapError as e:
        click.echo(f"error: {e}", err=True)
        code = e.exit_code
    except OSError as e:
        click.echo(f"error: {printable(str(e))}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _settle() -> None:
    """How this process meets the world: a reader that goes away ends it quietly, a scheduler's SIGTERM
    or SIGHUP as Ctrl-C does, and what the terminal's encoding can't show is escaped. What a command reads
    lives until it ends: the collector that looks through it again and again takes half the time."""
    gc.set_threshold(COLLECT_AFTER)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
