"""Running a plan: files that a format described become bytes on disk.

``work`` cuts the files into tasks, ``copy`` runs one task: ``read`` gives the bytes, ``sums`` takes digests
while they pass, ``sink`` writes them or shares the source's blocks; ``run`` runs all tasks on a few threads,
``placing`` puts the whole into place or leaves nothing.
"""

from remap.stream.placing.staging import Staging
from remap.stream.run import MEMORY, Written, write_files
from remap.stream.sharing import room

__all__ = ["MEMORY", "Staging", "Written", "room", "write_files"]
