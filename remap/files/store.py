"""All that is asked of fsspec: what lies there, ranges of bytes, uploads.

What was found of a folder is remembered until the user names a place in it again (``forget``): formats ask
the same thing many times, and each question takes a round trip. Errors come as remap's, without secrets.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from remap.errors import InputError, RemapError, UsageError
from remap.files import access
from remap.files.hangups import outlive_hangups
from remap.files.remote import WEB, RemotePath

T = TypeVar("T")

HEAD = 64 << 10
"""Bytes at the start of a file that are asked for in one go and remembered: every format looks there."""

HEADS = 256
"""Files of which they are remembered."""

SMALL = 16 << 10
"""Bytes. Ranges up to this length are headers, too, and remembered."""

SMALLS = 4096
"""How many of them."""

PAUSES = (0.2, 1.0)
"""Seconds before asking again where the way there failed."""

AT_ONCE = 16
"""Questions at a time."""

GONE = (404, 410)
DENIED = (401, 403)
INSTALL = "pip install 'remap[remote]'"


@dataclass(frozen=True, slots=True)
class Info:
    """What lies at a path: size in bytes, folder or file, a number that is another where it was replaced."""

    size: int
    is_folder: bool
    stamp: int


_found: dict[RemotePath, Info | None] = {}
_listed: dict[RemotePath, dict[str, Info] | None] = {}
_denied: dict[RemotePath, str] = {}


def forget(path: RemotePath) -> None:
    """Ask anew what lies at ``path``, in its folder and in folders below."""
    top = path.parent
    known: dict[RemotePath, Any]
    for known in (_found, _listed, _denied):
        for other in [p for p in known if p == top or top in p.parents]:
            del known[other]
    head.cache_clear()
    _small.cache_clear()


def info(path: RemotePath) -> Info | None:
    """What lies there; None where nothing does, or nothing that may be seen. Raises InputError where the way
    there fails."""
    if path not in _found:
        there = None if path.is_root else listing(path.parent)
        _found[path] = there.get(path.name) if there is not None else _ask_info(path)
    return _found[path]


def check_allowed(path: RemotePath) -> None:
    """Raise InputError where ``path`` may not be read."""
    if path in _denied:
        raise InputError(
            f"no permission to read it{_denied[path]}",
            where=path,
            remedy="credentials come from the environment or a profile, as for the store's own tools",
        )


def listing(folder: RemotePath) -> dict[str, Info] | None:
    """What a folder holds, by name; {} where there is none, None where it can't be listed."""
    if folder not in _listed:
        _listed[folder] = None if folder.scheme in WEB or len(folder.parts) < 2 else _ask_listing(folder)
    return _listed[folder]


def read(path: RemotePath, offset: int, nbytes: int, size: int) -> bytes:
    """``nbytes`` of a file of ``size`` bytes from ``offset`` on; b"" where there are none.

    Raises InputError, also where the server sends something else than the range.
    """
    if nbytes <= 0:
        return b""
    if offset + nbytes <= min(HEAD, size) and nbytes < HEAD:
        return head(path, size)[offset : offset + nbytes]
    return (_small if nbytes <= SMALL else _ask_range)(path, offset, nbytes, size)


@lru_cache(HEADS)
def head(path: RemotePath, size: int) -> bytes:
    """The first bytes of a file."""
    return _ask_range(path, 0, min(HEAD, size), size)


@lru_cache(SMALLS)
def _small(path: RemotePath, offset: int, nbytes: int, size: int) -> bytes:
    return _ask_range(path, offset, nbytes, size)


def look(paths: Sequence[RemotePath], heads: bool) -> None:
    """Learn of many paths at once what ``info`` says and, with ``heads``, how their files begin."""
    for folder in {p.parent for p in paths}:
        listing(folder)

    def ask(path: RemotePath) -> None:
        found = info(path)
        if heads and found is not None and not found.is_folder and found.size:
            head(path, found.size)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(ask, paths))


def fetch(path: RemotePath, offsets: Sequence[int], nbytes: int) -> dict[int, bytes]:
    """Offset -> ``nbytes`` from there on, fewer at the end of the file."""
    size = path.stat().st_size
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda at: read(path, at, min(nbytes, size - at), size), offsets)
        return dict(zip(offsets, found, strict=True))


def _ask_info(path: RemotePath) -> Info | None:
    try:
        return _info(_asked(path, lambda fs, inner: fs.info(inner)), path)
    except FileNotFoundError:
        return None
    except PermissionError as e:
        _denied[path] = f": {e}" if str(e) else ""
        return None


def _ask_listing(folder: RemotePath) -> dict[str, Info] | None:
    def ask(fs: Any, inner: str) -> dict[str, Info]:
        fs.invalidate_cache(inner)
        entries = [e for e in fs.ls(inner, detail=True) if e["name"].strip("/") != inner.strip("/")]
        named = ((e["name"].rstrip("/").rpartition("/")[2], e) for e in entries)
        return {name: _info(e, folder / name) for name, e in sorted(named, key=lambda item: item[0])}

    try:
        return _asked(folder, ask)
    except FileNotFoundError:
        return {}
    except (PermissionError, NotADirectoryError):
        return None


