"""Reading: any file stands for the whole checkpoint, which is equal to what it was made from."""

from __future__ import annotations

import shutil

import pytest
import torch
from formats.metaseq.samples import EMBED, FOREIGN, OUTPUT, edit, load, make, make_unflattened

import remap
from remap.errors import Damaged, InputError
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry
from remap.reshard import reshard

CASES = {
    "default": {},
    "2-shards": {"shards": 2},
    "4-shards": {"shards": 4},
    "7-shards": {"shards": 7},
    "1-shard": {"shards": 1},
    "1-part": {"parts": 1},
    "no-part-in-name": {"parts": 1, "part_in_name": False},
    "wrap-root": {"wrap": "root"},
    "wrap-decoder": {"wrap": "decoder"},
    "untied": {"untied": True, "dim": 8},
    "gated": {"gated": True},
    "buffers": {"buffers": True},
    "fp16": {"dtype": torch.float16},
    "bf16": {"dtype": torch.bfloat16, "buffers": True},
    "ema-foreign": {"ema": True, "foreign": True, "cfg": "dict"},
    "tiny-5-on-4": {"parts": 1, "shards": 4, "tiny": 5},
    "tiny-5-on-7": {"parts": 1, "shards": 7, "tiny": 5},
    "fairscale-0.3.7": {"old_metadata": True, "untied": True},
    "4-parts": {"parts": 4, "shards": 2},
}


def tensors_at(path, at=None) -> dict[str, torch.Tensor]:
    return {k: evaluate(Take(e)) for k, e in registry.open_catalog(path, at=at).entries.items()}


def swap(a, b) -> None:
    a.rename(a.with_suffix(".away"))
    b.rename(a)
    a.with_suffix(".away").rename(b)


def assert_equal(got, wanted):
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert got[key].dtype == value.dtype, key
        assert torch.equal(got[key], value), key


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_is_the_model_that_it_was_made_from(tmp_path, case):
    truth = make(tmp_path, **CASES[case])
    assert_equal(tensors_at(truth.files[max(truth.files)]), truth.weights)


def test_model_parts_without_shards_are_merged(tmp_path):
    truth = make_unflattened(tmp_path, parts=4)
    assert_equal(tensors_at(truth.files[2, 0]), truth.weights)


def test_a_running_average_is_opened_like_the_model(tmp_path):
    truth = make(tmp_path, ema=True)
    wanted = {k: v * 0.5 for k, v in truth.weights.items()}
    assert_equal(tensors_at(truth.first, at="extra_state.ema"), wanted)


def test_what_else_shard_0_holds_can_be_looked_at(tmp_path):
    truth = make(tmp_path, foreign=True)
    extras = remap.open(truth.files[1, 1]).extras
    assert extras["optimizer_history"] == [{"optimizer_name": "MetaseqAdam", "num_updates": 3}]
    assert extras["extra_state"]["train_iterator"]["tokenization_cache"].name == f"{FOREIGN}.LockingArray"


def test_any_file_and_the_folder_give_the_same_catalog(tmp_path):
    truth = make(tmp_path, shards=12)
    catalogs = [registry.open_catalog(p) for p in (tmp_path, truth.files[1, 10], truth.files[0, 2])]
    assert [c.format for c in catalogs] == ["metaseq"] * 3
    assert len({tuple(c.entries) for c in catalogs}) == 1
    assert len(catalogs[0].files) == 24


def test_shards_come_in_the_order_of_their_numbers(tmp_path):
    truth = make(tmp_path, parts=1, shards=12)  # as text, shard10 comes before shard2
    assert_equal(tensors_at(truth.first), truth.weights)


def test_the_number_in_a_folder_s_name_does_not_count(tmp_path):
    # reshard_fsdp.py sorts by every number in the path, and mixed 9-b/shard1 with 10-a/shard0 (fault 20).
    truth = make(tmp_path / "10-a" / "run-7", parts=1, name="checkpoint_9")
    assert_equal(tensors_at(truth.first), truth.weights)


def test_links_are_taken_by_their_own_names(tmp_path):
    truth = make(tmp_path / "nfs", name="checkpoint_100")
    for (j, i), path in truth.files.items():
        (tmp_path / f"checkpoint_last-model_part-{j}-shard{i}.pt").symlink_to(path)
    assert_equal(tensors_at(tmp_path / "checkpoint_last-model_part-1-shard1.pt"), truth.weights)


