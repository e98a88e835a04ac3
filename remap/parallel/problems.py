"""What is wrong with many tensors, told by reasons."""

from __future__ import annotations

from remap.errors import RemapError


class Problems:
    """What is wrong with many tensors, a line a reason."""

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}
        self.remedy: str | None = None

    def add(self, key: str, error: RemapError) -> None:
        """Note what is wrong with one of them."""
        self._keys.setdefault(error.what, []).append(key)
        self.remedy = self.remedy or error.remedy

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    @property
    def lines(self) -> list[str]:
        """Every reason, with the first key that it holds for."""
        return [f"{k[0]}{f' and {len(k) - 1} more' * (len(k) > 1)}: {what}" for what, k in self._keys.items()]
