"""An op's arguments as they stand in a pack -> checked values.

Sizes may be symbols (``heads*head_dim``); they are kept as expressions and worked out when a plan is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remap.dtypes import DType, dtype
from remap.errors import PackError, UsageError
from remap.ops import arithmetic
from remap.ops.arithmetic import Arithmetic, Num
from remap.ops.base import Scope


class Arguments:
    """Reads an op's arguments one by one; ``done`` refuses those that nobody asked for."""

    def __init__(self, op: str, given: Mapping[str, object]) -> None:
        self.op = op
        self.given = given
        self._asked: list[str] = []

    def _get(self, name: str) -> object:
        self._asked.append(name)
        return self.given.get(name)

    def wrong(self, name: str, expected: str) -> PackError:
        """The error for an argument that is not ``expected``."""
        if name not in self.given:
            return PackError(f"{self.op} needs {name}: {expected}")
        return PackError(f"{self.op}: {name}: {self.given[name]!r} is not {expected}")

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number, as it stands."""
        value = self._get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(name, "a whole number")
        return value

    def wholes(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
            raise self.wrong(name, "a list of whole numbers")
        return tuple(value)

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        value = self._get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong(name, "a number")
        return float(value)

    def text(self, name: str) -> str | None:
        """A word, or None."""
        value = self._get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a word")
        return value

    def words(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of words."""
        value = self._get(name)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.wrong(name, "a list of words")
        return tuple(value)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of ``choices``."""
        value = self._get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return value

    def size(self, name: str) -> Arithmetic:
        """A size: a number, a parameter, or arithmetic on parameters."""
        found = self.maybe_size(name)
        if found is None:
            raise self.wrong(name, "a size")
        return found

    def maybe_size(self, name: str) -> Arithmetic | None:
        """A size, or None."""
        value = self._get(name)
        return None if value is None else self._size(name, value)

    def sizes(self, name: str) -> tuple[Arithmetic, ...] | None:
        """A list of sizes, or None."""
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, "a list of sizes")
        return tuple(self._size(name, v) for v in value)

    def _size(self, name: str, value: object) -> Arithmetic:
        if type(value) is int and value >= 0:
            return Num(value)
        if not isinstance(value, str):
            raise self.wrong(name, "a size")
        return arithmetic.parse(value)

    def maybe_dtype(self, name: str) -> DType | None:
        """An element type, or None."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return dtype(value)
        except UsageError as e:
            raise PackError(f"{self.op}: {name}: {e.what}", remedy=e.remedy) from None

    def done(self) -> None:
        """Raise PackError for arguments that the op has not."""
        strange = [n for n in self.given if n not in self._asked]
        if strange:
            has = f"it has {', '.join(self._asked)}" if self._asked else "it has none"
            raise PackError(f"{self.op} has no argument {strange[0]!r}; {has}")


def value(size: Arithmetic, scope: Scope) -> int:
    """The number that a size stands for. Raises UsageError for a parameter without a value, and for less
    than 0."""
    missing = sorted(arithmetic.names(size) - scope.sizes.keys())
    if missing:
        raise UsageError(f"the size {size} needs {', '.join(missing)}, which has no value")
    found = arithmetic.evaluate(size, scope.sizes)
    if found < 0:
        said = ", ".join(f"{n} = {scope.sizes[n]}" for n in sorted(arithmetic.names(size)))
        raise UsageError(f"the size {size} is {found}, with {said}")
    return found


def symbols(sizes: Iterable[Arithmetic | None]) -> frozenset[str]:
    """The parameters that ``sizes`` name."""
    return frozenset[str]().union(*(arithmetic.names(s) for s in sizes if s is not None))
