"""What depends on some of a key's numbers: a capture's text, an index, a condition.

A reading is worked out once for each different set of numbers, however many keys have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, Union

from remap.packs.keyset import Digits, Rows

T = TypeVar("T")
U = TypeVar("U")

Pieces = tuple[Union[str, int], ...]
"""Text as literals and numbers of the key: ``("w", 1)`` is a w and the key's second number."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A function of the numbers at ``slots``. ``counts``: its text is always a number."""

    slots: tuple[int, ...]
    of: Callable[[Digits], T]
    counts: bool = False

    def at(self, digits: Digits) -> T:
        """Its value for the key with these numbers."""
        return self.of(tuple([digits[s] for s in self.slots]))

    def column(self, rows: Rows) -> list[T]:
        """Its value for each of the keys."""
        if not self.slots:
            return [self.of(())] * len(rows.places)
        if len(self.slots) == 1:
            texts = rows.columns[self.slots[0]]
            single = {text: self.of((text,)) for text in set(texts)}
            return [single[text] for text in texts]
        tuples = list(zip(*(rows.columns[s] for s in self.slots), strict=True))
        known = {several: self.of(several) for several in set(tuples)}
        return [known[several] for several in tuples]

    def then(self, function: Callable[[T], U]) -> Reading[U]:
        """``function`` of it."""
        of = self.of
        return Reading(self.slots, lambda digits: function(of(digits)))


def text(pieces: Pieces) -> Reading[str]:
    """The text that ``pieces`` stand for."""
    slots = tuple(p for p in pieces if isinstance(p, int))
    if pieces == slots and len(slots) == 1:
        return Reading(slots, lambda digits: digits[0], counts=True)
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