def test_a_folder_with_a_step_and_links_to_it_holds_one_checkpoint(tmp_path):
    truth = make(tmp_path, name="checkpoint_100")
    for (j, i), path in truth.files.items():
        (tmp_path / f"checkpoint_last-model_part-{j}-shard{i}.pt").symlink_to(path.name)
    assert_equal(tensors_at(tmp_path), truth.weights)


def test_two_steps_in_one_folder_are_told_apart(tmp_path):
    # fault 19: a glob over both mixes them silently.
    old = make(tmp_path, name="checkpoint_100", ffn=4)
    new = make(tmp_path, name="checkpoint_200", ffn=8)
    assert_equal(tensors_at(old.first), old.weights)
    assert_equal(tensors_at(new.first), new.weights)
    with pytest.raises(InputError, match="2 checkpoints are here"):
        registry.open_catalog(tmp_path)


def test_model_parts_are_never_joined_as_shards(tmp_path):
    # fault 18; ST's fault: "part-1" also matches part-10 and part-11.
    truth = make(tmp_path, parts=12, shards=2, dim=12, ffn=12, vocab=24)
    assert_equal(tensors_at(truth.files[11, 1]), truth.weights)


@pytest.mark.parametrize("name", ["checkpoint_last-model_part-0-shard0.copy.pt", "optimizer.pt", "readme.pt"])
def test_a_stray_file_is_not_a_shard(tmp_path, name):
    # fault 21
    truth = make(tmp_path)
    shutil.copy(truth.first, tmp_path / name)
    assert_equal(tensors_at(truth.first), truth.weights)


def test_leftovers_of_a_copy_are_no_shards(tmp_path):
    truth = make(tmp_path)
    (tmp_path / f"_{truth.first.name}").write_bytes(truth.first.read_bytes()[:100])
    assert_equal(tensors_at(tmp_path), truth.weights)
    with pytest.raises(InputError, match="still being copied"):
        registry.open_catalog(tmp_path / f"_{truth.first.name}")


@pytest.mark.parametrize("lost", [[(0, 1)], [(0, 0)], [(1, 0), (1, 2)]], ids=["middle", "first", "two"])
def test_missing_files_are_named(tmp_path, lost):
    # faults 16, 17: silently wrong.
    truth = make(tmp_path)
    for place in lost:
        truth.files.pop(place).unlink()
    with pytest.raises(Damaged, match=rf"{len(lost)} of 6 files are missing") as caught:
        registry.open_catalog(next(iter(truth.files.values())))
    assert caught.value.problems == tuple(f"checkpoint_last-model_part-{j}-shard{i}.pt" for j, i in lost)


@pytest.mark.parametrize("number", ["part-99999999999-shard0", "part-0-shard99999999999"])
def test_a_number_that_is_no_shard_s_is_not_counted_up_to(tmp_path, number):
    truth = make(tmp_path)
    stray = truth.folder / f"checkpoint_last-model_{number}.pt"
    shutil.copy(truth.files[0, 0], stray)
    with pytest.raises(Damaged, match="files are missing") as e:
        registry.open_catalog(truth.files[0, 0])
    assert f"or move {stray.name} away" in str(e.value)


def test_the_number_of_a_rank_of_experts_is_not_counted_up_to(tmp_path):
    truth = make(tmp_path, parts=1, part_in_name=False)
    torch.save(
        {"model": {"e": torch.ones(1)}, "cfg": {}}, truth.folder / "checkpoint_last-rank-9999999999.pt"
    )
    (warning,) = registry.open_catalog(truth.folder).warnings
    assert warning.startswith("the experts of ranks 0, 1, 2, ")


def test_what_is_no_file_is_no_shard(tmp_path):
    truth = make(tmp_path)
    truth.files[0, 1].unlink()
    truth.files[0, 1].symlink_to("gone.pt")
    with pytest.raises(Damaged, match="part-0-shard1.pt: a link that points at nothing"):
        registry.open_catalog(truth.files[0, 0])


def test_links_and_folders_beyond_the_last_shard_do_not_count(tmp_path):
    truth = make(tmp_path)
    (truth.folder / "checkpoint_last-model_part-0-shard3.pt").symlink_to("gone.pt")
    (truth.folder / "checkpoint_last-model_part-1-shard3.pt").mkdir()
    assert_equal(tensors_at(truth.folder), truth.weights)


