"""Model parts merged and divided. Numbers in comments
are faults of metaseq's scripts: see ``test_faults``."""

from __future__ import annotations

import resource

import pytest
import torch
from formats.metaseq.samples import (
    EMBED,
    OUTPUT,
    edit,
    load,
    make,
    make_unflattened,
    same,
)
from reshard.cutting import (
    assert_equal,
    opened,
)

import remap
from remap.errors import Damaged, InputError, UsageError
from remap.parallel import Settings
from remap.reshard import reshard


@pytest.mark.parametrize("cfg", [None, "gone"])
def test_a_file_without_configuration_is_merged_all_the_same(tmp_path, cfg):
    # RM 5: AttributeError, TypeError, after all the work.
    truth = make(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s.update(cfg=None) if cfg is None else s.pop("cfg"))
    reshard(truth.first, tmp_path / "out", tp=1, unflatten=True)
    assert_equal(opened(tmp_path / "out"), truth.weights)


def test_criterion_task_state_and_the_rest_come_along(tmp_path):
    # RM 9
    truth = make(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1, unflatten=True)
    state = load(tmp_path / "out" / "reshard-model_part-0.pt")
    assert list(state) == list(load(truth.first))
    assert state["extra_state"]["rng_tracker_states"]["model-parallel-rng"].tolist() == list(range(16))


@pytest.mark.parametrize(
    "name", ["decoder.project_in.weight", "decoder.layers.0.fc1.lora_A.weight", "decoder.mystery"]
)
def test_names_that_are_not_known_are_refused_never_dropped(tmp_path, name):
    # RM 1: dropped silently; RM 10: adapters are joined by a part of their name.
    truth = make_unflattened(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({name: torch.ones(2, 4)}))
    with pytest.raises(InputError, match="names that the partition file does not know") as caught:
        reshard(truth.first, tmp_path / "out", tp=1)
    assert caught.value.problems == (f"{name}: f32[2,4], f32[2,4]",)
    partition = tmp_path / "more.yml"
    partition.write_text(f"tensors:\n  - {{key: {name}, split: columns}}\n")
    known = Settings(partition=partition)
    reshard(truth.first, tmp_path / "out", tp=1, settings=known)
    assert load(tmp_path / "out" / "reshard-model_part-0.pt")["model"][name].shape == (2, 8)
    assert remap.open(truth.first, settings=known)[name].shape == (2, 8)
    remap.convert(truth.first, tmp_path / "out.safetensors", settings=known)


def test_projections_of_a_small_embedding_are_whole_in_every_part(tmp_path):
    # RM 1: dropped silently. OPT-350m's are plain Linear modules in every part.
    truth = make_unflattened(tmp_path / "source")
    names = ("decoder.project_in_dim.weight", "decoder.project_out_dim.weight")
    held = {n: torch.arange(8.0).reshape(4, 2) for n in names}
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update(held))
    reshard(truth.first, tmp_path / "out", tp=1)
    model = load(tmp_path / "out" / "reshard-model_part-0.pt")["model"]
    assert all(torch.equal(model[n], t) for n, t in held.items())


def test_a_tied_projection_is_as_long_as_the_vocabulary(tmp_path):
    # RM 3: rank 0's rows only.
    truth = make_unflattened(tmp_path / "source", parts=4)
    reshard(truth.first, tmp_path / "1", tp=1)
    assert load(tmp_path / "1" / "reshard-model_part-0.pt")["model"][OUTPUT].shape == (16, 4)
    reshard(tmp_path / "1", tmp_path / "4", tp=4)
    for j in range(4):
        assert_equal(load(tmp_path / "4" / f"reshard-model_part-{j}.pt")["model"], truth.parts[j])


def test_a_projection_of_its_own_is_a_copy_in_every_part(tmp_path):
    truth = make_unflattened(tmp_path / "source", parts=2, untied=True)
    reshard(truth.first, tmp_path / "1", tp=1)
    reshard(tmp_path / "1", tmp_path / "4", tp=4)
    assert load(tmp_path / "4" / "reshard-model_part-3.pt")["model"][OUTPUT].equal(truth.weights[OUTPUT])


