"""A .pt file of all of a DCP folder is nested as torch's own conversion nests it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from formats.dcp import torch_ranks as truth
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

from remap import api
from remap.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two nested state dicts differ."""
    if isinstance(a, torch.Tensor):
        return [] if isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.equal(b) else [path]
    if isinstance(a, dict):
        if not isinstance(b, dict) or a.keys() != b.keys():
            return [f"{path}: {list(a)} / {list(b) if isinstance(b, dict) else b}"]
        return [d for k in a for d in differences(a[k], b[k], f"{path}.{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}.{i}")
        ]
    return [] if a == b and type(a) is type(b) else [f"{path}: {a!r} / {b!r}"]


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1", "grid"])
def test_everything_is_what_dcp_to_torch_save_makes(kind, ranks, tmp_path):
    receipt = api.convert(ranks / kind, tmp_path / "out.pt", at="")
    assert receipt.left_behind == []
    dcp_to_torch_save(ranks / kind, tmp_path / "wanted.pt")
    wanted = torch.load(tmp_path / "wanted.pt", weights_only=False)
    assert differences(wanted, torch.load(tmp_path / "out.pt", weights_only=True)) == []
    assert api.verify(tmp_path / "out.pt")[1] == []


def test_the_optimizer_alone_is_below_its_name(ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out.pt", at="optim")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert list(found) == ["optim"]
    assert found["optim"]["state"]["gain"]["exp_avg"].equal(truth.moments()["optim.state.gain.exp_avg"])
    assert found["optim"]["param_groups"][0]["lr"] == 0.1


def test_one_dict_stays_one_dict(ranks, tmp_path):
    for at in (None, "model"):
        api.convert(ranks / "fsdp2", tmp_path / f"{at}.pt", at=at)
        assert torch.load(tmp_path / f"{at}.pt", weights_only=True).keys() == truth.weights().keys()


def test_objects_of_classes_are_named_and_stay_behind(tmp_path):
    state = {"model": {"w": torch.ones(2)}, "odd": {"c": complex(1, 2)}, "step": 3}
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    receipt = api.convert(tmp_path / "dcp", tmp_path / "out.pt", at="")
    assert receipt.left_behind == ["odd.c"]
    assert torch.load(tmp_path / "out.pt", weights_only=True)["step"] == 3


def test_the_nested_file_opens_like_the_folder(ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out.pt", at="")
    assert not api.diff(api.catalog(ranks / "fsdp2", at=""), api.catalog(tmp_path / "out.pt", at=""))
    assert not api.diff(ranks / "fsdp2", tmp_path / "out.pt")
    api.convert(tmp_path / "out.pt", tmp_path / "half.pt", at="", dtype="f16")
    found = torch.load(tmp_path / "half.pt", weights_only=True)
    assert found["optim"]["state"]["gain"]["exp_avg"].dtype == torch.float16
    assert found["step"] == truth.STEP
    torch_save_to_dcp(tmp_path / "half.pt", tmp_path / "again")
    assert not api.diff(api.catalog(tmp_path / "half.pt", at=""), api.catalog(tmp_path / "again", at=""))


def test_keys_in_nested_dicts_are_not_renamed(ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out.pt", at="")
    pack = tmp_path / "p.yaml"
    pack.write_text(
        "remap: 1\npack: test/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n"
        "      - {id: all, from: '{rest:path}', to: 'net.{rest}'}\n"
    )
    with pytest.raises(UsageError, match="keeps its keys"):
        api.convert(tmp_path / "out.pt", tmp_path / "b.pt", [pack], at="")


def test_a_nested_file_takes_its_optimizer_back_to_a_folder(ranks, tmp_path):
    api.convert(ranks / "fsdp2", tmp_path / "out.pt", at="")
    receipt = api.convert(tmp_path / "out.pt", tmp_path / "dcp", to="dcp", ranks=2)
    assert receipt.left_behind == ["step", "cfg"]
    assert not api.diff(api.catalog(ranks / "fsdp2", at=""), api.catalog(tmp_path / "dcp", at=""))
    groups = [api.open(f).extras["optim"]["param_groups"] for f in (ranks / "fsdp2", tmp_path / "dcp")]
    assert groups[0] == groups[1]