@pytest.mark.parametrize("places", [((0, 1), (1, 1)), ((0, 0), (0, 1))])
def test_files_that_changed_places_are_seen_by_what_they_say_of_themselves(tmp_path, places):
    """Shards 0 and 1 have no padding, so that nothing else tells them apart."""
    a, b = (make(tmp_path).files[p] for p in places)
    swap(a, b)
    with pytest.raises(Damaged, match="files are not where they say that they belong") as e:
        registry.open_catalog(a)
    assert e.value.problems == (f"{a.name}: it is {b.name}", f"{b.name}: it is {a.name}")


def test_a_copy_under_another_shard_s_name_is_seen(tmp_path):
    truth = make(tmp_path)
    shutil.copy(truth.files[0, 0], truth.files[0, 1])
    with pytest.raises(Damaged) as e:
        registry.open_catalog(truth.folder)
    assert e.value.problems == (f"{truth.files[0, 1].name}: it is {truth.files[0, 0].name}",)


def test_model_parts_that_changed_places_are_seen(tmp_path):
    truth = make_unflattened(tmp_path, parts=2)
    swap(truth.files[0, 0], truth.files[1, 0])
    with pytest.raises(Damaged, match="files are not where they say"):
        registry.open_catalog(truth.folder)


def test_a_checkpoint_suffix_says_which_part_a_file_is(tmp_path):
    """Where the number of processes is stale, as after a reshard."""
    truth = make_unflattened(tmp_path, parts=2)
    for path in truth.files.values():
        edit(path, lambda s: s["cfg"]["distributed_training"].update(distributed_world_size=64))
    registry.open_catalog(truth.folder)
    swap(truth.files[0, 0], truth.files[1, 0])
    with pytest.raises(Damaged, match="files are not where they say"):
        registry.open_catalog(truth.folder)


def test_a_configuration_that_is_the_same_in_all_files_says_nothing_of_places(tmp_path):
    """As metaseq's reshard_fsdp.py and reshard_mp.py leave it."""
    truth = make_unflattened(tmp_path, parts=4)
    config = load(truth.files[0, 0])["cfg"]
    for path in truth.files.values():
        edit(path, lambda state: state.update(cfg=config))
    assert_equal(tensors_at(truth.folder), truth.weights)


def test_missing_last_shards_are_named_by_the_lengths_of_the_others(tmp_path):
    truth = make(tmp_path, parts=1, shards=4)
    truth.files[0, 3].unlink()
    with pytest.raises(Damaged, match="at least 1 more are missing") as caught:
        registry.open_catalog(truth.first)
    assert caught.value.problems == ("checkpoint_last-model_part-0-shard3.pt",)


def test_a_missing_last_part_is_seen_by_the_shape_of_the_attention(tmp_path):
    truth = make(tmp_path)
    for i in range(3):
        truth.files[1, i].unlink()
    with pytest.raises(Damaged, match="one of 2 model parts; 1 are here"):
        registry.open_catalog(truth.first)


def test_a_shard_that_is_there_twice_is_named(tmp_path):
    truth = make(tmp_path)
    shutil.copy(truth.first, tmp_path / "checkpoint_last-model_part-0-shard00.pt")
    with pytest.raises(Damaged, match="the same shard"):
        registry.open_catalog(truth.first)


def test_a_truncated_shard_is_named(tmp_path):
    truth = make(tmp_path)
    victim = truth.files[1, 1]
    victim.write_bytes(victim.read_bytes()[:-500])
    with pytest.raises(Damaged, match=victim.name):
        registry.open_catalog(truth.first)


def test_a_shard_of_another_step_is_named(tmp_path):
    truth = make(tmp_path)
    edit(truth.files[0, 2], lambda s: s["optimizer_history"][-1].update(num_updates=4))
    with pytest.raises(Damaged, match="different steps") as caught:
        registry.open_catalog(truth.first)
    assert caught.value.problems == (f"{truth.files[0, 2].name}: step 4, the others have 3",)


def test_a_shard_of_another_model_is_named(tmp_path):
    truth = make(tmp_path / "a")
    other = make(tmp_path / "b", ffn=16)
    shutil.copy(other.files[1, 1], truth.files[1, 1])
    with pytest.raises(Damaged, match="different models") as caught:
        registry.open_catalog(truth.first)
    assert caught.value.problems[0].startswith(truth.files[1, 1].name)


def test_shards_that_changed_places_are_named(tmp_path):
    truth = make(tmp_path, parts=1, shards=4, tiny=5)
    a, b = truth.files[0, 1], truth.files[0, 3]
    a.rename(tmp_path / "x"), b.rename(a), (tmp_path / "x").rename(b)
    with pytest.raises(Damaged, match="not where their contents say") as caught:
        registry.open_catalog(truth.first)
    assert any(a.name in p for p in caught.value.problems)


