"""An output appears whole, or not at all; a source is never written to."""

from __future__ import annotations

import errno
import os

import pytest

from remap.errors import DestinationError
from remap.receipt import RECEIPT
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
            (folder / RECEIPT).write_text("{}")
        staging.commit()


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


def test_overwrite_does_not_remove_what_remap_did_not_write(tmp_path, source):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("years of work")
    with pytest.raises(DestinationError, match="remap did not write"):
        staged(tmp_path / "out", source, overwrite=True)
    assert (tmp_path / "out/thesis.tex").exists()


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


def test_what_a_killed_run_left_is_swept(tmp_path, source):
    left = Staging(tmp_path / "out", source, single_file=False, overwrite=False).folder
    dead = left.with_name(left.name.replace(f"-{os.getpid()}-", "-4194304-"))  # above the largest pid
    left.rename(dead)
    staged(tmp_path / "out", source)
    assert names(tmp_path) == ["out", "source"]


def test_what_a_living_run_writes_is_left_alone(tmp_path, source):
    with Staging(tmp_path / "out", source, single_file=False, overwrite=False) as other:
        staged(tmp_path / "out", source)
        assert other.folder.exists()
