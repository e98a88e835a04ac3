"""Random damage: what hypothesis does to valid files, and what may come of it.

A damaged file is opened, or refused with one of remap's errors; nothing else is raised, nothing in it is
called, and memory stays bounded. What opens is converted, and what was converted verifies.
"""

from __future__ import annotations

import io
import resource
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from remap.errors import RemapError

SECONDS, MEGABYTES = 20, 500
CALLS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class", "socket.connect"}
"""Events of Python's audit hooks that no reader may cause."""

NUMBERS = [0, 1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = [
    b"-1",
    b"1e999",
    b"9" * 400,
    b"null",
    b"true",
    b'""',
    b"[]",
    b"{}",
    b"../x",
    b"\\u0000",
    b"\xff",
    b"\0",
]

Edit = tuple[str, float, int, bytes]


def edits() -> st.SearchStrategy[list[Edit]]:
    """One to four edits of a file: what is done, where (as a fraction), how far, and with what."""
    data = st.one_of(
        st.binary(min_size=1, max_size=8),
        st.sampled_from(TEXTS),
        st.sampled_from(NUMBERS).map(lambda n: n.to_bytes(8, "little")),
        st.sampled_from(NUMBERS[:10]).map(lambda n: (n % 2**32).to_bytes(4, "little")),
    )
    what = st.sampled_from(["put", "put", "insert", "delete", "copy", "cut", "flip"])
    return st.lists(
        st.tuples(what, st.floats(0, 1, exclude_max=True), st.integers(1, 64), data), min_size=1, max_size=4
    )


def damage(data: bytes, changes: list[Edit]) -> bytes:
    """``data`` after the edits."""
    for what, where, count, new in changes:
        at = int(where * len(data))
        if what == "put":
            data = data[:at] + new + data[at + len(new) :]
        elif what == "insert":
            data = data[:at] + new + data[at:]
        elif what == "delete":
            data = data[:at] + data[at + count :]
        elif what == "copy":
            data = data[: at + count] + data[at:]
        elif what == "cut":
            data = data[:at]
        elif data:
            data = data[:at] + bytes([data[at] ^ 1 << count % 8]) + data[at + 1 :]
    return data


def zipped_again(data: bytes, record: str, change: Callable[[bytes], bytes]) -> bytes:
    """A torch file with one record changed, and the checksums right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            new.writestr(info.filename, change(content) if info.filename.endswith(record) else content)
    return out.getvalue()


def header_again(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A safetensors file with its header changed, and the length right again."""
    stop = 8 + int.from_bytes(data[:8], "little")
    header = change(data[8:stop])
    return len(header).to_bytes(8, "little") + header + data[stop:]


_watching: list[str] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in CALLS:
        _watching.append(f"{event}{arguments}")


sys.addaudithook(_hook)


@contextmanager
def guarded() -> Iterator[None]:
    """What is done inside ends in time, in memory, and calls nothing. remap's own errors are fine."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still at it after {SECONDS} seconds")

    before = _peak()
    _watching.append("watching")
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    except RemapError as e:
        if not str(e):
            raise
    finally:
        signal.alarm(0)
        called, _watching[:] = _watching[1:], []
    assert not called, called
    assert _peak() - before < MEGABYTES


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def put(path: Path, data: bytes) -> Path:
    """Write a file, its folder as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