def test_shards_cut_by_a_padded_length_are_refused(tmp_path):
    # CU: n=10, 4 -> 5 gives shards of 3 instead of 2.
    truth = make(tmp_path, parts=1, shards=5, tiny=10)
    key = "decoder.tiny.flat_param_0"
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({key: torch.cat([s["model"][key], torch.zeros(1)])}))
    with pytest.raises(Damaged, match="5 shards of 10 elements have 2 each"):
        registry.open_catalog(truth.first)


def test_flat_tensors_without_metadata_are_refused_with_the_reason(tmp_path):
    # faults 29, and 4.2's 2: an empty model, silently.
    truth = make(tmp_path)
    for path in truth.files.values():
        edit(path, lambda s: s.pop("shard_metadata"))
    with pytest.raises(
        Damaged, match="no shard_metadata, which alone says which parameters lie in flat_param_0"
    ):
        registry.open_catalog(truth.first)


def test_a_tie_is_one_tensor_under_two_names(tmp_path):
    # fault 1; fairscale's own merge loses it, too.
    truth = make(tmp_path, wrap="decoder")
    assert registry.open_catalog(truth.first).aliases == {OUTPUT: EMBED}


def test_a_tie_whose_recorded_names_are_swapped_has_both_right_names(tmp_path):
    # fairscale records ("emb.kernel", "out.table") for emb.table tied to out.kernel.
    truth = make(tmp_path, parts=1)
    for path in truth.files.values():

        def swap(state):
            for unit in state["shard_metadata"]["param_metadata"]:
                for p in unit["params"].values():
                    p["names"] = [n.replace("embed_tokens.weight", "embed_tokens.table") for n in p["names"]]
                unit["shared_param_info"] = [
                    ("decoder.embed_tokens.weight", "decoder.output_projection.table")
                    for _ in unit["shared_param_info"]
                ]

        edit(path, swap)
    entries = registry.open_catalog(truth.first).entries
    assert entries["decoder.output_projection.weight"].spec == entries["decoder.embed_tokens.table"].spec


def test_a_buffer_that_is_listed_and_absent_is_skipped(tmp_path):
    # fault 10
    truth = make(tmp_path, buffers=True)
    assert "decoder.future_mask" not in registry.open_catalog(truth.first).entries


def test_a_key_that_the_metadata_does_not_name_is_kept_with_a_warning(tmp_path):
    # fault 26: dropped silently.
    truth = make(tmp_path, parts=1)
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({"decoder.odd": torch.ones(2)}))
    catalog = registry.open_catalog(truth.first)
    assert "decoder.odd" in catalog.entries
    assert "decoder.odd" in catalog.warnings[0]


