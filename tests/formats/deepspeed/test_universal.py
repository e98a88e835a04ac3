"""Universal checkpoints: a folder for every weight, renamed with its moments; DeepSpeed's own, and those of
every ZeRO run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from formats.suite import FormatSuite

import remap
from remap.errors import Damaged, InputError, UsageError
from remap.formats import registry
from remap.types import Catalog

FORMAT = "deepspeed-universal"
RENAME = """
remap: 1
pack: test/rename
version: 1.0.0
title: One name for another
evidence: [{project: test}]
stages:
  - rules:
      - {id: out, from: "out.{x}", to: "wrapped.out.{x}"}
      - keep: "**"
"""


class TestUniversal(FormatSuite):
    name = FORMAT


def load(file: Path) -> object:
    return torch.load(file, weights_only=True)


def tensor_of(entry) -> torch.Tensor:
    return remap.open(Catalog("", Path(), (), {"x": entry}))["x"]


@pytest.fixture
def theirs(tmp_path) -> Path:
    """A folder as DeepSpeed's ``ds_to_universal`` makes it of ZeRO-1 or 2."""
    step = tmp_path / "run/global_step5"
    for key, shape in {"out.weight": (2, 3), "out.bias": (2,)}.items():
        folder = step / "zero" / key
        folder.mkdir(parents=True)
        for i, slot in enumerate(("fp32", "exp_avg", "exp_avg_sq")):
            held = {"cat_dim": 1, "vocab_tensor": True, "param": torch.full(shape, float(i))}
            torch.save(held, folder / f"{slot}.pt")
        torch.save(torch.tensor(5.0), folder / "step.pt")
    (step / "zero/buffer").mkdir()
    torch.save({"param": torch.arange(4)}, step / "zero/buffer/fp32.pt")
    groups = [{"lr": 0.1, "params": [0]}, {"lr": 0.2, "params": [1]}]
    state = {"ds_version": "0.19.8", "dynamic_loss_scale": False, "param_groups": groups}
    torch.save(state, step / "zero/optimizer_state.pt")
    shapes = [{"out.weight": torch.Size([2, 3])}, {"out.bias": torch.Size([2])}]
    model = {"module": None, "param_shapes": shapes, "global_steps": 5, "note": "client"}
    torch.save(model, step / "mp_rank_00_model_states.pt")
    (step.parent / "latest_universal").write_text("global_step5")
    return step


def test_weights_moments_steps_and_groups_are_read(theirs):
    catalog = registry.open_catalog(theirs.parent)
    assert {k: str(e.spec) for k, e in catalog.entries.items()} == {
        "buffer": "i64[4]",
        "out.bias": "f32[2]",
        "out.weight": "f32[2,3]",
    }
    state = catalog.optimizer()
    assert tensor_of(state.tensors["out.weight"]["exp_avg_sq"]).equal(torch.full((2, 3), 2.0))
    assert tensor_of(state.tensors["out.bias"]["step"]).item() == 5
    assert state.groups == [{"lr": 0.1, "params": ["out.weight"]}, {"lr": 0.2, "params": ["out.bias"]}]
    assert catalog.warnings == ()


