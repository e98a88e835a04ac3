"""A change that would make more keys match, with the command that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suggestion:
    """One change that would explain many findings.

    kind     ``wrapper``, ``prefix``, ``segments`` or ``pack``
    what     the change, in words
    before   how many of the target's keys match without it
    after    how many would match with it
    of       how many keys the target has
    command  what to run
    pack     the text of a pack that makes the change, where no installed pack does
    names    source key -> the name it would get, for those that would match
    """

    kind: str
    what: str
    before: int
    after: int
    of: int
    command: str
    pack: str = ""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