def test_the_order_of_a_record_s_keys_does_not_count(tmp_path):
    # fault 27: unpacked by position.
    truth = make(tmp_path)

    def turn(state):
        for unit in state["shard_metadata"]["param_metadata"]:
            unit["params"] = {k: dict(reversed(p.items())) for k, p in unit["params"].items()}

    for path in truth.files.values():
        edit(path, turn)
    assert_equal(tensors_at(truth.first), truth.weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(names=[p["names"][1]] * len(p["names"])), "there twice"),
        (lambda p: p.update(numels=[1] * len(p["numels"])), "shapes and numels of .* disagree"),
        (
            lambda p: p.update(shapes=[tuple(-n for n in s) for s in p["shapes"][:2]] + p["shapes"][2:]),
            "negative",
        ),
        (lambda p: p.pop("padding"), "KeyError 'padding'"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(tmp_path, change, message):
    truth = make(tmp_path, parts=1)
    for path in truth.files.values():
        edit(path, lambda s: change(s["shard_metadata"]["param_metadata"][0]["params"]["flat_param_0"]))
    with pytest.raises(Damaged, match=f"shard0.pt: shard_metadata: .*{message}"):
        registry.open_catalog(truth.first)


def test_experts_that_every_rank_has_whole_are_those_of_shard_0(tmp_path):
    # fault 13: copies are concatenated.
    truth = make(tmp_path, parts=1, shards=2, tiny=3)
    for i, path in enumerate(truth.files.values()):

        def whole(state, i=i):
            unit = state["shard_metadata"]["param_metadata"][-1]
            unit["no_broadcast_optim_state"] = True
            unit["params"]["flat_param_0"]["padding"] = 0
            state["model"]["decoder.tiny.flat_param_0"] = torch.tensor([1.0, 2.0, 3.0]) * (i + 1)

        edit(path, whole)
    assert tensors_at(truth.first)["decoder.tiny.weight"].tolist() == [1.0, 2.0, 3.0]
    assert "experts" in registry.open_catalog(truth.first).warnings[0]


def test_a_stale_configuration_warns_and_is_not_believed(tmp_path):
    truth = make(tmp_path)
    edit(truth.first, lambda s: s["cfg"]["distributed_training"].update(distributed_world_size=992))
    catalog = registry.open_catalog(truth.first)
    assert_equal({k: evaluate(Take(e)) for k, e in catalog.entries.items()}, truth.weights)
    assert "992 processes" in catalog.warnings[0]


def test_files_without_a_configuration_open(tmp_path):
    truth = make(tmp_path)
    for path in truth.files.values():
        edit(path, lambda s: s.update(cfg=None, args=None))
    assert_equal(tensors_at(truth.first), truth.weights)


def test_a_rank_of_experts_is_a_checkpoint_of_its_own(tmp_path):
    truth = make(tmp_path, parts=1, shards=2, part_in_name=False)
    expert = {"model": {"experts.0.weight": torch.ones(3)}, "cfg": None, "extra_state": {}}
    torch.save(expert, tmp_path / "checkpoint_last-rank-3-shard3.pt")
    assert list(tensors_at(tmp_path / "checkpoint_last-rank-3-shard3.pt")) == ["experts.0.weight"]
    assert_equal(tensors_at(truth.first), truth.weights)
    assert "experts of ranks 0, 1, 2 are missing" in registry.open_catalog(truth.first).warnings[-1]


def make_experts(folder, truth, names):
    """A flat file for every rank, whose expert is called ``names(rank)``: wrapped for that rank alone."""
    for rank in range(2):
        value = torch.arange(6.0) + rank
        name = names(rank)
        state = load(truth.first)
        state["model"] = {f"{name}.flat_param_0": value}
        unit = {"names": ["fc1.weight", "fc1.bias"], "shapes": [(2, 2), (2,)], "numels": [4, 2], "padding": 0}
        state["shard_metadata"] = {
            "param_metadata": [
                {
                    "fsdp_path": name,
                    "params": {"flat_param_0": unit},
                    "no_broadcast_optim_state": True,
                    "shared_param_info": [],
                }
            ],
            "buffer_names": [],
        }
        torch.save(state, folder / f"checkpoint_last-rank-{rank}-shard{rank}.pt")


def test_experts_that_every_rank_counts_for_itself_are_not_joined_and_it_is_said(tmp_path):
    """metaseq's own merge leaves them in files of their own, too (stitch_fsdp_ckpt.py)."""
    truth = make(tmp_path, parts=1, shards=2, part_in_name=False)
    make_experts(tmp_path, truth, lambda rank: "decoder.layers.0.moe_layer.experts.0")
    for path in (tmp_path, truth.first):
        catalog = registry.open_catalog(path)
        assert_equal({k: evaluate(Take(e)) for k, e in catalog.entries.items()}, truth.weights)
        assert "the experts of 2 ranks lie beside it" in catalog.warnings[-1]
        assert "checkpoint_last-rank-0-shard0.pt to checkpoint_last-rank-1-shard1.pt" in catalog.warnings[-1]
    alone = tensors_at(tmp_path / "checkpoint_last-rank-1-shard1.pt")
    assert alone["decoder.layers.0.moe_layer.experts.0.fc1.weight"].tolist() == [[1, 2], [3, 4]]


def test_experts_that_are_numbered_through_are_one_model(tmp_path):
    truth = make(tmp_path, parts=1, shards=2, part_in_name=False)
    make_experts(tmp_path, truth, lambda rank: f"decoder.layers.0.moe_layer.experts.{rank}")
    found = tensors_at(tmp_path)
    assert found["decoder.layers.0.moe_layer.experts.1.fc1.bias"].tolist() == [5, 6]
    assert len(found) == len(truth.weights) + 4
    assert len(registry.open_catalog(truth.first).files) == 4
    receipt = reshard(truth.first, tmp_path / "out", fsdp=1)
    assert receipt.left_behind == [f"checkpoint_last-rank-{r}-shard{r}.pt (experts)" for r in range(2)]


def test_a_torch_file_with_a_shard_s_name_stays_a_torch_file(tmp_path):
    path = tmp_path / "weights-shard0.pt"
    torch.save({"a.weight": torch.ones(2)}, path)
    assert registry.open_catalog(path).format == "torch"
