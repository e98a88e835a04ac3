"""DCP folders that torch saved are read equal; what is incomplete or made to mislead is refused."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from formats.dcp import torch_ranks as truth
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex

from remap.checkpoint import Checkpoint
from remap.errors import Damaged, Hostile, InputError, NotACheckpoint, RemapError, UsageError
from remap.expr import Take
from remap.expr.ranges import lower
from remap.formats import registry
from remap.pickles.graph import Opaque

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def opened(path, at=None) -> Checkpoint:
    return Checkpoint(registry.open_catalog(path, at=at))


def same(found, wanted) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype, key
        assert torch.equal(found[key], value), key


@pytest.fixture
def plain(tmp_path):
    """A folder that torch saved from one process."""
    state = {
        "model": {
            "w": torch.arange(6.0).reshape(2, 3),
            "scale": torch.tensor(2.5),
            "none": torch.zeros(0, 4),
        },
        "optim": {
            "state": {"w": {"exp_avg": torch.ones(2, 3)}},
            "param_groups": [{"lr": 0.1, "params": ["w"]}],
        },
        "step": 3,
    }
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    return tmp_path / "dcp"


def edit(folder, change) -> None:
    """Let ``change`` alter the Metadata of a folder, and save it again."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1", "grid", "each-rank"])
def test_the_model_is_found_and_equals_what_was_saved(kind, ranks):
    found = opened(ranks / kind)
    assert found.catalog.format == "dcp"
    same(found, truth.weights())


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1"])
def test_the_optimizer_is_read_where_it_is_asked_for(kind, ranks):
    everything = {f"model.{k}": v for k, v in truth.weights().items()} | truth.moments()
    same(opened(ranks / kind, at=""), everything)
    slots = {k.removeprefix("optim.state."): v for k, v in truth.moments().items()}
    same(opened(ranks / kind, at="optim.state"), slots)


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1"])
def test_what_is_no_tensor_is_listed_and_can_be_looked_at(kind, ranks):
    extras = opened(ranks / kind).extras
    assert list(extras) == ["optim", "step", "cfg"]
    assert extras["step"] == truth.STEP
    assert extras["cfg"] == truth.CFG
    optim = extras["optim"]
    assert optim["param_groups"][0]["lr"] == 0.1
    assert optim["state"]["embed.weight"]["exp_avg"] == Opaque("tensor")


@pytest.mark.parametrize("name", [".metadata", "__2_0.distcp"])
def test_any_of_its_files_finds_the_folder(name, ranks):
    assert registry.open_catalog(ranks / "fsdp2" / name).root == ranks / "fsdp2"


def test_ranks_that_noted_their_own_items(ranks, tmp_path):
    """torch's ``use_collectives=False``: a file of metadata a rank."""
    names = sorted(p.name for p in (ranks / "each-rank").glob("*.metadata"))
    assert names == [f"__{rank}.metadata" for rank in range(4)]
    found = opened(ranks / "each-rank" / "__2.metadata")
    assert found.extras["step"] == truth.STEP
    shutil.copytree(ranks / "each-rank", tmp_path / "copy")
    (tmp_path / "copy" / "__1.metadata").unlink()
    with pytest.raises(Damaged, match="a part of it is missing"):
        opened(tmp_path / "copy")


def test_chunks_without_rows_are_no_gap(ranks):
    """FSDP2 saves them where ranks outnumber rows: ``gain`` has one row on four ranks."""
    metadata = pickle.loads((ranks / "fsdp2" / ".metadata").read_bytes())
    sizes = [tuple(c.sizes) for c in metadata.state_dict_metadata["model.gain"].chunks]
    assert (0,) in sizes
    assert opened(ranks / "fsdp2")["gain"].shape == (1,)


def test_scalars_and_empty_tensors(plain):
    found = opened(plain)
    assert found["scale"].item() == 2.5
    assert found["none"].shape == (0, 4)


