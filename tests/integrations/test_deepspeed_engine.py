"""A real pipeline of two stages loads what was never written for it, or is watched while it loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import remap

pytest.importorskip("deepspeed")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from integrations.magma_model import expected  # noqa: E402
from integrations.remapped_pipeline import PROGRAM, Remapped  # noqa: E402
from judges.neox_pipeline import launch  # noqa: E402

Results = Mapping[str, list[dict[str, Any]]]
LAYERS = 4


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remapped")


@pytest.fixture(scope="module")
def wanted(pythia: Callable[[str], Path]) -> dict[str, dict[str, torch.Tensor]]:
    """Variant -> what the pipeline's layers must hold."""
    found = {name: expected(pythia(name)) for name in ("fp32", "fp16", "tied-fp32")}
    return {**found, "fp16": {k: v.float() for k, v in found["fp16"].items()}}


@pytest.fixture(scope="module")
def results(
    pythia: Callable[[str], Path], wanted: dict[str, dict[str, torch.Tensor]], scratch: Path
) -> Results:
    """Job -> what each of two stages says. One launch for all."""
    for name, tensors in wanted.items():
        torch.save(tensors, scratch / f"{name}.pt")
    neox, magma = scratch / "neox", scratch / "magma"
    remap.convert(pythia("fp32"), neox, ["gpt_neox/hf-to-neox"], to="deepspeed-pipeline")
    remap.convert(pythia("fp32"), magma, ["magma/from-hf"], to="deepspeed-pipeline")
    (scratch / "empty").mkdir()

    def job(name: str, folder: Path, variant: str = "fp32", **how: Any) -> Remapped:
        right = str(scratch / f"{variant}.pt")
        return Remapped(name, str(folder), layers=LAYERS, expected=right, **how)

    hf = ("magma/from-hf",)
    jobs = [
        job("watched, no pipeline", scratch / "plain", how="plain"),
        job("hugging face", pythia("fp32"), rules=hf, resave=str(scratch / "saved")),
        job("another type", pythia("fp16"), "fp16", rules=hf, fit="model"),
        job("another type, unasked", pythia("fp16"), "fp16", rules=hf),
        job("tied", pythia("tied-fp32"), "tied-fp32", rules=hf, tied=True),
        job("neox", neox, rules=("magma/wrap-adapters",)),
        job("strict", pythia("fp32"), rules=hf, policy="strict"),
        job("watched, fine", magma, how="watch"),
        job("watched, not renamed", neox, how="watch"),
        job("parts", pythia("fp32"), rules=hf, how="parts"),
        job("watched, nothing there", scratch / "empty", how="watch"),
    ]
    return launch(jobs, 2, scratch / "run", program=PROGRAM)


@pytest.mark.parametrize(
    ("job", "variant"),
    [("hugging face", "fp32"), ("neox", "fp32"), ("another type", "fp16"), ("tied", "tied-fp32")],
)
def test_every_base_weight_arrives_and_no_adapter_is_touched(
    results: Results, wanted: dict[str, dict[str, torch.Tensor]], job: str, variant: str
) -> None:
    stages = results[job]
    assert [s["error"] for s in stages] == ["", ""]
    assert {k for s in stages for k in s["loaded"]} == wanted[variant].keys()
    kept = {k for s in stages for k in s["kept"]}
    assert len(kept) == 8 * LAYERS
    assert all(".adapter." in k for k in kept)


def test_both_stages_report_on_the_whole_pipeline(results: Results) -> None:
    for stage in results["hugging face"]:
        (counts,) = stage["counts"]
        assert counts["renamed"] == 52
        assert counts["missing-adapter"] == 8 * LAYERS


def test_what_the_policy_fails_is_loaded_nowhere(results: Results) -> None:
    for stage in results["strict"]:
        assert "AuditFailed" in stage["error"]
        assert "nothing was loaded" in stage["error"]
        assert stage["loaded"] == []
    assert len({k for s in results["strict"] for k in s["kept"]}) == 52 + 8 * LAYERS


def test_a_type_that_differs_is_not_cast_unasked(results: Results) -> None:
    for stage in results["another type, unasked"]:
        assert "f16[64], the model has f32[64]" in stage["error"]
        assert stage["loaded"] == []


def test_the_engines_own_checkpoint_engine_saves_and_is_put_back(results: Results, scratch: Path) -> None:
    assert all(s.get("put back", True) for stages in results.values() for s in stages)
    saved = remap.open(scratch / "saved")
    assert len(saved) == 52 + 8 * LAYERS
    written = remap.open(scratch / "magma")
    assert all(saved[k].equal(written[k]) for k in written)


class TestWatch:
    """The first stage has the layers 0 to 4, of which 2, 3, 4 are transformer layers; the second has 5."""

    def test_a_stage_is_one_load(self, results: Results) -> None:
        stages = results["watched, fine"]
        assert [s["error"] for s in stages] == ["", ""]
        assert [len(s["counts"]) for s in stages] == [1, 1]
        assert [s["counts"][0]["missing-adapter"] for s in stages] == [8 * 3, 8 * 1]
        assert [s["counts"][0]["matched"] for s in stages] == [1 + 12 * 3, 12 * 1 + 2 + 1]

    def test_names_that_do_not_fit_are_named_with_their_layers(self, results: Results) -> None:
        first, second = results["watched, not renamed"]
        for stage, layers in ((first, 3), (second, 1)):
            (counts,) = stage["counts"]
            assert counts["missing-parameter"] == counts["unexpected-parameter"] == 8 * layers
        assert "{2..4}.attention.attn_block.dense.weight" in first["error"]
        assert "5.attention.attn_block.dense.weight" in second["error"]
        assert "magma/wrap-adapters" in first["error"]

    def test_an_engine_without_a_pipeline_is_seen_as_its_module(self, results: Results) -> None:
        for stage in results["watched, no pipeline"]:
            assert "RM401 zero-overlap" in stage["error"]
            assert "0.weight" in stage["error"]

    def test_an_engine_that_finds_no_checkpoint_fails(self, results: Results) -> None:
        for stage in results["watched, nothing there"]:
            assert "RM401 zero-overlap" in stage["error"]


def test_of_a_model_in_parts_each_rank_loads_its_own(results: Results) -> None:
    assert results["parts"] == [{"wrong": []}, {"wrong": []}]
