"""What the user says of parallel checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remap.formats.base import ReadOptions
from remap.packs import Layout
from remap.packs.applying.params import Given
from remap.partitions.base import Copies


@dataclass(frozen=True)
class Settings:
    """What the user says of parallel checkpoints.

    layout      a layout's name or file, None to take the one that knows the keys
    params      values of layouts' parameters, by name
    remembered  what the source's receipt says of them
    copies      what replicated tensors that differ between ranks become
    padded      keep the vocabulary's padding
    partition   a file that says how metaseq's parts divide tensors with further names
    """

    layout: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, object] = field(default_factory=dict)
    copies: Copies = "error"
    padded: bool = False
    partition: Path | None = None

    @property
    def reading(self) -> ReadOptions:
        """What is said of formats that merge by themselves."""
        return ReadOptions(self.copies, self.partition)

    @property
    def told(self) -> dict[str, str]:
        """What a receipt is to remember of layouts' parameters: what it was told, and what one told it."""
        return {**{n: str(v) for n, v in self.remembered.items()}, **self.params}

    def given(self, layout: Layout, config: Mapping[str, object]) -> Given:
        """What is known of a layout's parameters beforehand."""
        return Given({n: v for n, v in self.params.items() if n in layout.params}, self.remembered, config)


AS_FOUND = Settings()
"""Nothing is said: layouts are recognised, copies agree."""
