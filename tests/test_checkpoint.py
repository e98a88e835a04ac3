"""remap.open: a lazy mapping of key to tensor, with torch and without."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from formats.suite import random_tensors
from safetensors.torch import save_file

import remap
from remap import api
from remap.checkpoint import Checkpoint
from remap.dtypes import dtype as find_dtype
from remap.errors import Damaged, UsageError
from remap.expr import Cast, Concat, Permute, Reshape, Same, Slice, Take
from remap.expr.blocks import evaluate
from remap.pickles.graph import Opaque
from remap.types import Derived, Entry


@pytest.fixture
def file(tmp_path) -> Path:
    """A torch file with tied, transposed, 0-dim and empty tensors, and an optimizer beside them."""
    w = torch.arange(12.0).reshape(3, 4)
    model = {
        "w": w,
        "tied": w,
        "t": torch.arange(6.0).reshape(2, 3).t(),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "n": torch.tensor([1, 2]),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 4),
    }
    beside = {"step": 7, "lr": [0.1], "args": argparse.Namespace(depth=2), "ema": {"w": w + 1}}
    torch.save({"model": model, "optimizer": {"state": {0: {"m": w * 2}}}, **beside}, tmp_path / "file.pt")
    return tmp_path / "file.pt"


def test_it_is_a_mapping_in_the_order_of_the_file(file):
    ck = remap.open(file)
    assert list(ck) == ["w", "tied", "t", "half", "n", "scalar", "none"]
    assert (len(ck), "w" in ck, "x" in ck) == (7, True, False)
    assert str(ck.spec("t")) == "f32[3,2]"
    with pytest.raises(KeyError):
        ck["x"]
    with pytest.raises(KeyError):
        ck.spec("x")
    assert "7 tensors" in repr(ck)


def test_tensors_are_those_that_were_saved(file):
    ck = remap.open(file)
    for key, value in torch.load(file, weights_only=False)["model"].items():
        assert (ck[key].dtype, ck[key].shape) == (value.dtype, value.shape)
        assert torch.equal(ck[key], value), key


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_every_type_comes_back_bit_by_bit(suffix, tmp_path):
    tensors = random_tensors()
    path = tmp_path / f"all{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(tensors, path)
    ck = remap.open(path)
    for key, value in tensors.items():
        assert ck[key].dtype == value.dtype
        assert ck[key].reshape(-1).view(torch.uint8).equal(value.reshape(-1).view(torch.uint8)), key


def test_numpy_arrays_where_numpy_has_the_type(tmp_path):
    tensors = {k: v for k, v in random_tensors().items() if "float8" not in k and "bfloat16" not in k}
    save_file(tensors, tmp_path / "all.safetensors")
    ck = remap.open(tmp_path / "all.safetensors")
    for key, value in tensors.items():
        found = ck.numpy(key)
        assert found.dtype == value.numpy().dtype
        assert found.shape == tuple(value.shape)
        assert found.tobytes() == value.numpy().tobytes(), key


def test_numpy_reads_a_tensor_that_lies_by_columns(file):
    assert np.array_equal(remap.open(file).numpy("t"), np.arange(6.0).reshape(2, 3).T)


def test_numpy_has_no_bfloat16(file):
    with pytest.raises(UsageError, match="NumPy has no bfloat16") as caught:
        remap.open(file).numpy("half")
    assert caught.value.where == "half"
    assert "checkpoint[key]" in str(caught.value)


def test_what_is_read_may_be_written_to(file):
    ck = remap.open(file)
    ck["w"].zero_()
    ck.numpy("w")[:] = 0
    assert ck["w"].sum() == 66


def test_a_state_dict_loads(file):
    found = remap.open(file).state_dict()
    assert found.keys() == torch.load(file, weights_only=False)["model"].keys()
    assert found["tied"] is found["w"]
    layer = torch.nn.Linear(4, 3, bias=False)
    layer.load_state_dict({"weight": found["w"]})


@pytest.mark.parametrize("dtype", ["f16", "float16", torch.float16])
def test_a_cast_state_dict_leaves_integers_alone(dtype, file):
    found = remap.open(file).state_dict(device="cpu", dtype=dtype)
    assert {k: v.dtype for k, v in found.items() if v.dtype != torch.float16} == {"n": torch.int64}
    assert found["tied"] is found["w"]


def test_a_state_dict_goes_to_a_device(file):
    assert remap.open(file).state_dict(device="meta")["w"].device.type == "meta"


def test_floats_are_cast_to_no_type_without_fractions(file):
    with pytest.raises(UsageError, match="weights are not cast to int8"):
        remap.open(file).state_dict(dtype="int8")


def test_tensors_are_read_when_they_are_asked_for(tmp_path):
    save_file({"w": torch.zeros(4)}, tmp_path / "a.safetensors")
    ck = remap.open(tmp_path / "a.safetensors")
    save_file({"w": torch.ones(4)}, tmp_path / "b.safetensors")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "b.safetensors").read_bytes())
    assert ck["w"].sum() == 4


def test_bytes_that_do_not_have_their_checksum_are_refused(file):
    data = file.read_bytes()
    at = data.index(torch.arange(12.0).numpy().tobytes())
    ck = remap.open(file)
    file.write_bytes(data[:at] + b"\1" + data[at + 1 :])
    with pytest.raises(Damaged, match="CRC-32") as caught:
        ck["w"]
    assert caught.value.where.endswith("file.pt: w")
    assert ck["n"].tolist() == [1, 2]


def test_extras_are_plain_values(file):
    extras = remap.open(file).extras
    assert list(extras) == ["optimizer", "step", "lr", "args", "ema"]
    assert len(extras) == 5
    assert (extras["step"], extras["lr"]) == (7, [0.1])
    assert extras["optimizer"] == {"state": {0: {"m": Opaque("tensor")}}}
    assert extras["args"] == Opaque("argparse.Namespace")
    with pytest.raises(KeyError):
        extras["model"]
    assert "optimizer, step" in repr(extras)


def test_extras_of_deepspeed(tmp_path):
    step = tmp_path / "global_step1"
    step.mkdir()
    torch.save({"module": {"w": torch.ones(2)}, "args": {"layers": 2}}, step / "mp_rank_00_model_states.pt")
    assert dict(remap.open(tmp_path).extras) == {"args": {"layers": 2}}


def test_at_opens_another_state_dict(file):
    assert remap.open(file, at="ema")["w"].sum() == 66 + 12


def test_the_flow_takes_a_checkpoint(file, tmp_path):
    ck = remap.open(file)
    assert isinstance(ck, Checkpoint)
    assert remap.open(ck).catalog is ck.catalog
    assert remap.open(ck.catalog).catalog is ck.catalog
    assert len(remap.plan(ck).outputs) == len(ck)
    remap.convert(ck, tmp_path / "out.safetensors")
    assert remap.diff(ck, tmp_path / "out.safetensors") == []
    assert remap.verify(remap.open(tmp_path / "out.safetensors"), against=ck)[1] == []
    assert api.catalog(file).entries == ck.catalog.entries


def test_a_key_list_has_specs_only(tmp_path):
    (tmp_path / "keys.json").write_text('{"w": [[2], "float32"]}')
    ck = remap.open(tmp_path / "keys.json")
    assert str(ck.spec("w")) == "f32[2]"
    for read in (ck.__getitem__, ck.numpy):
        with pytest.raises(UsageError, match="only the key list is known"):
            read("w")


def derived(file, make) -> Checkpoint:
    """A checkpoint of one tensor that no file holds as it is."""
    catalog = api.catalog(file)
    expr = make({k: Take(e) for k, e in catalog.entries.items()})
    return Checkpoint(replace(catalog, entries={"d": Entry("d", expr.spec, Derived(expr))}))


MOVES = {
    "columns": lambda t: Concat((t["w"], Slice(t["w"], 1, 1, 3)), 1),
    "other axes": lambda t: Permute(Reshape(t["w"], (2, 3, 2)), (2, 0, 1)),
    "copies": lambda t: Same((Slice(t["t"], 0, 0, 2), Slice(t["t"], 0, 0, 2))),
}


@pytest.mark.parametrize("name", MOVES)
def test_tensors_in_pieces_are_put_together(name, file, monkeypatch):
    ck = derived(file, MOVES[name])
    wanted = evaluate(MOVES[name]({k: Take(e) for k, e in api.catalog(file).entries.items()}))
    assert torch.equal(ck["d"], wanted)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert np.array_equal(ck.numpy("d"), wanted.numpy())


def test_copies_that_do_not_agree_are_refused(file):
    ck = derived(file, lambda t: Same((Slice(t["w"], 1, 0, 1), Slice(t["w"], 1, 1, 2))))
    with pytest.raises(Damaged, match="do not agree"):
        ck["d"]


def test_what_is_computed_takes_no_torch(file, monkeypatch):
    ck = derived(file, lambda t: Cast(t["w"], find_dtype("float64")))
    wanted = ck["d"]
    assert wanted.dtype == torch.float64
    monkeypatch.setitem(sys.modules, "torch", None)
    assert np.array_equal(ck.numpy("d"), wanted.numpy())


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import numpy as np
import remap
from remap.errors import UsageError
root, ranks = sys.argv[1:]
for name in ("file.pt", "file.safetensors", "dcp"):
    ck = remap.open(f"{root}/{name}")
    assert ck.numpy("w").tolist() == np.arange(12.0).reshape(3, 4).tolist(), name
    assert ck.numpy("t").tolist() == np.arange(6.0).reshape(2, 3).T.tolist(), name
    assert ck.numpy("scalar") == 2.5
    for read in (lambda: ck["w"], ck.state_dict):
        try:
            read()
        except UsageError as e:
            assert "torch is not installed" in str(e)
        else:
            raise AssertionError(name)
for kind in ("fsdp2", "fsdp1", "grid", "dtensor", "sharded", "hf"):
    assert remap.open(f"{ranks}/{kind}").numpy("layers.1.weight").shape == (3, 10)
"""


def test_numpy_needs_no_torch(file, ranks, tmp_path):
    remap.convert(file, tmp_path / "file.safetensors")
    remap.convert(file, tmp_path / "dcp", to="dcp")
    command = [sys.executable, "-c", WITHOUT_TORCH, tmp_path, ranks]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
