"""``vocabulary(words, multiple)``: rows, one a word; ranks are made equal by rows without a word.

The padded size is the smallest multiple of ``multiple`` times the ranks (GPT-NeoX
megatron/tokenizer/tokenizer.py, ``_vocab_size_with_padding``), so it depends on their number. Padding is at
the end. ``words`` is the real size; where it is not known every row counts as a word, and none is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remap.errors import UsageError
from remap.expr import Concat, Expr, Pad, Slice
from remap.partitions.base import Merging, Size, cut


@dataclass(frozen=True)
class Vocabulary:
    """See the module's docstring."""

    words: Size
    multiple: Size
    dim: int = 0

    def merge(self, parts: Sequence[Expr], how: Merging) -> Expr:
        """The rows joined; without padding, unless it is to be kept."""
        whole = parts[0] if len(parts) == 1 else Concat(tuple(parts))
        return whole if how.padded else self._resized(whole, self._real(whole.spec.shape[0]))

    def split(self, whole: Expr, ranks: int) -> Sequence[Expr]:
        """Equal stretches of the padded table."""
        rows = self.rows(self._real(whole.spec.shape[0]), ranks)
        return cut(self._resized(whole, rows), 0, ranks)

    def rows(self, words: int, ranks: int) -> int:
        """Rows of the padded table."""
        unit = self.multiple.known * ranks
        return -(-words // unit) * unit

    def _real(self, rows: int) -> int:
        words = rows if self.words.value is None else self.words.value
        if words > rows:
            raise UsageError(
                f"{self.words.text} is {words}, and the table has {rows} rows",
                remedy=f"give the real size: -p {self.words.text}=...",
            )
        return words

    def _resized(self, whole: Expr, rows: int) -> Expr:
        have = whole.spec.shape[0]
        if rows > have:
            return Pad(whole, 0, after=rows - have)
        return whole if rows == have else Slice(whole, 0, 0, rows)
