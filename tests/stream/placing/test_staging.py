"""An output appears whole, or not at all; a source is never written to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from remap.errors import DestinationError
from remap.receipt import RECEIPT, File, Receipt, Source
from remap.stream import Staging
from remap.types import Catalog


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return Catalog("safetensors", folder, (folder / "model.safetensors",), {})


def staged(destination, source, content="new", **options):
    options = {"single_file": False, "overwrite": False, **options}
    with Staging(destination, source, **options) as staging:
        with staging.writing() as folder:
            name = destination.name if options["single_file"] else "file"
            (folder / name).write_text(content)
            (folder / RECEIPT).write_bytes(receipt(name).encode())
        staging.commit()


def receipt(*files):
    """A receipt that lists ``files``."""
    source = Source("source", "safetensors", {})
    listed = {name: File(3, "") for name in files}
    return Receipt(1, "0", "torch", source, [], [], None, {}, [], [], [], listed)


KEY = {"remap": "1", "rules": "2", "inputs": "3", "output": "4"}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_folder_appears_whole(tmp_path, source):
    staged(tmp_path / "out", source)
    assert names(tmp_path) == ["out", "source"]
    assert names(tmp_path / "out") == ["file", RECEIPT]


def test_a_single_file_has_its_receipt_beside_it(tmp_path, source):
    staged(tmp_path / "out.pt", source, single_file=True)
    assert names(tmp_path) == ["out.pt", "out.pt.receipt.json", "source"]


def test_a_failure_leaves_nothing(tmp_path, source):
    def fail():
        with Staging(tmp_path / "out", source, single_file=False, overwrite=False) as staging:
            (staging.folder / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == ["source"]


def test_what_exists_is_refused(tmp_path, source):
    staged(tmp_path / "out", source)
    with pytest.raises(DestinationError, match=r"exists already[\s\S]*--overwrite"):
        staged(tmp_path / "out", source)


def test_overwrite_replaces_what_remap_wrote(tmp_path, source):
    staged(tmp_path / "out", source)
    staged(tmp_path / "out", source, "newer", overwrite=True)
    assert (tmp_path / "out/file").read_text() == "newer"
    assert names(tmp_path) == ["out", "source"]


@pytest.mark.parametrize("listed", [True, False])
def test_overwrite_does_not_remove_what_remap_did_not_write(tmp_path, source, listed):
    if listed:
        staged(tmp_path / "out", source)
    (tmp_path / "out/global_step1000").mkdir(parents=True)
    (tmp_path / "out/global_step1000/trained.pt").write_text("weeks of work")
    with pytest.raises(DestinationError, match="replaces what remap wrote, and there is more"):
        staged(tmp_path / "out", source, overwrite=True)
    assert (tmp_path / "out/global_step1000/trained.pt").exists()


def test_overwrite_does_not_replace_a_file_that_remap_did_not_write(tmp_path, source):
    (tmp_path / "out.pt").write_text("important")
    with pytest.raises(DestinationError, match="no receipt"):
        staged(tmp_path / "out.pt", source, single_file=True, overwrite=True)
    assert (tmp_path / "out.pt").read_text() == "important"


def test_a_file_that_is_no_receipt_is_not_replaced_by_one(tmp_path, source):
    (tmp_path / "out.pt.receipt.json").write_text("the grocer's")
    with pytest.raises(DestinationError, match="the receipt would replace a file that is none"):
        staged(tmp_path / "out.pt", source, single_file=True)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_what_appears_meanwhile_is_not_replaced(tmp_path, source, single, overwrite):
    out = tmp_path / "out"
    with Staging(out, source, single_file=single, overwrite=overwrite) as staging:
        (staging.folder / "out").write_text("new")
        (staging.folder / RECEIPT).write_bytes(receipt("out").encode())
        if single:
            out.write_text("precious")
        else:
            out.mkdir()
            (out / "precious").write_text("precious")
        with pytest.raises(DestinationError):
            staging.commit()
    assert (out if single else out / "precious").read_text() == "precious"
    assert names(tmp_path) == ["out", "source"]


def test_a_run_that_was_killed_while_replacing_loses_nothing(tmp_path, source):
    staged(tmp_path / "out", source, "old")
    (tmp_path / ".out.remap").mkdir()
    (tmp_path / "out").rename(tmp_path / ".out.remap/old")
    with pytest.raises(DestinationError, match="exists already"):
        staged(tmp_path / "out", source)
    assert (tmp_path / "out/file").read_text() == "old"


def test_a_link_to_a_folder_is_followed(tmp_path, source):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    staged(tmp_path / "link", source)
    assert (tmp_path / "real/file").read_text() == "new"


def test_the_current_folder_is_refused(tmp_path, source, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(DestinationError, match="is the current folder"):
        staged(Path(), source)


def test_an_empty_folder_may_be_taken(tmp_path, source):
    (tmp_path / "out").mkdir()
    staged(tmp_path / "out", source)
    assert (tmp_path / "out/file").exists()


@pytest.mark.parametrize("destination", ["source", "source/out", "source/model.safetensors", "link/out"])
def test_the_source_is_never_written_to(tmp_path, source, destination):
    (tmp_path / "link").symlink_to(tmp_path / "source")
    with pytest.raises(DestinationError, match="never written to"):
        staged(tmp_path / destination, source, overwrite=True)
    assert names(tmp_path / "source") == ["model.safetensors"]


def test_a_destination_that_holds_the_source_is_refused(tmp_path, source):
    with pytest.raises(DestinationError, match="holds the source"):
        staged(tmp_path, source, overwrite=True)


def test_no_room_is_said_with_both_numbers(tmp_path, source):
    with (
        Staging(tmp_path / "out", source, single_file=False, overwrite=False) as staging,
        pytest.raises(
            DestinationError, match=r"the output takes 1000000000000000000 bytes, the disk has [0-9]+ free"
        ),
    ):
        staging.check_room(10**18)


@pytest.mark.parametrize(
    ("code", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission")]
)
def test_what_the_system_refuses_is_explained(tmp_path, source, code, message):
    with (
        pytest.raises(DestinationError, match=message),
        Staging(tmp_path / "out", source, single_file=False, overwrite=False) as staging,
        staging.writing(),
    ):
        raise OSError(code, os.strerror(code), "somewhere")
    assert names(tmp_path) == ["source"]


def killed(destination, source, **options):
    """A run that ends as one that is killed: nobody cleans up, the system lets go of its lock."""
    staging = Staging(destination, source, single_file=False, overwrite=False, key=KEY, **options)
    (staging.folder / "half").write_text("half")
    os.close(staging._room.fd)


def test_what_a_killed_run_left_is_swept(tmp_path, source):
    killed(tmp_path / "out", source)
    assert list(tmp_path.glob(".out.remap/files-*/half"))
    staged(tmp_path / "out", source)
    assert names(tmp_path) == ["out", "source"]
    assert names(tmp_path / "out") == ["file", RECEIPT]


def test_with_resume_it_is_there_for_the_next_run(tmp_path, source):
    killed(tmp_path / "out", source)
    options = {"single_file": False, "overwrite": False, "key": KEY, "resume": True}
    with pytest.raises(KeyboardInterrupt), Staging(tmp_path / "out", source, **options):
        raise KeyboardInterrupt
    with Staging(tmp_path / "out", source, **options) as staging:
        assert (staging.folder / "half").exists()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("rules", "the rules, or"),
        ("inputs", "the source is"),
        ("output", "the options"),
        ("remap", "version"),
    ],
)
def test_what_was_begun_for_another_conversion_is_not_taken(tmp_path, source, part, message):
    killed(tmp_path / "out", source)
    for _ in range(2):  # nor is it swept
        with pytest.raises(DestinationError, match=message):
            Staging(
                tmp_path / "out",
                source,
                single_file=False,
                overwrite=False,
                key={**KEY, part: "other"},
                resume=True,
            )


@pytest.mark.parametrize("resume", [True, False])
def test_a_second_run_to_one_destination_is_told(tmp_path, source, resume):
    with Staging(tmp_path / "out", source, single_file=False, overwrite=False) as other:
        with pytest.raises(DestinationError, match="another run is writing it"):
            staged(tmp_path / "out", source, resume=resume)
        assert other.folder.exists()


def test_without_locks_what_was_left_may_be_anothers(tmp_path, source, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    killed(tmp_path / "out", source)
    with pytest.raises(DestinationError, match=r"no locks to tell[\s\S]*remove .*\.out\.remap"):
        staged(tmp_path / "out", source)
    staged(tmp_path / "out", source, key=KEY, resume=True)
    assert (tmp_path / "out/half").exists()


def test_what_lies_in_the_way_of_the_room_is_not_touched(tmp_path, source):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".out.remap").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DestinationError, match="is in the way"):
        staged(tmp_path / "out", source)
    assert names(tmp_path / "elsewhere") == []


def test_what_can_not_be_removed_is_named(tmp_path, source, monkeypatch):
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    with (
        pytest.raises(DestinationError, match=r"\.out\.remap could not be removed"),
        Staging(tmp_path / "out", source, single_file=False, overwrite=False) as staging,
        staging.writing(),
    ):
        raise OSError(errno.EIO, "no")


def test_a_worker_that_outlives_its_run_writes_nowhere(tmp_path, source):
    with Staging(tmp_path / "out", source, single_file=False, overwrite=False, key=KEY) as first:
        before = first.folder
    with Staging(tmp_path / "out", source, single_file=False, overwrite=False, key=KEY) as second:
        assert second.folder != before
