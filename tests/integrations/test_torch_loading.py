"""load_into: rules while loading, nothing unless the policy passes, ties, types, the meta device."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import remap
from remap.errors import AuditFailed, Damaged, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from checkpoints import read_tensors  # noqa: E402
from integrations.magma_model import build, departures, expected, state  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

Pythia = Callable[[str], Path]
RULES = ["magma/from-hf"]


def test_a_pythia_goes_into_magma_and_leaves_the_adapters_alone(pythia: Pythia) -> None:
    model = build()
    before = state(model)
    memory = {k: v.data_ptr() for k, v in model.state_dict().items()}
    report = remap.load_into(model, pythia("fp32"), RULES, policy="magma")
    wanted = expected(pythia("fp32"))
    assert departures(model, wanted) == []
    assert departures(model, {k: v for k, v in before.items() if ".adapter." in k}) == []
    assert {k: v.data_ptr() for k, v in model.state_dict().items()} == memory
    assert report.counts == {"renamed": 52, "missing-adapter": 32, "unverified-layout": 4}


@pytest.mark.parametrize("variant", ["bf16-sharded", "bin-fp16-buffers"])
def test_shards_and_pickles_go_in_as_well(pythia: Pythia, variant: str) -> None:
    model = build().to(torch.bfloat16 if variant.startswith("bf16") else torch.float16)
    remap.load_into(model, pythia(variant), RULES, policy="magma")
    assert departures(model, expected(pythia(variant))) == []


def test_nothing_is_loaded_where_the_policy_fails(pythia: Pythia) -> None:
    model = build()
    before = state(model)
    with pytest.raises(AuditFailed) as failed:
        remap.load_into(model, pythia("fp32"), RULES)  # strict: the adapters are missing
    assert departures(model, before) == []
    (report,) = failed.value.reports
    assert report.counts["missing-adapter"] == 32
    assert failed.value.exit_code == 1
    assert "nothing was loaded: the policy strict fails it" in str(failed.value)
    assert "RM104 missing-adapter: 4 x {2..5}.attention.adapter.0.weight" in str(failed.value)


def test_names_that_do_not_fit_fail_with_the_pack_that_mends_it(pythia: Pythia) -> None:
    with pytest.raises(AuditFailed, match="magma/from-hf"):
        remap.load_into(build(), pythia("fp32"), policy="magma")


def test_without_rules_it_is_a_plain_strict_load(tmp_path: Path) -> None:
    saved, model = build(), build()
    torch.save(saved.state_dict(), tmp_path / "m.pt")
    assert remap.load_into(model, tmp_path / "m.pt").counts["matched"] == 52 + 32
    assert departures(model, dict(saved.state_dict())) == []


class TestTypes:
    def test_another_type_is_refused_and_named(self, pythia: Pythia) -> None:
        model = build()
        before = state(model)
        with pytest.raises(UsageError, match=r"4 x \{2..5\}.*f16\[64\], the model has f32\[64\]"):
            remap.load_into(model, pythia("fp16"), RULES, policy="magma")
        assert departures(model, before) == []

    def test_to_the_models_type(self, pythia: Pythia) -> None:
        model = build()
        report = remap.load_into(model, pythia("fp16"), RULES, policy="magma", dtype="model")
        assert departures(model, {k: v.float() for k, v in expected(pythia("fp16")).items()}) == []
        assert "dtype-mismatch" not in report.counts

    def test_to_the_checkpoints_type(self, pythia: Pythia) -> None:
        model = build()
        remap.load_into(model, pythia("fp16"), RULES, policy="magma", dtype="checkpoint")
        assert departures(model, expected(pythia("fp16"))) == []
        assert model["2"].attention.adapter[0].weight.dtype == torch.float32

    def test_to_a_type_by_name(self, pythia: Pythia) -> None:
        model = build()
        remap.load_into(model, pythia("fp32"), RULES, policy="magma", dtype="bfloat16")
        wanted = {k: v.bfloat16() for k, v in expected(pythia("fp32")).items()}
        assert departures(model, wanted) == []

    def test_copying_cannot_change_a_type(self, pythia: Pythia) -> None:
        with pytest.raises(UsageError, match="would change its type"):
            remap.load_into(build(), pythia("fp16"), RULES, policy="magma", dtype="checkpoint", assign=False)

    @pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
    @pytest.mark.parametrize("fit", ["model", "checkpoint"])
    def test_codes_never_become_numbers(self, tmp_path: Path, dtype: torch.dtype, fit: str) -> None:
        save_file({"weight": torch.ones(2, 2).to(dtype)}, tmp_path / "codes.safetensors")
        model = nn.Linear(2, 2, bias=False)
        before = state(model)
        with pytest.raises(AuditFailed, match="RM306 dtype-kind: weight"):
            remap.load_into(model, tmp_path / "codes.safetensors", dtype=fit)
        policy = tmp_path / "policy.yaml"
        policy.write_text("policy: 1\nname: ours\nlevels: {dtype-kind: allow}\n")
        report = remap.load_into(model, tmp_path / "codes.safetensors", policy=policy, dtype=fit)
        assert departures(model, before) == []
        assert report.notes[-1] == "1 tensors that both have do not fit, and are not loaded: weight"

    def test_a_mask_of_bytes_becomes_one_of_bools(self, tmp_path: Path) -> None:
        model = nn.Module()
        model.register_buffer("mask", torch.zeros(3, dtype=torch.bool))
        model.register_buffer("count", torch.tensor(0))
        mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
        save_file({"mask": mask, "count": torch.tensor(7, dtype=torch.int32)}, tmp_path / "m.safetensors")
        remap.load_into(model, tmp_path / "m.safetensors", dtype="model")
        assert model.mask.tolist() == [True, False, True]
        assert (model.count.dtype, int(model.count)) == (torch.int64, 7)


class TestMeta:
    def test_a_model_without_memory_is_filled(self, pythia: Pythia) -> None:
        with torch.device("meta"):
            model = build()
        model["2"].attention.attn_block.dense.weight.requires_grad_(False)
        report = remap.load_into(model, pythia("fp32"), RULES, policy="magma")
        assert departures(model, expected(pythia("fp32"))) == []
        assert not model["2"].attention.attn_block.dense.weight.requires_grad
        assert model["2"].attention.attn_block.dense.bias.requires_grad
        assert [n for n in report.notes if "32 tensors of the model are on the meta device still" in n]

    def test_copying_needs_memory(self, pythia: Pythia) -> None:
        with torch.device("meta"):
            model = build()
        with pytest.raises(UsageError, match="no memory"):
            remap.load_into(model, pythia("fp32"), RULES, policy="magma", assign=False)

    def test_assigned_tensors_have_memory_of_their_own(self, pythia: Pythia) -> None:
        model = build()
        old = model["7"].norm.weight.data_ptr()
        remap.load_into(model, pythia("fp32"), RULES, policy="magma", assign=True)
        assert model["7"].norm.weight.data_ptr() != old
        assert departures(model, expected(pythia("fp32"))) == []
        with torch.no_grad():
            model["7"].norm.weight.add_(1)  # the source's file is not behind it
        assert departures(build_loaded(pythia), expected(pythia("fp32"))) == []


def build_loaded(pythia: Pythia) -> nn.Module:
    model = build()
    remap.load_into(model, pythia("fp32"), RULES, policy="magma")
    return model


class TestTies:
    @pytest.mark.parametrize("meta", [False, True])
    def test_they_are_kept(self, pythia: Pythia, meta: bool) -> None:
        with torch.device("meta" if meta else "cpu"):
            model = build(tied=True)
        wanted = expected(pythia("tied-fp32"))
        report = remap.load_into(model, pythia("tied-fp32"), RULES, policy="magma")
        assert model["8"].final_linear.weight is model["0"].word_embeddings.weight
        assert model["8"].final_linear.weight.equal(wanted["0.word_embeddings.weight"])
        assert report.counts["missing-tied"] == 1

    def test_two_values_for_one_tensor_are_refused(self, pythia: Pythia) -> None:
        model = build(tied=True)
        before = state(model)
        with pytest.raises(UsageError, match=r"0.word_embeddings.weight and 8.final_linear.weight"):
            remap.load_into(model, pythia("fp32"), RULES, policy="magma")
        assert departures(model, before) == []

    def test_views_of_one_tensor_are_a_tie_too(self, tmp_path: Path) -> None:
        save_file({"0.weight": torch.ones(3, 3), "1.weight": torch.zeros(3, 3)}, tmp_path / "m.safetensors")
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        model[1].weight = nn.Parameter(model[0].weight.data)
        with pytest.raises(UsageError, match=r"0.weight and 1.weight"):
            remap.load_into(model, tmp_path / "m.safetensors")

    def test_a_model_with_a_head_of_its_own_needs_one(self, pythia: Pythia) -> None:
        """The checkpoint's config ties them, and has one tensor for both."""
        with pytest.raises(AuditFailed, match=r"RM101 missing-parameter: 8.final_linear.weight.*of its own"):
            remap.load_into(build(), pythia("tied-fp32"), RULES, policy="magma")

    def test_one_value_twice_is_fine(self, tmp_path: Path) -> None:
        weight = torch.randn(3, 3)
        save_file({"0.weight": weight, "1.weight": weight.clone()}, tmp_path / "m.safetensors")
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        model[1].weight = model[0].weight
        remap.load_into(model, tmp_path / "m.safetensors", assign=True)
        assert model[0].weight.equal(weight)
        assert model[1].weight is model[0].weight