def _ask_range(path: RemotePath, offset: int, nbytes: int, size: int) -> bytes:
    def ask(fs: Any, inner: str) -> bytes:
        web = path.scheme in WEB
        if fs.async_impl and not web:
            return bytes(fs.cat_file(inner, start=offset, end=offset + nbytes))
        known = {"size": size} if web else {}
        with fs.open(
            inner, "rb", cache_type="none", **known
        ) as f:  # the web's refuses a server without ranges
            f.seek(offset)
            return bytes(f.read(nbytes))

    try:
        data = _asked(path, ask)
    except OSError as e:  # that it is gone, or not to be read any more
        raise InputError(
            f"it can't be read: {access.scrubbed(str(e)) or type(e).__name__}", where=path
        ) from None
    if len(data) != nbytes:
        raise InputError(
            f"{nbytes} bytes from {offset} on were asked for, {len(data)} came",
            where=path,
            remedy="it was replaced meanwhile, or its server knows no ranges: fetch it and use the copy",
        )
    return data


def _asked(path: RemotePath, ask: Callable[[Any, str], T]) -> T:
    """The answer; asked again where the way there fails. Raises FileNotFoundError, NotADirectoryError,
    PermissionError; InputError for all else."""
    fs, inner = connect(path)
    for pause in (*PAUSES, None):
        try:
            return ask(fs, inner)
        except RemapError:
            raise
        except Exception as e:
            error = _sorted(e)
            if isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
                raise error from None
            if pause is None or isinstance(e, (ValueError, TypeError, NotImplementedError)):
                raise InputError(f"it can't be read: {reason(e)}", where=path) from None
            time.sleep(pause)
    raise AssertionError


def _sorted(e: Exception) -> Exception:
    """What an exception means: that of HTTP says of everything that no file is there."""
    status = getattr(e, "status", None) or getattr(e.__cause__, "status", None)
    if status in GONE:
        return FileNotFoundError()
    if status in DENIED:
        return PermissionError(f"the server says {status}")
    if "Credentials" in type(e).__name__:  # botocore's, that there are none
        return PermissionError(access.scrubbed(str(e)))
    if isinstance(e, FileNotFoundError) and e.__cause__ is not None:
        import aiohttp

        if isinstance(e.__cause__, aiohttp.ClientError):
            return e.__cause__
    if isinstance(e, PermissionError):
        return PermissionError(access.scrubbed(str(e)))
    return e


def reason(e: BaseException) -> str:
    """An exception of a client's in a line, without secrets."""
    error = _sorted(e) if isinstance(e, Exception) else e
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {access.scrubbed(text)}" if text else type(error).__name__


def connect(path: RemotePath) -> tuple[Any, str]:
    """fsspec's file system for a path, and what that calls it. Raises UsageError where it, or the client that
    it needs, is not installed."""
    try:
        import fsspec
    except ImportError:
        raise UsageError("remote files are read by fsspec", where=path, remedy=INSTALL) from None
    outlive_hangups()
    kept = access.of(path.host, str(path.parent))
    rest = str(path).partition("://")[2]
    if path.scheme in WEB:
        rest = rest.replace("?", "%3F").replace("#", "%23")
    try:
        fs, inner = fsspec.core.url_to_fs(f"{path.scheme}://{kept.user}{rest}{kept.query}")
    except ImportError as e:
        raise UsageError(
            f"its client is not installed: {access.scrubbed(str(e))}", where=path, remedy="pip install it"
        ) from None
    except Exception as e:
        raise UsageError(f"can't be reached: {reason(e)}", where=path) from None
    return fs, str(inner)


_STAMPS = frozenset(
    [
        "ETag",
        "etag",
        "generation",
        "md5Hash",
        "blob_id",
        "content_hash",
        "Content-MD5",
        "Last-Modified",
        "LastModified",
        "last_modified",
        "mtime",
        "modified",
    ]
)
"""What stores say of a file that is another once it was replaced."""


def _info(said: dict[str, Any], path: RemotePath) -> Info:
    folder = said.get("type") == "directory"
    size = said.get("size")
    if size is None and not folder:
        raise InputError(
            "its server does not say how long it is", where=path, remedy="fetch it and use the copy"
        )
    stamps = [f"{name} {said[name]}" for name in sorted(_STAMPS & said.keys())]
    return Info(int(size or 0), folder, zlib.crc32("\n".join(stamps).encode()))


def names(folder: RemotePath) -> Iterable[str]:
    """Every file below a folder, relative to it. Raises InputError."""
    try:
        there = _asked(folder, lambda fs, inner: (fs.find(inner), inner))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found, inner = there
    return [n.strip("/").removeprefix(inner.strip("/")).lstrip("/") for n in found]
