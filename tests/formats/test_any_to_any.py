"""Every written format becomes every other, and nothing changes on the way."""

from __future__ import annotations

import pytest
import torch

from remap import api

FORMATS = ("safetensors", "torch", "dcp", "metaseq")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Name of a format -> a checkpoint of it; numbers of several types, tied ones, one of no dimension."""
    folder = tmp_path_factory.mktemp("formats")
    w = torch.arange(12.0).reshape(3, 4)
    tensors = {"a.w": w, "tied": w, "h": w.bfloat16(), "n": torch.tensor([1, 2]), "s": torch.tensor(2.5)}
    torch.save(tensors, folder / "source.pt")
    for name in FORMATS:
        api.convert(folder / "source.pt", folder / name, to=name)
    return folder


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_one_becomes_the_other(first, second, written, tmp_path):
    api.convert(written / first, tmp_path / "out", to=second)
    assert api.catalog(tmp_path / "out").format == second
    assert api.diff(written / "source.pt", tmp_path / "out") == []


@pytest.mark.parametrize(
    "kind", ["dtensor", "sharded", "hf", "grid", "fsdp1", "fsdp2", "each-rank", "full.pt"]
)
@pytest.mark.parametrize("name", FORMATS)
def test_what_ranks_saved_becomes_any(name, kind, ranks, tmp_path):
    optimizer = name != "metaseq"  # counts parameters, in an order that it knows of OPT only
    api.convert(ranks / kind, tmp_path / "out", to=name, optimizer=optimizer)
    assert api.diff(ranks / kind, tmp_path / "out") == []
