"""Text that XML 1.0 can hold: a key from a hostile file may have any character."""

from __future__ import annotations

import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """The text with what XML forbids written as an escape."""
    return _FORBIDDEN.sub(lambda m: f"\\x{ord(m[0]):02x}", text)