def test_flat_tensors_of_zero3_get_their_shapes_and_the_one_step(theirs):
    """``ds_to_universal`` writes no dict, no shape and no step for ZeRO-3."""
    for file in theirs.glob("zero/out.*/*.pt"):
        held = load(file)
        torch.save(held["param"].flatten(), file) if isinstance(held, dict) else file.unlink()
    state = load(theirs / "zero/optimizer_state.pt")
    state["optimizer_state_dict"] = {"state": {0: {"step": torch.tensor(5.0)}}}
    torch.save(state, theirs / "zero/optimizer_state.pt")
    (theirs / "mp_rank_00_model_states.pt").rename(theirs / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    catalog = registry.open_catalog(theirs)
    assert catalog.format == FORMAT
    assert str(catalog.entries["out.weight"].spec) == "f32[2,3]"
    held = catalog.optimizer().tensors["out.weight"]
    assert str(held["exp_avg"].spec) == "f32[2,3]"
    assert tensor_of(held["step"]).item() == 5


def test_a_renamed_folder_has_its_moments_and_what_is_said_of_ranks(theirs, tmp_path):
    (tmp_path / "rename.yaml").write_text(RENAME)
    receipt = remap.convert(theirs, tmp_path / "new", [tmp_path / "rename.yaml"])
    assert (receipt.format, receipt.left_behind) == (FORMAT, [])
    step = tmp_path / "new/global_step5"
    assert (step.parent / "latest_universal").read_text() == "global_step5"
    names = {p.name for p in (step / "zero").iterdir()}
    assert names == {"wrapped.out.weight", "wrapped.out.bias", "buffer", "optimizer_state.pt"}
    for old in theirs.glob("zero/out.*/*.pt"):
        new = load(step / "zero" / f"wrapped.{old.parent.name}" / old.name)
        was = load(old)
        if isinstance(was, dict):
            assert (new["cat_dim"], new["vocab_tensor"]) == (1, True)
            new, was = new["param"], was["param"]
        assert new.equal(was)
    model = load(step / "mp_rank_00_model_states.pt")
    assert (model["note"], model["global_steps"], model["param_shapes"]) == ("client", 5, None)
    state = load(step / "zero/optimizer_state.pt")
    assert [g["params"] for g in state["param_groups"]] == [["wrapped.out.weight"], ["wrapped.out.bias"]]


def test_there_and_back_is_the_same(theirs, tmp_path):
    (tmp_path / "rename.yaml").write_text(RENAME)
    remap.convert(theirs, tmp_path / "new", [tmp_path / "rename.yaml"])
    remap.convert(tmp_path / "new", tmp_path / "back", [tmp_path / "rename.yaml"], inverse=True)
    for old in theirs.glob("zero/*/*.pt"):
        new, was = load(tmp_path / "back/global_step5/zero" / old.parent.name / old.name), load(old)
        assert (new["param"].equal(was["param"])) if isinstance(was, dict) else new.equal(was)
    assert not remap.diff(theirs, tmp_path / "back")


def test_a_damaged_moment_is_found_by_verify(theirs, tmp_path):
    remap.convert(theirs, tmp_path / "new")
    file = tmp_path / "new/global_step5/zero/out.weight/exp_avg.pt"
    data = bytearray(file.read_bytes())
    place = data.index(torch.full((2, 3), 1.0).numpy().tobytes())
    data[place] ^= 1
    file.write_bytes(data)
    _, problems = remap.verify(tmp_path / "new")
    assert any("exp_avg.pt" in p for p in problems)


def test_without_the_optimizer_there_are_weights_only(theirs, tmp_path):
    receipt = remap.convert(theirs, tmp_path / "new", optimizer=False)
    assert receipt.left_behind == ["optimizer"]
    assert {p.name for p in tmp_path.glob("new/*/zero/*/*.pt")} == {"fp32.pt"}


def test_weights_in_16_bits_are_not_written_as_fp32(zero_runs, tmp_path):
    with pytest.raises(UsageError, match=r"fp32 weights are wanted[\s\S]*--weights zero"):
        remap.convert(zero_runs / "zero1-bf16-aligned", tmp_path / "out", to=FORMAT)
    with pytest.raises(UsageError, match=r"kept in 32 bits here[\s\S]*--dtype"):
        remap.convert(zero_runs / "zero1", tmp_path / "out", to=FORMAT, at="zero", dtype="bf16")


def test_frozen_weights_and_buffers_come_along_without_moments(zero_runs, tmp_path):
    remap.convert(zero_runs / "zero3-bf16", tmp_path / "out", to=FORMAT)
    for name in ("frozen.weight", "table", "head.weight"):
        (file,) = (tmp_path / "out/global_step3/zero" / name).iterdir()
        assert (file.name, load(file).keys()) == ("fp32.pt", {"param"})


def test_stages_of_a_pipeline_share_a_weight_under_its_own_name(zero_runs, tmp_path):
    remap.convert(zero_runs / "pipeline", tmp_path / "out", to=FORMAT, at="zero")
    step = tmp_path / "out/global_step3"
    assert (step / "zero/tied_modules.embed.embed.weight/exp_avg.pt").is_file()
    assert [p.name for p in sorted(step.glob("*.pt"))] == [f"mp_rank_0{i}_model_states.pt" for i in (0, 1)]
    assert "0.embed.weight" in registry.open_catalog(step).entries


def test_a_dcp_folder_with_an_optimizer_becomes_one(zero_runs, tmp_path):
    remap.convert(zero_runs / "zero1", tmp_path / "dcp", to="dcp", at="zero")
    remap.convert(tmp_path / "dcp", tmp_path / "out", to=FORMAT)
    remap.convert(zero_runs / "zero1", tmp_path / "straight", to=FORMAT, at="zero")
    mine, theirs = tmp_path / "out/global_step0/zero", tmp_path / "straight/global_step3/zero"
    files = [p.relative_to(theirs) for p in theirs.glob("*/*.pt")]
    assert len(files) == 18 + 14 * 3
    for file in files:
        a, b = load(mine / file), load(theirs / file)
        assert a.equal(b) if file.name == "step.pt" else a["param"].equal(b["param"])


def test_latest_universal_stands_for_the_step_that_it_names(theirs):
    assert registry.open_catalog(theirs.parent / "latest_universal").root == theirs


def test_latest_universal_must_name_a_folder(theirs):
    (theirs.parent / "latest_universal").write_text("global_step6")
    with pytest.raises(Damaged, match="names the step 'global_step6'"):
        registry.open_catalog(theirs.parent)


def test_groups_that_nobody_names_are_not_guessed(theirs):
    (theirs / "mp_rank_00_model_states.pt").unlink()
    catalog = registry.open_catalog(theirs)
    assert "no mp_rank_XX_model_states.pt: DeepSpeed's load_checkpoint needs one" in catalog.warnings
    with pytest.raises(InputError, match=r"parameter group[\s\S]*out\.bias"):
        catalog.optimizer()


def test_a_weight_without_its_folder_is_named(theirs):
    (theirs / "zero/out.bias/fp32.pt").unlink()
    with pytest.raises(Damaged, match=r"weights have no folder\n  out\.bias"):
        registry.open_catalog(theirs)


def test_a_moment_that_another_weight_of_the_group_has_is_missed(theirs):
    for group, shapes in (("param_groups", None), (None, "param_shapes")):
        file = theirs / ("zero/optimizer_state.pt" if group else "mp_rank_00_model_states.pt")
        held = load(file)
        if group:
            held[group] = [{"lr": 0.1, "params": [0]}]
        if shapes:
            held[shapes] = [{k: v for names in held[shapes] for k, v in names.items()}]
        torch.save(held, file)
    (theirs / "zero/out.bias/exp_avg.pt").unlink()
    catalog = registry.open_catalog(theirs)
    with pytest.raises(Damaged, match=r"moments are missing\n  out\.bias: exp_avg\n"):
        catalog.optimizer()


def test_keys_that_are_no_names_for_folders_are_refused(theirs, tmp_path):
    (tmp_path / "slash.yaml").write_text(RENAME.replace("wrapped.out", "wrapped/out"))
    with pytest.raises(UsageError, match=r"no names for folders\n  wrapped/out"):
        remap.convert(theirs, tmp_path / "new", [tmp_path / "slash.yaml"])
