"""DeepSpeed's folders: the number in a file's name is part of the key; what is unclear is refused."""

from __future__ import annotations

import pytest
import torch
from formats.suite import FormatSuite, source_of, write

from remap.errors import Damaged, InputError, UsageError
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry
from remap.formats.base import WriteOptions
from remap.formats.deepspeed import module
from remap.formats.deepspeed import pipeline as pipeline_format


class TestDeepSpeedPipeline(FormatSuite):
    name = "deepspeed-pipeline"


class TestDeepSpeed(FormatSuite):
    name = "deepspeed"


@pytest.fixture
def pipeline(tmp_path):
    """Two layers with a gap, and a third with three digits, as DeepSpeed lays them out."""
    step = tmp_path / "run/global_step3"
    step.mkdir(parents=True)
    for i in (0, 2, 100):
        torch.save(
            {"norm.weight": torch.full((4,), float(i))}, step / f"layer_{i:02d}-model_00-model_states.pt"
        )
    torch.save({"module": None, "mp_world_size": 1, "dp_world_size": 1}, step / "mp_rank_00_model_states.pt")
    (tmp_path / "run/latest").write_text("global_step3")
    return step


def test_the_number_of_the_file_is_part_of_the_key(pipeline):
    catalog = registry.open_catalog(pipeline.parent)
    assert list(catalog.entries) == ["0.norm.weight", "2.norm.weight", "100.norm.weight"]
    assert evaluate(Take(catalog.entries["100.norm.weight"])).equal(torch.full((4,), 100.0))
    assert catalog.warnings == ()


def test_files_without_a_rank_in_their_name_are_read(pipeline):
    for path in pipeline.glob("layer_*"):
        path.rename(pipeline / path.name.replace("-model_00", ""))
    assert set(registry.open_catalog(pipeline).entries) == {
        "0.norm.weight",
        "2.norm.weight",
        "100.norm.weight",
    }


def test_a_file_left_of_another_run_is_named(pipeline):
    # DeepSpeed takes the number of a layer's files for the number of ranks, and would merge both
    torch.save({"norm.weight": torch.ones(4)}, pipeline / "layer_02-model_01-model_states.pt")
    with pytest.raises(Damaged, match=r"ranks 0 to 1\n  layer 0: rank 0\n  layer 100: rank 0") as e:
        registry.open_catalog(pipeline)
    assert e.value.exit_code == 3


@pytest.mark.parametrize(
    "said",
    [
        {"mp_world_size": 1},
        {"mp_world_size": 2, "args": {"model_parallel_size": 1}},
        {"mp_world_size": 2, "checkpoint_parallel_dimensions": {"pp_degree": 2, "tp_degree": 1}},
    ],
)
def test_files_of_all_layers_left_of_another_run_are_refused(pipeline, said):
    for i in (0, 2, 100):
        torch.save({"norm.weight": torch.ones(4)}, pipeline / f"layer_{i:02d}-model_01-model_states.pt")
    torch.save({"module": None, **said}, pipeline / "mp_rank_00_model_states.pt")
    with pytest.raises(
        Damaged, match=r"2 tensor-parallel ranks, and mp_rank_00_model_states.pt says otherwise"
    ):
        registry.open_catalog(pipeline)


def test_ranks_wait_to_be_merged(pipeline):
    for i in (0, 2, 100):
        torch.save({"norm.weight": torch.ones(4)}, pipeline / f"layer_{i:02d}-model_01-model_states.pt")
    torch.save({"module": None, "mp_world_size": 2}, pipeline / "mp_rank_00_model_states.pt")
    catalog = registry.open_catalog(pipeline)
    assert [list(t) for t in catalog.ranks] == [["0.norm.weight", "2.norm.weight", "100.norm.weight"]] * 2
    assert "2.norm.weight@1" in catalog.entries
    assert "2.norm.weight" not in catalog.entries


def test_ranks_hold_the_same_keys(pipeline):
    for i in (0, 2, 100):
        torch.save({"norm.scale": torch.ones(4)}, pipeline / f"layer_{i:02d}-model_01-model_states.pt")
    torch.save({"module": None, "mp_world_size": 2}, pipeline / "mp_rank_00_model_states.pt")
    with pytest.raises(Damaged, match=r"rank 0 has no 0\.norm\.scale"):
        registry.open_catalog(pipeline)


