"""ZeRO checkpoints of real DeepSpeed open as the live engine held them; what is missing or odd is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import remap
from remap.errors import Damaged, InputError
from remap.formats import registry
from remap.types import rank_key

CASES = {
    "zero1": "zero1",
    "zero1-bf16-aligned": "zero1-bf16-aligned",
    "zero2-roundrobin": "zero1",
    "zero3-bf16": "zero3-bf16",
    "pipeline": "pipeline",
}
"""Case -> the case whose truth is its own: of round robin the live engine's own functions give wrong slices,
and ZeRO-1 computes the same."""

MOMENTS = ("exp_avg", "exp_avg_sq")


def truth_of(runs: Path, case: str) -> dict[str, dict[str, torch.Tensor]]:
    """What the engines of all ranks held, by key: the first stage's embedding is layer 0 of the pipeline."""
    truth = {}
    for rank in (1, 0):
        truth |= torch.load(runs / f"{case}.truth.{rank}", weights_only=True)
    return {k.replace("tied_modules.embed.", "0."): v for k, v in truth.items()}


def whole(entry) -> torch.Tensor:
    """The tensor that an entry points at."""
    catalog = remap.types.Catalog("", Path(), (), {"x": entry})
    return remap.open(catalog)["x"]


@pytest.mark.parametrize("case", CASES)
def test_fp32_weights_and_moments_are_those_of_the_live_engine(zero_runs, case):
    truth = truth_of(zero_runs, CASES[case])
    checkpoint = remap.open(zero_runs / case, at="zero")
    state = checkpoint.catalog.optimizer()
    assert {k: v for k, v in state.values.items() if v} == {}
    for key, held in truth.items():
        assert checkpoint[key].float().equal(held["fp32"]), key
        trained = "exp_avg" in held
        assert (key in state.tensors) == trained
        for slot in MOMENTS if trained else ():
            assert whole(state.tensors[key][slot]).equal(held[slot]), f"{key} {slot}"
        if trained:
            assert checkpoint[key].dtype == torch.float32
            assert whole(state.tensors[key]["step"]).item() == 3
    tied = {"head.weight", "table"} if case != "pipeline" else set()
    assert checkpoint.keys() - truth.keys() == tied


@pytest.mark.parametrize("case", CASES)
def test_groups_list_the_weights_that_they_train(zero_runs, case):
    state = remap.open(zero_runs / case, at="zero").catalog.optimizer()
    matrices, vectors = state.groups
    assert [(g["weight_decay"], g["lr"]) for g in state.groups] == [(0.01, 0.01), (0.0, 0.01)]
    assert all(k.endswith("weight") and "norm" not in k for k in matrices["params"])
    assert {*matrices["params"], *vectors["params"]} == state.tensors.keys()


def test_the_model_is_taken_unless_zero_is_asked_for(zero_runs):
    catalog = registry.open_catalog(zero_runs / "zero1-bf16-aligned")
    assert catalog.entries["gain"].spec.dtype.name == "bfloat16"
    (warning,) = catalog.warnings
    assert warning.startswith(
        "2 ZeRO-1 files of 2 data-parallel ranks hold fp32 weights, exp_avg, exp_avg_sq, step of 14 "
        "parameters: --weights zero takes them"
    )


def test_zero3_needs_no_asking(zero_runs):
    catalog = registry.open_catalog(zero_runs / "zero3-bf16")
    assert (catalog.format, catalog.warnings) == ("deepspeed", ())
    assert catalog.aliases == {"head.weight": "embed.weight"}


def test_any_file_of_zero_finds_the_whole(zero_runs):
    for case in ("zero1", "zero3-bf16"):
        catalog = registry.open_catalog(zero_runs / case)
        for file in catalog.files:
            assert registry.open_catalog(file).root == catalog.root, file.name


