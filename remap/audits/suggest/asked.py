"""What was asked for, as words of the command line: a suggested command says all of it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def asked(
    *,
    rules: Iterable[object] = (),
    inverse: bool = False,
    params: Mapping[str, str] | None = None,
    dtype: str | None = None,
    again: Iterable[str] = (),
    at: str | None = None,
    target_params: Mapping[str, str] | None = None,
    policy: object = None,
) -> list[str]:
    """The options of ``remap audit`` that stand for these arguments of ``api.audit``."""
    given = [("-r", r) for r in rules]
    given += [("-p", f"{n}={v}") for n, v in (params or {}).items()]
    given += [("--dtype", dtype)] * (dtype is not None) + [("--at", at)] * (at is not None)
    given += [("--again", rule) for rule in again]
    given += [("--target-param", f"{n}={v}") for n, v in (target_params or {}).items()]
    given += [("--policy", policy)] * isinstance(policy, (str, Path))
    return ["--inverse"] * inverse + [str(word) for pair in given for word in pair]