def test_an_empty_tensor_may_have_no_chunk_at_all(plain):
    edit(plain, lambda m: m.state_dict_metadata["model.none"].chunks.clear())
    assert opened(plain)["none"].shape == (0, 4)


def test_a_state_dict_at_the_root(tmp_path):
    state = {
        "layers.0.weight": torch.ones(2),
        "optimizer": {"state.w.exp_avg": torch.ones(2)},
        "train_state": 7,
    }
    dcp.save(state, checkpoint_id=tmp_path, no_dist=True)
    found = opened(tmp_path)
    assert list(found) == ["layers.0.weight"]
    assert list(found.extras) == ["optimizer", "train_state"]


def test_names_without_paths(plain):
    """A planner that does not flatten (Megatron's) notes none."""
    edit(plain, lambda m: setattr(m, "planner_data", None))
    found = opened(plain)
    assert list(found) == ["w", "scale", "none"]
    assert list(found.extras) == ["optim", "step"]
    assert list(opened(plain, at="optim")) == ["state.w.exp_avg"]


def test_an_application_around_the_model(tmp_path):
    dcp.save(
        {"app": {"model": {"w": torch.ones(2)}, "optim": {"m": torch.ones(2)}}},
        checkpoint_id=tmp_path,
        no_dist=True,
    )
    assert list(opened(tmp_path)) == ["w"]


def test_where_two_models_may_be_meant_both_are_named(tmp_path):
    dcp.save(
        {"policy": {"w": torch.ones(2)}, "critic": {"w": torch.zeros(2)}},
        checkpoint_id=tmp_path,
        no_dist=True,
    )
    with pytest.raises(UsageError, match="may be the state dict") as caught:
        opened(tmp_path)
    assert "--at" in str(caught.value)
    assert {p.split(":")[0] for p in caught.value.problems} == {"'policy'", "'critic'"}
    assert opened(tmp_path, at="critic")["w"].sum() == 0


def test_an_optimizer_alone_is_no_model(tmp_path):
    dcp.save({"optim": {"m": torch.ones(2)}}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.raises(NotACheckpoint):
        opened(tmp_path)
    assert list(opened(tmp_path, at="optim")) == ["m"]


def test_a_tensor_saved_by_columns(tmp_path):
    """torch keeps the strides of what it saves."""
    dcp.save({"w": torch.arange(6.0).reshape(2, 3).t()}, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(opened(tmp_path)["w"], torch.arange(6.0).reshape(2, 3).t())


def test_folders_of_every_file_layout(tmp_path):
    """One file an item, several files a rank (torch ``FileSystemWriter``)."""
    state = {f"w{i}": torch.full((3,), float(i)) for i in range(5)}
    for name, options in {"items": {"single_file_per_rank": False}, "threads": {"thread_count": 3}}.items():
        writer = dcp.FileSystemWriter(tmp_path / name, **options)
        dcp.save(state, storage_writer=writer, no_dist=True)
        assert len(list((tmp_path / name).glob("*.distcp"))) > 1
        same(opened(tmp_path / name), state)


def test_a_missing_file_is_named(ranks, tmp_path):
    shutil.copytree(ranks / "fsdp2", tmp_path / "copy")
    (tmp_path / "copy" / "__1_0.distcp").unlink()
    with pytest.raises(Damaged, match=r"files that \.metadata names are missing") as caught:
        opened(tmp_path / "copy")
    assert caught.value.problems == ("__1_0.distcp",)


def test_a_truncated_file_is_refused(plain):
    (file,) = plain.glob("*.distcp")
    os.truncate(file, file.stat().st_size - 100)
    with pytest.raises(Damaged, match="are wanted"):
        opened(plain, at="")


@pytest.mark.parametrize("name", [None, ".metadata.tmp"])
def test_a_save_that_did_not_finish_says_so(name, plain):
    """torch renames .metadata.tmp last."""
    if name:
        (plain / ".metadata").rename(plain / name)
    else:
        (plain / ".metadata").unlink()
    with pytest.raises(Damaged, match="the save did not finish"):
        opened(plain)


def test_a_file_of_another_save_is_warned_of(plain):
    (plain / "__7_0.distcp").write_bytes(b"old")
    assert "__7_0.distcp" in opened(plain).catalog.warnings[0]


def test_a_gap_between_chunks_is_named(ranks, tmp_path):
    shutil.copytree(ranks / "fsdp2", tmp_path / "copy")
    edit(tmp_path / "copy", lambda m: m.state_dict_metadata["model.embed.weight"].chunks.pop(1))
    with pytest.raises(Damaged, match="a part of it is missing") as caught:
        opened(tmp_path / "copy")
    assert "model.embed.weight" in str(caught.value)


def test_a_chunk_without_an_item_is_named(plain):
    edit(plain, lambda m: m.storage_data.pop(MetadataIndex("model.w", (0, 0))))
    with pytest.raises(Damaged, match="no file is said to hold") as caught:
        opened(plain)
    assert caught.value.problems == ("model.w at [0, 0]",)


def test_metadata_and_bytes_that_disagree_are_refused(plain):
    def swap(m) -> None:
        w, moment = (MetadataIndex(n, (0, 0)) for n in ("model.w", "model.none"))
        m.storage_data[w], m.storage_data[moment] = m.storage_data[moment], m.storage_data[w]

    edit(plain, swap)
    with pytest.raises(Damaged, match=r"f32\[0,4\] is stored where \.metadata says f32\[2,3\]"):
        opened(plain)


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "C:\\x", "..\\x", ""])
def test_a_path_out_of_the_folder_is_refused(file, plain):
    def escape(m) -> None:
        m.storage_data[MetadataIndex("model.w", (0, 0))] = _StorageInfo(file, 0, 10)

    edit(plain, escape)
    with pytest.raises(Hostile, match="outside of the folder"):
        opened(plain)


