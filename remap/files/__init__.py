"""Where bytes are read from: a file of this machine, or a remote one, named by a URL that fsspec knows.

``locate`` makes a path of what the user named. That of a remote file is a ``remote.RemotePath``: a Path like
any other, to list, to open, to ask for its size, so that formats need not know. What reads many bytes opens
a ``reading.Handle``. ``store`` is all that speaks to fsspec, imported when a URL is first met; ``access``
keeps what a URL says in confidence out of paths, and so out of receipts and messages.
"""

from remap.files.locate import fetch, is_remote, locate, look_ahead, refresh
from remap.files.reading import Handle, close, open_handle, pread, preadv, size_of

__all__ = [
    "Handle",
    "close",
    "fetch",
    "is_remote",
    "locate",
    "look_ahead",
    "open_handle",
    "pread",
    "preadv",
    "refresh",
    "size_of",
]
