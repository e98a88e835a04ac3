"""How a system gives names to files: in one step, and on the disk once it says so."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from remap.errors import DestinationError
from remap.stream.disk import write_all

HERE, SWAP = -100, 2
"""Of Linux: AT_FDCWD, RENAME_EXCHANGE."""

UNSYNCED = {errno.EINVAL, errno.EBADF, errno.EACCES, errno.ENOTSUP}
"""What network file systems say of a folder that they can't sync."""


def put_file(path: Path, data: bytes, sync: bool) -> None:
    """Write a new file. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Return once the disk has the names in ``folder``. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno not in UNSYNCED:
            raise
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """The same for a folder and all in it, the innermost first."""
    for place, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(place))


def link(written: Path, destination: Path) -> None:
    """Give a file a second name, in one step that fails where the name is taken. Raises DestinationError."""
    try:
        os.link(written, destination)
    except FileExistsError:
        raise DestinationError(
            "something appeared there meanwhile", where=destination, remedy="name another destination"
        ) from None
    except OSError as e:
        if e.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        os.rename(written, destination)  # a file system without hard links


def swap(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system can't."""
    call = _renameat2()
    if call is None:
        return False
    failed = call(HERE, os.fsencode(one), HERE, os.fsencode(other), SWAP)
    code = ctypes.get_errno() if failed else 0
    if code and code not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(code, os.strerror(code))
    return not code


@lru_cache(1)
def _renameat2() -> Any:
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if found is not None and sys.platform.startswith("linux"):
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        return found
    return None
