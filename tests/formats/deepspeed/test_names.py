"""DeepSpeed's file names are parsed as numbers."""

from __future__ import annotations

import pytest

from remap.errors import Damaged
from remap.formats.deepspeed.names import LayerFile, layer_files, layer_of, rank_of, step_folders


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer_02-model_00-model_states.pt", LayerFile(2, 0)),
        ("layer_100-model_01-model_states.pt", LayerFile(100, 1)),
        ("layer_00-model_states.pt", LayerFile(0, None)),
        ("layer_02-model_00-model_states.pt.tmp", None),
        ("xlayer_02-model_00-model_states.pt", None),
        ("layer_2a-model_states.pt", None),
    ],
)
def test_a_layer_file_says_layer_and_rank(name, expected):
    assert layer_of(name) == expected


def test_a_rank_file_says_its_rank():
    assert rank_of("mp_rank_03_model_states.pt") == 3
    assert rank_of("zero_pp_rank_0_mp_rank_00_model_states.pt") is None


def test_layers_sort_as_numbers(tmp_path):
    names = [f"layer_{i:02d}-model_00-model_states.pt" for i in (100, 10, 2, 11)]
    for name in names:
        (tmp_path / name).touch()
    assert [layer_of(p.name).index for p in layer_files(tmp_path)] == [2, 10, 11, 100]


def test_latest_leads_to_the_step(tmp_path):
    step = tmp_path / "global_step7"
    step.mkdir()
    (step / "layer_00-model_00-model_states.pt").touch()
    (tmp_path / "latest").write_text("global_step7\n")
    assert step_folders(tmp_path) == [step]
    assert step_folders(tmp_path / "latest") == [step]
    assert step_folders(step / "layer_00-model_00-model_states.pt") == [step]


@pytest.mark.parametrize("tag", ["global_step9", "../elsewhere", ""])
def test_latest_that_leads_nowhere_is_damage(tmp_path, tag):
    (tmp_path / "latest").write_text(tag)
    with pytest.raises(Damaged, match="which is no folder here"):
        step_folders(tmp_path)
