"""Rank files of FSDP1 and FSDP2 that real torch saved, joined without a process group."""

from __future__ import annotations

import shutil
import zipfile

import pytest
import torch
from formats.dcp import torch_ranks as truth
from safetensors.torch import load_file

from remap import api
from remap.checkpoint import Checkpoint
from remap.errors import Damaged, Hostile, InputError, UsageError
from remap.formats import registry
from remap.formats.torch_fsdp.names import family, numbered
from remap.formats.torch_fsdp.placements import Placement, box_of
from remap.pickles.screen import screen
from remap.pickles.walk import walk

KINDS = ["dtensor", "sharded", "grid-dtensor"]


@pytest.fixture
def copy(ranks, tmp_path):
    """Name of a kind -> its files, to be tampered with."""
    return lambda kind: shutil.copytree(ranks / kind, tmp_path / kind)


@pytest.mark.parametrize("name", ["", "rank0.pt", "rank2.pt"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_ranks_are_joined_from_any_of_the_files(kind, name, ranks):
    found = Checkpoint(registry.open_catalog(ranks / kind / name))
    assert found.catalog.format == "torch-fsdp"
    assert [f.name for f in found.catalog.files] == [f"rank{r}.pt" for r in range(4)]
    wanted = truth.weights()
    assert found.keys() == wanted.keys()
    assert all(found[k].dtype == v.dtype and found[k].equal(v) for k, v in wanted.items())


@pytest.mark.parametrize("kind", KINDS)
def test_it_becomes_one_file(kind, ranks, tmp_path):
    api.convert(ranks / kind, tmp_path / "out.safetensors")
    assert all(load_file(tmp_path / "out.safetensors")[k].equal(v) for k, v in truth.weights().items())
    api.convert(ranks / kind, tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert all(found[k].equal(v) for k, v in truth.weights().items())


def test_ties_are_seen_through_the_parts(ranks):
    """FSDP2 saves tied weights over one storage on each rank."""
    assert dict(registry.open_catalog(ranks / "dtensor").aliases) == {"output.weight": "embed.weight"}


def test_what_lies_beside_the_model_can_be_looked_at(ranks):
    found = Checkpoint(registry.open_catalog(ranks / "grid-dtensor"))
    assert dict(found.extras) == {"epoch": 7}


def test_at_takes_all_below_it(ranks):
    """As in a DCP folder."""
    keys = registry.open_catalog(ranks / "grid-dtensor", at="").entries
    assert keys.keys() == {f"model.{k}" for k in truth.weights()}


@pytest.mark.parametrize("kind", ["local", "local-orig"])
def test_local_state_dicts_are_refused_with_the_way_out(kind, ranks):
    with pytest.raises(InputError, match="LOCAL_STATE_DICT") as caught:
        registry.open_catalog(ranks / kind)
    assert sorted(caught.value.problems) == ["_flat_param", "layers.0._flat_param"]
    assert "SHARDED_STATE_DICT" in str(caught.value.remedy)


def test_a_full_state_dict_is_a_torch_file(ranks):
    found = Checkpoint(registry.open_catalog(ranks / "full.pt"))
    assert found.catalog.format == "torch"
    assert all(found[k].equal(v) for k, v in truth.weights().items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [0, 3])
def test_a_missing_rank_is_named(rank, kind, copy):
    folder = copy(kind)
    (folder / f"rank{rank}.pt").unlink()
    with pytest.raises(Damaged, match=r"4 ranks saved this, the files of 1 are missing") as caught:
        registry.open_catalog(folder)
    assert caught.value.problems == (f"rank {rank}",)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_is_there_twice_is_named(kind, copy):
    folder = copy(kind)
    shutil.copy(folder / "rank1.pt", folder / "rank9.pt")
    with pytest.raises(Damaged, match="twice") as caught:
        registry.open_catalog(folder)
    assert caught.value.problems == ("rank 1: rank1.pt, rank9.pt",)


def test_the_pickle_knows_its_rank_better_than_the_name(copy):
    folder = copy("dtensor")
    for rank in range(4):
        (folder / f"rank{rank}.pt").rename(folder / f"part-{40 - rank}.pt")
    found = Checkpoint(registry.open_catalog(folder))
    assert all(found[k].equal(v) for k, v in truth.weights().items())


def older_meshes(folder, *, coordinate: bool) -> None:
    """Save the files again with meshes as torch 2.8 and earlier pickled them: a tensor of the ranks."""
    for rank in range(4):
        state = torch.load(folder / f"rank{rank}.pt", weights_only=False)
        for mesh in {
            id(m): m for v in state["model"].values() if (m := getattr(v, "device_mesh", None))
        }.values():
            at = list(mesh._coordinate_on_dim)
            tensor = torch.arange(4).view(2, 2) if len(at) == 2 else torch.tensor([rank % 2, rank % 2 + 2])
            mesh.__dict__.clear()
            mesh.__dict__.update({"device_type": "cpu", "mesh": tensor, "mesh_dim_names": None})
            if coordinate:
                mesh.__dict__["_coordinate_on_dim"] = at
        torch.save(state, folder / f"rank{rank}.pt")


def test_meshes_of_older_torch(copy):
    folder = copy("grid-dtensor")
    older_meshes(folder, coordinate=True)
    found = Checkpoint(registry.open_catalog(folder))
    assert all(found[k].equal(v) for k, v in truth.weights().items())


def test_a_mesh_without_a_coordinate_is_refused(copy):
    """The name of the file may be any; a guess would mix up the parts."""
    folder = copy("grid-dtensor")
    older_meshes(folder, coordinate=False)
    with pytest.raises(InputError, match="does not say where in its mesh it lies"):
        registry.open_catalog(folder)


def test_one_rank_is_whole_whatever_its_name_says(copy, tmp_path):
    """Steps of a run on one device are no ranks of each other."""
    folder = copy("dtensor")
    gain = torch.load(folder / "rank0.pt", weights_only=False)["gain"]  # one row, all of it on rank 0
    gain.device_mesh.__dict__.clear()
    gain.device_mesh.__dict__.update({"mesh": torch.tensor([0]), "_coordinate_on_dim": [0]})
    for name in ("model_step_100.pt", "model_step_200.pt", "model.pt"):
        torch.save({"gain": gain}, tmp_path / name)
        found = registry.open_catalog(tmp_path / name)
        assert ([f.name for f in found.files], found.format) == ([name], "torch-fsdp")


def test_files_of_two_models_are_named(copy, ranks):
    folder = copy("dtensor")
    shutil.copy(ranks / "grid-dtensor" / "rank3.pt", folder / "rank3.pt")
    with pytest.raises((Damaged, InputError, UsageError)):
        registry.open_catalog(folder)


def test_what_a_trainer_leaves_beside_the_model_does_not_disturb(copy):
    """verl names its files so: model_world_size_4_rank_0.pt, and optim_ and extra_state_ of the same."""
    folder = copy("dtensor")
    for rank in range(4):
        name = f"world_size_4_rank_{rank}.pt"
        shutil.copy(folder / f"rank{rank}.pt", folder / f"optim_{name}")
        (folder / f"rank{rank}.pt").rename(folder / f"model_{name}")
        torch.save({"rng": torch.zeros(3)}, folder / f"extra_state_{name}")
    catalog = registry.open_catalog(folder)
    assert [f.name for f in catalog.files] == [f"model_world_size_4_rank_{r}.pt" for r in range(4)]
    assert registry.open_catalog(folder / "optim_world_size_4_rank_2.pt").files[0].name.startswith("optim_")


def test_they_are_not_written(ranks, tmp_path):
    with pytest.raises(UsageError, match="read only"):
        api.convert(ranks / "dtensor", tmp_path / "out")


def test_reading_needs_no_torch(ranks):
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from remap.formats import registry\n"
        f"for kind in {KINDS!r}:\n"
        f"    assert len(registry.open_catalog(Path({str(ranks)!r}) / kind).entries) == 11\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("rows", [1, 5, 8, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_shard_is_what_torch_chunk_gives(rows, size):
    pieces = list(torch.arange(rows).chunk(size))
    for rank in range(size):
        (offset,), (count,) = box_of((rows,), (size,), (rank,), [Placement(0)])
        wanted = pieces[rank].tolist() if rank < len(pieces) else []
        assert list(range(offset, offset + count)) == wanted


def test_cuts_go_from_left_to_right_or_as_the_split_factor_says():
    """The tables in the docstring of torch ``_StridedShard``: 8 rows on a mesh of 2 x 2."""
    plain, strided = [Placement(0), Placement(0)], [Placement(0, 2), Placement(0)]
    ranks = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [box_of((8,), (2, 2), r, plain)[0] for r in ranks] == [(0,), (2,), (4,), (6,)]
    assert [box_of((8,), (2, 2), r, strided)[0] for r in ranks] == [(0,), (4,), (2,), (6,)]


def test_replicas_have_the_whole():
    assert box_of((4, 6), (2, 3), (1, 2), [Placement(None), Placement(1)]) == ((0, 4), (4, 2))


@pytest.mark.parametrize(
    ("mesh", "placements"), [((2,), []), ((2,), [Placement(3)]), ((2, 2), [Placement(0, 3), Placement(0)])]
)
def test_placements_that_can_not_be_are_refused(mesh, placements):
    with pytest.raises(ValueError, match="placement|split factor"):
        box_of((8,), mesh, (0,) * len(mesh), placements)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("rank0.pt", 0),
        ("model_world_size_8_rank_3.pt", 3),
        ("rank_3_step_100.pt", 3),
        ("pytorch_model_fsdp_12.bin", 12),
        ("model-2-Rank-07.pth", 7),
        ("model.pt", None),
    ],
)
def test_the_number_of_a_rank_is_found_in_its_name(name, number):
    found = numbered(name)
    assert (found.number if found else None) == number


def test_ranks_count_as_numbers(tmp_path):
    names = ["rank10.pt", "rank2.pt", "rank1.pt", "rank1.pt.bak", "other2.pt"]
    for name in names:
        (tmp_path / name).touch()
    assert [p.name for p in family(tmp_path / "rank2.pt")] == ["rank1.pt", "rank2.pt", "rank10.pt"]


def test_getattr_is_a_nested_class_and_nothing_else(ranks):
    """ShardedTensor.ProcessGroupState is named by getattr below protocol 4; a getattr that reaches further is
    not let through."""
    with zipfile.ZipFile(ranks / "sharded" / "rank0.pt") as z:
        (name,) = (n for n in z.namelist() if n.endswith("data.pkl"))
        stream = z.read(name)
    assert b"c__builtin__\ngetattr\n" in stream
    assert screen(walk(stream, where="f"), where="f") == ()
    reaching = stream.replace(b"X\x11\x00\x00\x00ProcessGroupState", b"X\x11\x00\x00\x00__init__ .globals")
    assert reaching != stream
    with pytest.raises(Hostile, match="can run code"):
        screen(walk(reaching, where="f"), where="f")
