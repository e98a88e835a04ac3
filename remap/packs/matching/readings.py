"""What depends on some of a key's numbers: a capture's text, an index, a condition.

A reading is worked out once for each different set of numbers, however many keys have it. One that is a
function of a single number has a memo, which it shares with the same readings of all other skeletons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, Union, cast

from remap.packs.matching.keyset import Digits, Rows

T = TypeVar("T")
U = TypeVar("U")

Pieces = tuple[Union[str, int], ...]
"""Text as literals and numbers of the key: ``("w", 1)`` is a w and the key's second number."""


MOST = 100_000
"""Values that a memo keeps."""
FUNCTIONS = 1000
"""Functions of its values that it keeps."""


class Memo(dict[str, T]):
    """A function of one number's text, with the values that it had."""

    def __init__(self, of: Callable[[str], T]) -> None:
        super().__init__()
        self.of = of
        self._after: dict[Callable[[T], object], Memo[object]] = {}

    def __missing__(self, text: str) -> T:
        value = self.of(text)
        if len(self) < MOST:
            self[text] = value
        return value

    def then(self, function: Callable[[T], U]) -> Memo[U]:
        """``function`` of it: one memo for each function."""
        if function not in self._after:
            if len(self._after) == FUNCTIONS:
                self._after.clear()
            self._after[function] = Memo(lambda text: function(self[text]))
        return cast("Memo[U]", self._after[function])


SAME: Memo[str] = Memo(str)
"""The number's own text."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A function of the numbers at ``slots``.

    counts  its text is always a number
    memo    the same function, where there is one slot
    """

    slots: tuple[int, ...]
    of: Callable[[Digits], T]
    counts: bool = False
    memo: Memo[T] | None = None

    def at(self, digits: Digits) -> T:
        """Its value for the key with these numbers."""
        return self.of(tuple([digits[s] for s in self.slots]))

    def column(self, rows: Rows) -> list[T]:
        """Its value for each of the keys."""
        if not self.slots:
            return [self.of(())] * len(rows.places)
        if len(self.slots) == 1:
            texts = rows.columns[self.slots[0]]
            if self.memo is not None:
                return list(map(self.memo.__getitem__, texts))
            found = {text: self.of((text,)) for text in set(texts)}
            return [found[text] for text in texts]
        tuples = list(zip(*(rows.columns[s] for s in self.slots), strict=True))
        known = {several: self.of(several) for several in set(tuples)}
        return [known[several] for several in tuples]

    def then(self, function: Callable[[T], U], *, shared: bool = False) -> Reading[U]:
        """``function`` of it; one that is ``shared`` is the same object at every call."""
        if shared and self.memo is not None:
            return single(self.slots[0], self.memo.then(function))
        of = self.of
        return Reading(self.slots, lambda digits: function(of(digits)))


def single(slot: int, memo: Memo[T], *, counts: bool = False) -> Reading[T]:
    """The reading of one number that ``memo`` knows."""
    return Reading((slot,), lambda digits: memo[digits[0]], counts, memo)


def text(pieces: Pieces) -> Reading[str]:
    """The text that ``pieces`` stand for."""
    slots = tuple(p for p in pieces if isinstance(p, int))
    if pieces == slots and len(slots) == 1:
        return single(slots[0], SAME, counts=True)
    shape = "".join("%s" if isinstance(p, int) else p.replace("%", "%%") for p in pieces)
    return Reading(slots, lambda digits: shape % digits)


def together(readings: list[Reading[T]]) -> Reading[list[T]]:
    """Several readings as one."""
    slots = tuple(s for r in readings for s in r.slots)
    lengths = [len(r.slots) for r in readings]

    def of(digits: Digits) -> list[T]:
        values: list[T] = []
        at = 0
        for r, length in zip(readings, lengths, strict=True):
            values.append(r.of(digits[at : at + length]))
            at += length
        return values

    return Reading(slots, of)
