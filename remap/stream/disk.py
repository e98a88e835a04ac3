"""What a file system can do beside reading and writing: set blocks aside, let two files share them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
from functools import lru_cache
from typing import Any

FICLONERANGE = 0x4020940D
"""Of Linux, ``linux/fs.h``: source descriptor, offset, length, and the offset in the target."""

NOT_HERE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""What a file system says that has no blocks to set aside."""


def reserve(fd: int, nbytes: int) -> None:
    """Give an empty file its size, and all its blocks at once where the file system can: writing them then
    takes a third less time, and a full disk says so now. Raises OSError."""
    allocate = _fallocate()
    if nbytes and allocate is not None and allocate(fd, 0, 0, nbytes):
        code = ctypes.get_errno()
        if code not in NOT_HERE:
            raise OSError(code, os.strerror(code))
    os.truncate(fd, nbytes)


@lru_cache(1)
def _fallocate() -> Any:
    """Linux' own call; ``os.posix_fallocate`` would write to every block where the file system has none."""
    if not sys.platform.startswith("linux"):
        return None
    found = ctypes.CDLL(None, use_errno=True).fallocate
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found


def share(source: int, start: int, target: int, offset: int, nbytes: int) -> None:
    """Let ``nbytes`` of file ``target`` from ``offset`` on be the blocks of ``source`` from ``start`` on; all
    three are multiples of the file system's block. Raises OSError where it can't."""
    fcntl.ioctl(target, FICLONERANGE, struct.pack("=qQQQ", source, start, nbytes, offset))


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write ``data`` at ``offset``, however little the system takes at a time. Raises OSError."""
    left = memoryview(data)
    while left:
        n = os.pwrite(fd, left, offset)
        left, offset = left[n:], offset + n