def test_what_lies_at_one_place_for_many_elements_is_replaced(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.zeros(1).expand(4))
    save_file({**linear_of_ones(), "mask": torch.arange(4.0)}, tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match="mask: has one place in memory for several elements"):
        remap.load_into(model, tmp_path / "m.safetensors", assign=False)
    remap.load_into(model, tmp_path / "m.safetensors")
    assert model.mask.tolist() == [0, 1, 2, 3]


def linear_of_ones() -> dict[str, torch.Tensor]:
    return {"weight": torch.ones(2, 2), "bias": torch.ones(2)}


class TestOwnLoadingCode:
    def test_a_batch_norm_gets_its_statistics(self, tmp_path: Path) -> None:
        other = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        other(torch.randn(8, 3))
        save_file(other.state_dict(), tmp_path / "m.safetensors")
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        report = remap.load_into(model, tmp_path / "m.safetensors")
        assert departures(model, dict(other.state_dict())) == []
        assert int(model[1].num_batches_tracked) == 1
        assert report.counts["matched"] == 7

    def test_a_hook_sees_all_tensors_of_its_module(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(2, 2))
        seen: list[list[str]] = []

        def hook(module: nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *_: object) -> None:
            seen.append(sorted(state_dict))
            state_dict["weight"] = state_dict["weight"] * 2

        model[0].register_load_state_dict_pre_hook(hook)
        save_file({"0.weight": torch.ones(2, 2), "0.bias": torch.zeros(2)}, tmp_path / "m.safetensors")
        remap.load_into(model, tmp_path / "m.safetensors")
        assert seen == [["bias", "weight"]]
        assert model[0].weight.eq(2).all()

    def test_a_name_that_a_hook_made_is_loaded_by_the_model(self, tmp_path: Path) -> None:
        class Renaming(nn.Linear):
            def __init__(self) -> None:
                super().__init__(2, 2, bias=False)
                self.register_state_dict_post_hook(self._out)
                self.register_load_state_dict_pre_hook(self._in)

            @staticmethod
            def _out(module: nn.Module, state: dict[str, torch.Tensor], prefix: str, _: object) -> None:
                state[prefix + "kernel"] = state.pop(prefix + "weight")

            @staticmethod
            def _in(module: nn.Module, state: dict[str, torch.Tensor], prefix: str, *_: object) -> None:
                if prefix + "kernel" in state:
                    state[prefix + "weight"] = state.pop(prefix + "kernel")

        model = nn.Sequential(Renaming())
        save_file({"0.kernel": torch.ones(2, 2)}, tmp_path / "m.safetensors")
        remap.load_into(model, tmp_path / "m.safetensors")
        assert model[0].weight.eq(1).all()


