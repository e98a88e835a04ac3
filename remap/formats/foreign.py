"""What a file is that no format recognised: the message that saves its owner an hour."""

from __future__ import annotations

from pathlib import Path

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "it is a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<!DOCTYPE", "it is a web page: the download gave an error page or asked for a login"),
    (b"<html", "it is a web page: the download gave an error page or asked for a login"),
    (b"GGUF", "it is a GGUF file, which remap does not read"),
    (b"\x89HDF", "it is an HDF5 file (Keras), which remap does not read"),
    (b"\x93NUMPY", "it is one NumPy array, not a checkpoint"),
    (b"PK\x03\x04", "it is a zip file, but not one that torch.save writes"),
    (b"\x1f\x8b", "it is compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: unpack it first"),
    (b"BZh", "it is compressed with bzip2: unpack it first"),
    (b"\xfd7zXZ", "it is compressed with xz: unpack it first"),
)


RENAMED = (
    "its keys were being renamed in place: `remap convert PATH --in-place --resume` ends that, "
    "--undo takes it back"
)
UNDO = ".undo.json"


def describe(path: Path) -> str:
    """One sentence on why ``path`` is no checkpoint."""
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir())
        if not names:
            return "the folder is empty"
        if any(n.endswith(UNDO) for n in names):
            return RENAMED
        some = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        return f"the folder holds no checkpoint that remap knows (it has {some})"
    with path.open("rb") as f:
        head = f.read(512)
    if head[7:9] == b"\x80{":
        return RENAMED
    if not head:
        return "the file is empty: its download or its save did not finish"
    for signature, what in SIGNATURES:
        if head.lstrip().startswith(signature):
            return what
    if head[257:262] == b"ustar":
        return "it is a tar archive: unpack it first"
    if not any(head):
        return "the file begins with zeros: its download did not finish, or the disk lost it"
    return "it is no checkpoint that remap knows"
