"""Every error that remap raises, as one tree.

    RemapError                       exit code
    ├── AuditFailed                  1   an audit found what the policy fails
    ├── UsageError                   2   wrong use: arguments, destination, parameters
    │   └── DestinationError         2   the destination can't be written
    ├── PackError                    2   a pack is wrong: YAML, template, rule
    ├── PlanError                    2   pack and keys don't fit together
    │   └── AlreadyConverted         2   the input has the target's names already
    ├── InputError                   3   the input can't be read
    │   ├── NotACheckpoint           3   it is something else
    │   ├── Damaged                  3   truncated, incomplete, inconsistent
    │   └── Hostile                  3   made to mislead a reader
    └── VerifyError                  4   the output is not what was promised

An error is one paragraph: where, what was wrong, what to do. Problems of one kind come together
in one error, one a line.
"""

from __future__ import annotations

from collections.abc import Iterable

SHOWN = 20
"""How many problems of a kind are printed; the rest are counted."""


class RemapError(Exception):
    """The base of all of remap's errors.

    what      what was wrong
    where     file, key, or rule with its line
    problems  one line each, where several of a kind were found
    remedy    what to do
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        problems: Iterable[str] = (),
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.problems = tuple(problems)
        self.remedy = remedy
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        lines += [f"  {p}" for p in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  ... and {len(self.problems) - SHOWN} more")
        if self.remedy:
            lines.append(f"to mend it: {self.remedy}")
        return "\n".join(printable(line) for line in "\n".join(lines).split("\n"))


def printable(line: str) -> str:
    """Keys and file names are a stranger's: what could steer a terminal is shown escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class AuditFailed(RemapError):
    """An audit found what the policy fails. ``reports`` has its ``remap.audits.report.Report``s."""

    exit_code = 1
    reports: tuple[object, ...] = ()


class UsageError(RemapError):
    """Wrong use: arguments, parameters, options that don't go together."""


class DestinationError(UsageError):
    """The destination exists, lies inside the source, or can't be written."""


class PackError(RemapError):
    """A pack is wrong, whatever it is applied to."""


class PlanError(RemapError):
    """A sound pack and these keys don't fit together."""


class AlreadyConverted(PlanError):
    """The input already has the names that the pack would give it."""


class InputError(RemapError):
    """The input can't be read."""

    exit_code = 3


class NotACheckpoint(InputError):
    """The input is something else; the message says what."""


class Damaged(InputError):
    """The input is truncated, incomplete or contradicts itself."""


class Hostile(InputError):
    """The input is built so that two readers would see two things, or so that loading runs code."""


class VerifyError(RemapError):
    """The output is not what the plan or the receipt says."""

    exit_code = 4
