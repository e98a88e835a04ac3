"""``mpi``: the ranks of an MPI job, by ``mpi4py.futures``; rank 0 runs the command, the others its work.

mpiexec -n 3 python -m mpi4py.futures -m remap convert SRC DST --executor mpi
"""

from __future__ import annotations

from remap.errors import UsageError
from remap.executors.base import Workers

START = "mpiexec -n 3 python -m mpi4py.futures -m remap convert ... --executor mpi"


def workers(address: str, jobs: int) -> Workers:
    """All ranks but the first."""
    try:
        from mpi4py.futures import MPIPoolExecutor, _core
    except ImportError:
        raise UsageError("mpi4py is not installed", remedy="pip install 'remap[mpi]'") from None
    if getattr(_core, "SharedPool", None) is None:
        raise UsageError("no ranks of MPI wait for work", remedy=f"start it so: {START}")
    return Workers(MPIPoolExecutor)
