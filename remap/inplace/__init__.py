"""Keys renamed inside safetensors files, without a byte of a tensor moving; and taken back.

    plan ──> change ──> undo file ──> steps
             (headers)  (both ways)   (closed, rewritten, opened)

``change`` says what every header is to be, ``undo`` keeps what it was, ``steps`` goes from the one to the
other so that a run that is killed anywhere can be finished, or undone, and nothing between is taken for a
checkpoint.
"""

from remap.inplace.rename import finish, rename, undo

__all__ = ["finish", "rename", "undo"]
