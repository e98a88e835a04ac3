"""What a URL says in confidence: user and password, and the query, which may be a signature.

It is kept here by the place that it opens, never in a path: what is printed or written down of a path is safe
by construction. What others say (an exception of a client's) is ``scrubbed``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

_KEPT: dict[str, Access] = {}
"""By host (``https://host``) the user and password; by folder the query of a file in it."""

_IN_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+://)(?:[^/\s@'\"]*@)?(?P<rest>[^\s?'\"]*)(?:\?[^\s'\")]*)?"
)
_NAMED = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|SIGNATURE|SAS\b|ACCOUNT")
_SHORT = 6
"""Letters. What is shorter is no secret, and may be part of any word."""


@dataclass(frozen=True, slots=True)
class Access:
    """``user``: user and password with their ``@``; ``query`` with its ``?``; "" where there is none."""

    user: str = ""
    query: str = ""


def keep(host: str, folder: str, access: Access) -> None:
    """Remember what opens the files of ``folder``, all but its query all of ``host``."""
    if access.user:
        _KEPT[host] = Access(user=access.user)
    if access.query:
        _KEPT[folder] = Access(query=access.query)


def of(host: str, folder: str) -> Access:
    """What opens the files of ``folder``."""
    return Access(_KEPT.get(host, Access()).user, _KEPT.get(folder, Access()).query)


def scrubbed(text: str) -> str:
    """``text`` without anything that was kept, without user, password and query of any URL in it, and without
    the values of environment variables that are named like secrets."""
    text = _IN_URL.sub(lambda m: m["scheme"] + m["rest"], text)
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets() -> set[str]:
    found = {value for name, value in os.environ.items() if _NAMED.search(name.upper())}
    for kept in _KEPT.values():
        user, _, password = kept.user.rstrip("@").partition(":")
        query = kept.query.lstrip("?")
        found |= {user, password, unquote(password), query}
        found |= {pair.partition("=")[2] for pair in query.split("&")}
    return {s for s in found if len(s) >= _SHORT}