def test_transformed_items_are_refused(plain):
    def transform(m) -> None:
        info = m.storage_data[MetadataIndex("model.w", (0, 0))]
        info.transform_descriptors = ["zstd"]

    edit(plain, transform)
    with pytest.raises(InputError, match=r"stored through \['zstd'\]"):
        opened(plain)


def test_metadata_that_would_run_code_is_refused(plain, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    edit(plain, lambda m: setattr(m, "planner_data", Evil()))
    with pytest.raises(Hostile, match="can run code"):
        opened(plain)
    assert not (tmp_path / "ran").exists()


def test_an_item_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    dcp.save({"w": torch.ones(2), "config": Evil()}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = opened(tmp_path / "dcp")
    with pytest.raises(Hostile, match="can run code"):
        found.extras["config"]
    assert not (tmp_path / "ran").exists()


def test_another_pickle_is_not_metadata(tmp_path):
    (tmp_path / ".metadata").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(Damaged, match=r"not the metadata of a torch\.distributed\.checkpoint folder"):
        opened(tmp_path)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_altered_files_are_read_or_refused(name, plain):
    """Whatever a byte is changed to, there is an answer, and it is one of remap's own."""
    generator = random.Random(0)
    data = (plain / name).read_bytes()
    refused = 0
    for _ in range(150):
        altered = bytearray(data)
        at = generator.randrange(len(data))
        altered[at : at + generator.choice([0, 1, 1, 1, 3])] = generator.randbytes(
            generator.choice([0, 1, 1, 2])
        )
        (plain / name).write_bytes(altered)
        try:
            found = opened(plain, at=generator.choice([None, ""]))
            for entry in found.catalog.entries.values():
                lower(Take(entry))
            for extra in found.extras:
                assert extra
        except RemapError:
            refused += 1
    assert refused > 10


def test_reading_imports_no_torch(ranks):
    """Names, shapes and where bytes lie are read off headers."""
    import subprocess

    code = (
        "import sys; from pathlib import Path; from remap.formats import registry\n"
        f"assert len(registry.open_catalog(Path({str(ranks / 'fsdp2')!r})).entries) == 11\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
