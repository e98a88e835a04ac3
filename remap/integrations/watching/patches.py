"""Replacing functions of libraries while they are watched, and putting them back.

    Patch              a function that is to be replaced, and by what
    Patches.install()  replaces those of modules that are imported, and waits for the import of the others
    Patches.remove()   puts everything back

A function that other modules imported by name is replaced there, too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True)
class Patch:
    """A function that is to be replaced.

    module  its module, by dotted name
    holder  the class that has it; empty for a function of the module
    name    its name
    wrap    makes the replacement of the original; both as they lie in the holder (a classmethod object, ...)
    """

    module: str
    holder: str
    name: str
    wrap: Callable[[Any], Any]


class Patches:
    """Those that are in force. Imports of other threads may come at any time."""

    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = patches
        self._lock = threading.RLock()
        self._on = False
        self._done: list[tuple[object, str, object, object]] = []
        self._finder = _Finder({p.module for p in patches}, self._arrived)

    def install(self) -> None:
        """Replace what is there; the rest when it comes."""
        self._on = True
        for module in {p.module for p in self._patches}:
            if module in sys.modules:
                self._arrived(module)
        sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        """Put everything back that nobody else has replaced in the meantime."""
        sys.meta_path.remove(self._finder)
        with self._lock:
            self._on = False
            for holder, name, original, replacement in reversed(self._done):
                if vars(holder).get(name) is replacement:
                    setattr(holder, name, original)
                if isinstance(original, FunctionType):
                    _everywhere(replacement, original)
            self._done.clear()

    def _arrived(self, module: str) -> None:
        with self._lock:
            for patch in self._patches if self._on else ():
                if patch.module == module:
                    self._apply(patch)

    def _apply(self, patch: Patch) -> None:
        holder: object = sys.modules[patch.module]
        for step in patch.holder.split(".") if patch.holder else ():
            holder = getattr(holder, step, None)
        original = vars(holder).get(patch.name) if holder is not None else None
        if original is None:
            return  # half imported, or a version that has no such function
        replacement = patch.wrap(original)
        setattr(holder, patch.name, replacement)
        if isinstance(holder, ModuleType):
            _everywhere(original, replacement)
        self._done.append((holder, patch.name, original, replacement))


def _everywhere(old: object, new: object) -> None:
    """Replace ``old`` where modules have it under any name."""
    for module in [m for m in sys.modules.values() if isinstance(m, ModuleType)]:
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)


class _Finder(MetaPathFinder):
    """Finds what the others find; says when one of the wanted modules was imported."""

    def __init__(self, wanted: set[str], arrived: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._arrived = arrived

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._wanted:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Announcing(spec.loader, self._arrived)
                return spec
        return None


class _Announcing(Loader):
    """Imports as ``inner`` does, then says so; the module never knows."""

    def __init__(self, inner: Loader, arrived: Callable[[str], None]) -> None:
        self._inner = inner
        self._arrived = arrived

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        self._arrived(module.__name__)
