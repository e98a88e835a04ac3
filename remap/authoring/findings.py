"""What an author's tool has to say: a stable code, a place in the pack, a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class PackFinding:
    """One finding about a pack."""

    code: str
    level: Level
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level}: {self.message} [{self.code}]"