def test_a_tensor_without_dimensions_is_a_copy_whatever_its_name(tmp_path):
    # RM 4: IndexError.
    truth = make_unflattened(tmp_path / "source")
    for path in truth.files.values():
        edit(path, lambda s: s["model"].update({"decoder.scale": torch.tensor(2.0)}))
    reshard(truth.first, tmp_path / "out", tp=1)
    assert load(tmp_path / "out" / "reshard-model_part-0.pt")["model"]["decoder.scale"].shape == ()


@pytest.mark.parametrize(("vocab", "parts"), [(6, 4), (5, 4), (5, 3)])
def test_sizes_that_can_t_be_divided_are_refused(tmp_path, vocab, parts):
    # RM 7: IndexError; parts of 2, 2, 1 rows.
    truth = make_unflattened(tmp_path / "source", parts=1, vocab=vocab, dim=12, ffn=12)
    with pytest.raises(UsageError, match=f"can't be divided into {parts} equal parts") as caught:
        reshard(truth.first, tmp_path / "out", tp=parts)
    assert f"{EMBED}: dimension 0 has {vocab} elements, no multiple of {parts}" in caught.value.problems


def test_copies_that_differ_are_refused_unless_the_first_is_asked_for(tmp_path):
    # RM 8: warns, and takes rank 0's.
    truth = make_unflattened(tmp_path / "source")
    edit(truth.files[1, 0], lambda s: s["model"]["decoder.layer_norm.weight"].add_(0.5))
    with pytest.raises(Damaged, match=r"part-0\.pt: decoder\.layer_norm\.weight: copies .* do not agree"):
        reshard(truth.first, tmp_path / "out", tp=1)
    reshard(truth.first, tmp_path / "out", tp=1, settings=Settings(copies="first"))
    assert_equal(opened(tmp_path / "out"), truth.weights)


def test_metadata_fits_the_parts_that_it_lies_beside(tmp_path):
    # RM 9: kept though the shapes no longer fit.
    truth = make_unflattened(tmp_path / "source")
    reshard(truth.first, tmp_path / "out", tp=1)
    state = load(tmp_path / "out" / "reshard-model_part-0.pt")
    for unit in state["shard_metadata"]["param_metadata"]:
        for p in unit["params"].values():
            for name, shape in zip(p["names"], p["shapes"], strict=True):
                full = f"{unit['fsdp_path']}.{name}" if unit["fsdp_path"] else name
                assert state["model"][full].shape == shape


@pytest.fixture
def few_files():
    """A process that may have 200 files open, as many as some systems give."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("parts", "shards"), [(4, 1), (2, 256)])
def test_the_published_examples(tmp_path, parts, shards, few_files):
    """2.7B: four parts, merged into one; 6.7B: two parts of 256 shards, each merged into one and back."""
    truth = make(tmp_path / "raw", parts=parts, shards=shards, layers=1, dtype=torch.float16)
    reshard(truth.first, tmp_path / "merged", fsdp=1, unflatten=True)
    for j in range(parts):
        assert_equal(load(tmp_path / "merged" / f"reshard-model_part-{j}.pt")["model"], truth.parts[j])
    reshard(tmp_path / "merged", tmp_path / "one", tp=1)
    assert_equal(load(tmp_path / "one" / "reshard-model_part-0.pt")["model"], truth.weights)
    reshard(truth.first, tmp_path / "flat", fsdp=1)
    reshard(tmp_path / "flat", tmp_path / "back", fsdp=shards)
    for path in list(truth.files.values())[::17]:
        a, b = load(path), load(tmp_path / "back" / path.name)
        for key in ("model", "last_optimizer_state", "shard_metadata", "cfg"):
            assert not same(a[key], b[key]), path.name


def test_a_tie_that_is_none_any_more_is_not_lost(tmp_path):
    truth = make_unflattened(tmp_path / "source", parts=1)
    edit(truth.first, lambda s: s["model"].update({OUTPUT: s["model"][EMBED] + 1}))
    with pytest.raises(InputError, match="says that tensors are tied") as caught:
        reshard(truth.first, tmp_path / "out", fsdp=2)
    assert caught.value.problems == (f"{truth.first.name}: {OUTPUT} is not {EMBED}",)
