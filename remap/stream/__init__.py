"""Running a plan: files that a format described become bytes on disk.

``work`` cuts the files into tasks, ``copy`` runs one task and takes digests while the bytes pass,
``run`` runs all of them on a few threads, ``staging`` puts the whole into place or leaves nothing.
"""

from remap.stream.run import MEMORY, Written, write_files
from remap.stream.staging import Staging

__all__ = ["MEMORY", "Staging", "Written", "write_files"]