def test_parameters_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    model.bias.ds_id = 0  # as deepspeed.zero.Init marks them
    torch.save(nn.Linear(2, 3).state_dict(), tmp_path / "m.pt")
    with pytest.raises(UsageError, match="cut up"):
        remap.load_into(model, tmp_path / "m.pt")


def test_a_damaged_file_says_that_the_model_is_partly_loaded(pythia: Pythia, tmp_path: Path) -> None:
    source = tmp_path / "m.pt"
    torch.save(read_tensors(pythia("fp16")), source)
    data = bytearray(source.read_bytes())
    wanted = read_tensors(pythia("fp16"))["gpt_neox.final_layer_norm.weight"].numpy().tobytes()
    data[data.index(wanted)] ^= 1
    source.write_bytes(data)
    with pytest.raises(Damaged, match=r"CRC-32.*the model is partly loaded: 3 of 52 tensors"):
        remap.load_into(build().half(), source, RULES, policy="magma")


def test_memory_is_that_of_one_tensor(tmp_path: Path) -> None:
    size, count = 1 << 20, 24
    save_file({f"{i}.weight": torch.ones(1024, 256) for i in range(count)}, tmp_path / "m.safetensors")
    model = nn.Sequential(*(nn.Linear(256, 1024, bias=False) for _ in range(count)))
    tracemalloc.start()
    try:
        remap.load_into(model, tmp_path / "m.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model[count - 1].weight.eq(1).all()
    assert size <= peak < 4 * size, peak


def test_a_computed_tensor_goes_in(tmp_path: Path) -> None:
    weight = torch.arange(32 * 8, dtype=torch.float32).reshape(32, 8)
    save_file({"wq": weight}, tmp_path / "m.safetensors")
    pack = tmp_path / "turn.yaml"
    pack.write_text(
        """
remap: 1
pack: test/transposed
version: 1.0.0
title: a matrix, transposed
stages:
  - rules:
      - id: turned
        from: wq
        to: weight
        do: transpose
"""
    )
    model = nn.Linear(32, 8, bias=False)
    remap.load_into(model, tmp_path / "m.safetensors", [pack], assign=True)
    assert model.weight.equal(weight.T)
    assert model.weight.is_contiguous()
