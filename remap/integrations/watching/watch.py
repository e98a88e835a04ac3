"""The watch: every load that is seen is audited, and a policy says whether it was fine.

    loads that others make ──> Load (what was offered, what was wanted) ──> audit ──> Watch.reports
                                                                               └──> AuditFailed at the end

Watches are nested at will; every watch that is on sees every load, each with its own policy. The replaced
functions are in place while any watch is on.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType

from remap.audit import audit
from remap.audits.baseline import read as read_baseline
from remap.audits.policy import Policy
from remap.audits.policy_file import load_policy
from remap.audits.report import Report
from remap.audits.target import Target
from remap.errors import UsageError
from remap.integrations.verdict import failure
from remap.integrations.watching.patches import Patch, Patches
from remap.types import Catalog, Entry, TensorSpec

LIBRARIES = ("torch_state", "deepspeed", "transformers", "peft")
"""Modules of this package; each has PATCHES, and imports its library inside of functions only."""
OURS = ("remap", "torch", "deepspeed", "transformers", "peft", "safetensors", "importlib", "contextlib")
"""Packages in which nobody looks for the line that loaded something."""


@dataclass(frozen=True)
class Load:
    """A load that was made.

    source   what it came from, as reports call it
    offered  name of the target, or the source's own where the target has none -> spec
    target   what was loaded into, as it was before
    notes    what else is to be said
    """

    source: str
    offered: Mapping[str, TensorSpec]
    target: Target
    notes: tuple[str, ...] = ()


class Watch:
    """Audits the loads that are made while it is on. A context manager.

    reports  one for each load that was not strict, in order
    strict   how many strict loads were seen: those raise by themselves
    """

    def __init__(
        self,
        policy: str | Path | Policy | None = None,
        *,
        baseline: str | Path | None = None,
        at_once: bool = False,
        idle: bool = False,
        only_this_thread: bool = False,
    ) -> None:
        self.reports: list[Report] = []
        self.strict = 0
        self._policy = load_policy(policy)
        self._baseline = read_baseline(Path(baseline)) if baseline else None
        self._at_once = at_once
        self._idle = idle
        self._only_this_thread = only_this_thread
        self._thread = 0

    def __del__(self) -> None:
        if hasattr(self, "_thread") and not self._thread:
            warnings.warn("a watch was made and never on: with remap.watch(): ...", stacklevel=2)

    def __enter__(self) -> Watch:
        self._thread = threading.get_ident()
        _turn_on(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        _turn_off(self)
        if error is not None:
            return  # it comes first; what was seen until then is in ``reports``
        failed = [r for r in self.reports if not r.passed]
        if failed:  # at_once, too: somebody caught what was raised then
            what = f"{len(failed)} of {len(self.reports)} loads that were not strict left the model wrong"
            raise failure(self.reports, what)
        if not (self.reports or self.strict or self._idle):
            raise UsageError(
                "nothing was loaded while it was watched",
                remedy="put the call that loads inside the block; idle=True where no load is fine",
            )

    def sees(self) -> bool:
        """Is it on for this thread?"""
        return not self._only_this_thread or threading.get_ident() == self._thread

    def judge(self, load: Load) -> None:
        """Audit a load. Raises AuditFailed where it is to be said at once."""
        report = audit(_catalog(load), load.target, None, self._policy, baseline=self._baseline)
        self.reports.append(report)
        if self._at_once and not report.passed:
            raise failure([report], "a load that was not strict left the model wrong")


_lock = threading.RLock()
_watches: list[Watch] = []
_patches: Patches | None = None


def _turn_on(watch: Watch) -> None:
    global _patches
    with _lock:
        if watch in _watches:
            raise UsageError("this watch is on already", remedy="make another: remap.watch(...)")
        if _patches is None:
            _patches = Patches(_all_patches())
            _patches.install()
        _watches.append(watch)


def _turn_off(watch: Watch) -> None:
    global _patches
    with _lock:
        _watches.remove(watch)
        if not _watches and _patches is not None:
            _patches.remove()
            _patches = None


def _all_patches() -> list[Patch]:
    found: list[Patch] = []
    for name in LIBRARIES:
        found += import_module(f"remap.integrations.watching.{name}").PATCHES
    return found


def watching() -> bool:
    """Is any watch on for this thread?"""
    return any(w.sees() for w in _watches)


def seen(load: Load) -> None:
    """A load that was not strict was made."""
    with _lock:
        for watch in [w for w in _watches if w.sees()]:
            watch.judge(load)


def seen_strict() -> None:
    """A strict load was made, and succeeded."""
    with _lock:
        for watch in _watches:
            watch.strict += watch.sees()


def caller() -> str:
    """File and line of the code that asked for the load."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    return f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _catalog(load: Load) -> Catalog:
    return Catalog(
        format="memory",
        root=Path(load.source),
        files=(),
        entries={k: Entry(k, s) for k, s in load.offered.items()},
        warnings=load.notes,
    )