def test_frozen_weights_are_not_lost_as_in_zero_to_fp32(zero_runs):
    """ZeRO-1 lists them nowhere; DeepSpeed's script gives a model without them."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    theirs = get_fp32_state_dict_from_zero_checkpoint(zero_runs / "zero1")
    mine = remap.open(zero_runs / "zero1", at="zero")
    assert mine.keys() - theirs.keys() == {"frozen.weight", "frozen.bias"}
    assert all(mine[k].equal(v) for k, v in theirs.items())


def test_pipelines_are_read_that_zero_to_fp32_can_not(zero_runs):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with pytest.raises(AttributeError):
        get_fp32_state_dict_from_zero_checkpoint(zero_runs / "pipeline")
    assert "1.attention.dense.weight" in remap.open(zero_runs / "pipeline", at="zero")


def test_slice_mappings_of_round_robin_are_wrong_and_not_used(zero_runs):
    """``param_slice_mappings`` describes another order than that of the data."""
    case = zero_runs / "zero2-roundrobin"
    (file,) = case.glob("*/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    state = torch.load(file, weights_only=False)["optimizer_state_dict"]
    mine = remap.open(case, at="zero")
    wrong = []
    for flat, mappings in zip(
        state["single_partition_of_fp32_groups"], state["param_slice_mappings"], strict=True
    ):
        for name, where in mappings.items():
            held = flat[where.start : where.start + where.numel]
            wrong += [name] * (not held.equal(mine[name].flatten()[: where.numel]))
    assert wrong


def copy_of(run: Path, folder: Path) -> Path:
    """The step folder of a copy that a test may spoil."""
    shutil.copytree(run, folder / "run")
    return folder / "run/global_step3"


def rewrite(file: Path, change) -> None:
    content = torch.load(file, weights_only=False)
    change(content)
    torch.save(content, file)


def renamed(content: dict) -> None:
    content["module"] = {f"wrapped.{k}": v for k, v in content["module"].items()}


def test_stale_files_beside_converted_weights_are_told_and_not_taken(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero1", tmp_path)
    rewrite(step / "mp_rank_00_model_states.pt", renamed)
    (warning,) = registry.open_catalog(step).warnings
    assert "left from before the weights were converted" in warning
    with pytest.raises(Damaged, match=r"of another model[\s\S]*gain: the model has no such weight"):
        registry.open_catalog(step, at="zero")


def replaced(content: dict) -> None:
    content["module"]["gain"] = content["module"]["gain"] + 1


@pytest.mark.parametrize("case", ["zero1", "zero1-bf16-aligned"])
@pytest.mark.parametrize("at", [None, "zero"])
def test_weights_that_were_replaced_under_their_names_are_noticed(zero_runs, tmp_path, case, at):
    step = copy_of(zero_runs / case, tmp_path)
    rewrite(step / "mp_rank_00_model_states.pt", replaced)
    stale = [w for w in registry.open_catalog(step, at=at).warnings if "looked at" in w]
    assert stale == [
        "looked at, the model's weights are not those of the ZeRO files (gain): one of them is stale"
    ]
    assert [w for w in registry.open_catalog(zero_runs / case, at=at).warnings if "looked at" in w] == []


def longer(content: dict) -> None:
    content["param_shapes"][1]["more"] = torch.Size([90])


def test_files_of_another_run_do_not_fit(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero1", tmp_path)
    rewrite(step / "mp_rank_00_model_states.pt", longer)
    with pytest.raises(Damaged, match="the ZeRO files hold"):
        registry.open_catalog(step, at="zero")


def other_count(content: dict) -> None:
    content["optimizer_state_dict"]["partition_count"] = [8, 8]


def no_groups(content: dict) -> None:
    content["optimizer_state_dict"]["single_partition_of_fp32_groups"] = None


def odd_padding(content: dict) -> None:
    content["optimizer_state_dict"]["param_alignment_paddings"] = [[-1], 3]


def halved(content: dict) -> None:
    state = content["optimizer_state_dict"]
    state["single_partition_of_fp32_groups"] = [x.half() for x in state["single_partition_of_fp32_groups"]]


def with_gaps(content: dict) -> None:
    state = content["optimizer_state_dict"]
    wide = [torch.stack([x, x], 1)[:, 0] for x in state["single_partition_of_fp32_groups"]]
    state["single_partition_of_fp32_groups"] = wide


@pytest.mark.parametrize(("spoil", "said"), [(halved, "float32 is f16"), (with_gaps, "with gaps")])
def test_pieces_that_are_no_flat_fp32_are_refused(zero_runs, tmp_path, spoil, said):
    step = copy_of(zero_runs / "zero1", tmp_path)
    rewrite(step / "zero_pp_rank_1_mp_rank_00_optim_states.pt", spoil)
    with pytest.raises(Damaged, match=said):
        registry.open_catalog(step, at="zero")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda one: one.unlink(), r"files are missing[\s\S]*zero_pp_rank_1_mp_rank_00"),
        (lambda one: shutil.copy(one, one.with_name(f"bf16_{one.name}")), "a rank has two ZeRO files"),
        (lambda one: shutil.copy(one, one.with_name(one.name.replace("_1_", "_5_"))), "these are beyond"),
        (lambda one: rewrite(one, other_count), "not of one run"),
        (lambda one: rewrite(one, no_groups), "no optimizer file of ZeRO"),
        (lambda one: rewrite(one, odd_padding), "param_alignment_paddings is"),
        (lambda one: torch.save({}, one), "no optimizer file of ZeRO"),
        (lambda one: one.write_bytes(one.read_bytes()[:-100]), "truncated|end|zip"),
    ],
)
def test_a_shard_that_is_missing_or_odd_is_named_even_where_the_model_is_wanted(
    zero_runs, tmp_path, spoil, said
):
    step = copy_of(zero_runs / "zero1", tmp_path)
    spoil(step / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    with pytest.raises(InputError, match=said):
        registry.open_catalog(step)


def test_without_shards_there_are_no_other_weights(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero1", tmp_path)
    for file in step.glob("*optim_states.pt"):
        file.unlink()
    assert registry.open_catalog(step).warnings == ()
    with pytest.raises(InputError, match="no ZeRO files are here"):
        registry.open_catalog(step, at="zero")


def test_zero3_without_its_shards_says_where_the_weights_are(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero3-bf16", tmp_path)
    for file in step.glob("*optim_states.pt"):
        file.unlink()
    with pytest.raises(InputError, match=r"placeholders: the weights lie in \*_optim_states\.pt"):
        registry.open_catalog(step)


def test_zero3_without_a_model_file_names_it(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero3-bf16", tmp_path)
    (step / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(Damaged, match="zero_pp_rank_1_mp_rank_00: no model file"):
        registry.open_catalog(step)


def no_frozen(content: dict) -> None:
    content["frozen_param_shapes"] = content["frozen_param_fragments"] = None


def test_frozen_weights_that_are_in_no_file_are_named(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero3-bf16", tmp_path)
    for file in step.glob("*model_states.pt"):
        rewrite(file, no_frozen)
    with pytest.raises(Damaged, match=r"in no file\n  frozen.weight\n  frozen.bias"):
        registry.open_catalog(step)


def test_without_param_shapes_the_model_opens_and_zero_says_what_lacks(zero_runs, tmp_path):
    step = copy_of(zero_runs / "zero1", tmp_path)
    rewrite(step / "mp_rank_00_model_states.pt", lambda c: c.pop("param_shapes"))
    catalog = registry.open_catalog(step)
    assert (len(catalog.entries), catalog.optimizer) == (18, None)
    with pytest.raises(InputError, match="no param_shapes"):
        registry.open_catalog(step, at="zero")


def make_run(folder: Path, base: object, rank: int = 0, first: float = 0) -> Path:
    """A ZeRO-1 checkpoint of one rank as older DeepSpeed wrote it; ``base`` is its optimizer's state,
    ``rank`` the tensor-parallel one."""
    state = {
        "zero_stage": 1,
        "partition_count": [1],
        "single_partition_of_fp32_groups": [torch.arange(6.0) + first],
        "base_optimizer_state": base,
    }
    model = {"module": {"w": torch.zeros(2, 2), "b": torch.zeros(2)}}
    model["param_shapes"] = [{"w": torch.Size([2, 2]), "b": torch.Size([2])}]
    torch.save({"optimizer_state_dict": state}, folder / f"zero_pp_rank_0_mp_rank_{rank:02d}_optim_states.pt")
    torch.save(model, folder / f"mp_rank_{rank:02d}_model_states.pt")
    return folder


def test_every_tensor_parallel_rank_has_its_own(tmp_path):
    for rank in (0, 1):
        moments = {"exp_avg": torch.arange(6.0) + 100 * rank}
        base = {"state": {0: moments}, "param_groups": [{"params": [0], "lr": 0.1}]}
        make_run(tmp_path, base, rank, first=10.0 * rank)
    catalog = registry.open_catalog(tmp_path, at="zero")
    assert [whole(table["b"]).tolist() for table in catalog.ranks] == [[4, 5], [14, 15]]
    state = catalog.optimizer()
    assert whole(state.tensors[rank_key("b", 1)]["exp_avg"]).tolist() == [104, 105]
    assert state.groups == [{"lr": 0.1, "params": [rank_key(k, r) for r in (0, 1) for k in ("w", "b")]}]


def test_an_elastic_checkpoint_lists_its_states(tmp_path):
    make_run(tmp_path, [{"step": 7, "exp_avg": torch.arange(6.0) + 10}])
    state = registry.open_catalog(tmp_path, at="zero").optimizer()
    assert whole(state.tensors["b"]["exp_avg"]).tolist() == [14, 15]
    assert state.values == {"w": {"step": 7}, "b": {"step": 7}}


def test_states_in_other_units_than_elements_are_refused_weights_are_not(tmp_path):
    """As of 8-bit optimizers, whose blocks have a scale each."""
    state = {"exp_avg": torch.zeros(6, dtype=torch.uint8), "absmax": torch.zeros(2)}
    make_run(tmp_path, {"state": {0: state}, "param_groups": [{"params": [0]}]})
    catalog = registry.open_catalog(tmp_path, at="zero")
    assert whole(catalog.entries["b"]).tolist() == [4, 5]
    with pytest.raises(InputError, match=r"absmax f32\[2\][\s\S]*--no-optimizer"):
        catalog.optimizer()


def test_a_run_without_a_step_has_no_state(tmp_path):
    make_run(tmp_path, {"state": {}, "param_groups": [{"params": [0], "lr": 0.1}]})
    state = registry.open_catalog(tmp_path, at="zero").optimizer()
    assert (state.tensors, state.groups) == ({}, [{"params": ["w", "b"], "lr": 0.1}])
