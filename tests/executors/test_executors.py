"""Conversions by processes, by a real Dask scheduler with two workers, and by three ranks of MPI."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from remap import api
from remap.errors import Damaged, UsageError
from remap.executors import registry
from remap.executors.units import run_units
from remap.stream import elsewhere, work
from remap.stream.uploading import write

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "tests")])


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Eight tensors of 1 MB, in two files."""
    folder = tmp_path_factory.mktemp("source")
    generator = np.random.default_rng(0)
    for n in (1, 2):
        shard = {f"layers.{n}.{k}": generator.random((500, 500), "f4") for k in "abcd"}
        save_file(shard, folder / f"model-0000{n}-of-00002.safetensors")
    return folder


@pytest.fixture(scope="module")
def by_threads(source, tmp_path_factory) -> dict[str, bytes]:
    return converted(source, tmp_path_factory.mktemp("threads") / "out")


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    """Units of one tensor."""
    monkeypatch.setattr(work, "TASK_BYTES", 1 << 20)


@pytest.fixture(scope="session")
def dask(tmp_path_factory, store) -> Iterator[str]:
    """The address of a scheduler that has two workers, processes of their own."""
    folder = tmp_path_factory.mktemp("dask")
    log = (folder / "log").open("wb")
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "DYING": str(folder), **store.environment}
    file = ["--scheduler-file", str(folder / "scheduler.json")]

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, *file]
        return subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)

    alone = "60"  # seconds after which they end by themselves, should these tests be killed
    here = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    running = [start("scheduler", *here, "--idle-timeout", alone)]
    running.append(
        start("worker", "--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--death-timeout", alone)
    )
    try:
        from distributed import Client

        with Client(scheduler_file=str(folder / "scheduler.json"), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            address = client.scheduler.address
        yield address.replace("tcp://", "dask://")
    finally:
        for process in reversed(running):  # the workers first, while there is a scheduler to leave
            process.terminate()
            process.wait()
        log.close()


def converted(source, destination, **how) -> dict[str, bytes]:
    """The files of an output that was cast, by name."""
    api.convert(source, destination, dtype="float16", shard_size=3_000_000, **how)
    return {p.name: p.read_bytes() for p in destination.iterdir()}


def test_any_executor_does(source, by_threads, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        assert converted(source, tmp_path / "out", executor=pool) == by_threads


def test_dask_workers_write_what_threads_write(source, by_threads, tmp_path, dask):
    told = []
    progress = lambda files, nbytes: told.append(-nbytes) or told.append  # noqa: E731
    assert converted(source, tmp_path / "out", executor=dask, progress=progress) == by_threads
    assert sum(told) == 0


@pytest.mark.parametrize("executor", ["dask", "processes"])
def test_a_worker_that_is_killed_costs_its_unit(executor, source, by_threads, tmp_path, request, monkeypatch):
    import dying

    monkeypatch.setattr(elsewhere, "run_unit", dying.run_unit)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    where = request.getfixturevalue("dask") if executor == "dask" else executor
    assert converted(source, tmp_path / "out", executor=where, jobs=2) == by_threads
    assert list(tmp_path.rglob(dying.MARK))


def test_a_command_outlives_its_workers():
    """The command line lets SIGPIPE end it, which a worker's death would send."""
    command = (
        "import signal, sys; signal.signal(signal.SIGPIPE, signal.SIG_DFL); "
        "from remap.executors.registry import find; find('processes', 1); "
        "sys.exit(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL)"
    )
    assert subprocess.run([sys.executable, "-c", command], cwd=ROOT, check=False).returncode == 0


def test_workers_that_are_lost_every_time_are_given_up(monkeypatch):
    import dying

    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    workers = registry.find("processes", 1)
    with pytest.raises(UsageError, match="2 of 2 units of work were lost"):
        run_units(workers, dying.refuse, {1: 1, 2: 2}, lambda key, result: None)


def test_dask_workers_send_to_a_store(source, by_threads, s3, dask, monkeypatch):
    import dying

    bucket = s3.bucket("dask-out")
    monkeypatch.setattr(write, "send_unit", dying.send_unit)
    api.convert(source, f"{bucket}/out", dtype="float16", shard_size=3_000_000, executor=dask)
    stored = {k.removeprefix("out/"): s3.get(f"{bucket}/{k}") for k in s3.keys("dask-out")}
    assert stored == by_threads


def test_ranks_of_mpi_write_what_threads_write(source, by_threads, tmp_path):
    mpi = [str(Path(sys.executable).with_name("mpiexec")), "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    remap = ["-m", "remap", "convert", source, tmp_path / "out", "--executor", "mpi"]
    ran = subprocess.run(
        [*mpi, *map(str, remap), "--dtype", "float16", "--shard-size", "3000000"],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == by_threads


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("spark", "no executor is called 'spark'"),
        ("dask", "which scheduler"),
        ("mpi", "mpi4py.futures"),
    ],
)
def test_an_executor_that_cannot_be_had_says_what_to_do(executor, message, source, tmp_path):
    with pytest.raises(UsageError) as error:
        api.convert(source, tmp_path / "out", executor=executor)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_worker_with_another_version_refuses(source, tmp_path):
    with pytest.raises(UsageError, match="a worker has remap"):
        elsewhere.check_version("0.0.0")


def test_a_worker_s_error_comes_whole():
    error = Damaged("it is cut short", where="a.safetensors", problems=["x"], remedy="fetch it again")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