def test_two_files_for_one_layer_are_refused(pipeline):
    torch.save({"norm.weight": torch.ones(4)}, pipeline / "layer_002-model_00-model_states.pt")
    with pytest.raises(
        Damaged, match=r"layer 2, rank 0: layer_002-model_00-model_states\.pt, layer_02-model_00"
    ):
        registry.open_catalog(pipeline)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: (s / "mp_rank_00_model_states.pt").unlink(), "no mp_rank_XX_model_states.pt"),
        (lambda s: (s.parent / "latest").unlink(), "no latest beside the step folder"),
        (
            lambda s: torch.save({"module": None, "mp_world_size": 2}, s / "mp_rank_00_model_states.pt"),
            "was saved by 2 ranks, 1 mp_rank files are here",
        ),
        (
            lambda s: torch.save({"module": {"x": torch.ones(1)}}, s / "mp_rank_00_model_states.pt"),
            "holds a module of its own",
        ),
    ],
)
def test_what_deepspeed_would_stumble_over_is_warned_of(pipeline, change, expected):
    change(pipeline)
    assert any(expected in w for w in registry.open_catalog(pipeline).warnings)


def test_what_the_rank_file_holds_beside_the_weights_is_named(pipeline):
    state = {"module": None, "mp_world_size": 1, "optimizer": {"state": 1}, "lr_scheduler": None}
    torch.save(state, pipeline / "mp_rank_00_model_states.pt")
    assert registry.open_catalog(pipeline).extras == ("optimizer",)


def test_several_steps_without_latest_are_not_chosen_between(pipeline):
    other = pipeline.with_name("global_step9")
    other.mkdir()
    torch.save({"w": torch.ones(1)}, other / "layer_00-model_00-model_states.pt")
    (pipeline.parent / "latest").unlink()
    with pytest.raises(InputError, match=r"2 checkpoints are here[\s\S]*global_step3[\s\S]*global_step9"):
        registry.open_catalog(pipeline.parent)


def test_no_optimizer_file_is_ever_written(pipeline, tmp_path):
    shard = {"partition_count": [1], "single_partition_of_fp32_groups": [torch.ones(12)]}
    file = pipeline / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    torch.save({"optimizer_state_dict": shard}, file)
    source = registry.open_catalog(pipeline)
    takes = {k: Take(e) for k, e in source.entries.items()}
    write(pipeline_format.FORMAT, takes, source, tmp_path / "out")
    names = sorted(p.name for p in (tmp_path / "out").rglob("*.pt"))
    assert names == [
        "layer_00-model_00-model_states.pt",
        "layer_02-model_00-model_states.pt",
        "layer_100-model_00-model_states.pt",
        "mp_rank_00_model_states.pt",
    ]


def test_the_rank_file_is_what_deepspeed_asks_for(pipeline, tmp_path):
    source = registry.open_catalog(pipeline)
    write(pipeline_format.FORMAT, {k: Take(e) for k, e in source.entries.items()}, source, tmp_path / "out")
    state = torch.load(tmp_path / "out/global_step3/mp_rank_00_model_states.pt", weights_only=True)
    assert state["module"] is None
    assert (state["dp_world_size"], state["mp_world_size"]) == (1, 1)


@pytest.mark.parametrize("key", ["embed.weight", "02.weight", "2", "-1.weight", "x2.weight"])
def test_keys_without_a_layer_number_are_refused(tmp_path, key):
    source = source_of({key: torch.ones(1)}, tmp_path / "in.safetensors")
    with pytest.raises(UsageError, match="begin with a layer's number"):
        pipeline_format.FORMAT.lay_out({key: Take(source.entries[key])}, source, WriteOptions())


def test_a_module_in_the_rank_file_is_the_model(tmp_path):
    state = {"module": {"sequential.0.w": torch.ones(2)}, "optimizer": {"lr": 1}, "dp_world_size": 1}
    torch.save(state, tmp_path / "mp_rank_00_model_states.pt")
    catalog = registry.open_catalog(tmp_path)
    assert (catalog.format, set(catalog.entries)) == ("deepspeed", {"sequential.0.w"})
    assert catalog.extras == ("optimizer",)


def test_a_rank_file_without_its_layers_says_what_is_missing(tmp_path):
    torch.save({"module": None}, tmp_path / "mp_rank_00_model_states.pt")
    with pytest.raises(InputError, match=r"lie in layer_XX files, and none are here"):
        registry.open_catalog(tmp_path)


def test_several_ranks_of_a_module_wait_to_be_merged(tmp_path):
    for i in (0, 1):
        state = {"module": {"w": torch.ones(1)}, "mp_world_size": 2}
        torch.save(state, tmp_path / f"mp_rank_0{i}_model_states.pt")
    catalog = module.FORMAT.open(tmp_path)
    assert [list(t) for t in catalog.ranks] == [["w"], ["w"]]
