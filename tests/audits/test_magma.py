"""The case that this began with: a Pythia checkpoint and a MAGMA model with adapters and an image prefix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from audits.magma_model import LAYERS, build

import remap
from remap import api
from remap.audits.report import Report
from remap.audits.target import Target
from remap.integrations.torch_model import target_of
from remap.packs import load, read
from remap.plan import make_plan
from remap.types import Catalog

ADAPTER_TENSORS = LAYERS * 2 * 4
"""Attention and MLP of each layer; weight and bias of two linear layers."""
VISION_TENSORS = 2 * 2 + 4 + 2 + 2
"""Two convolutions, a batch norm with its statistics, projection, layer norm; num_batches_tracked is a
counter."""
PYTHIA = 12 * LAYERS + 4


def model(**options: bool) -> Target:
    with torch.device("meta"):
        return target_of(build(**options), "magma")


@pytest.fixture(scope="module")
def hf(pythia: Callable[[str], Path]) -> Catalog:
    """transformers 5 calls the head lm_head."""
    return api.catalog(pythia("fp32"))


@pytest.fixture(scope="module")
def pipeline(hf: Catalog) -> Catalog:
    """The same under the names of GPT-NeoX, not wrapped."""
    return renamed(hf, "gpt_neox/hf-to-neox")


def renamed(source: Catalog, pack: str) -> Catalog:
    from dataclasses import replace

    from remap.types import Entry

    outputs = make_plan(source, [load(pack)]).outputs
    return replace(source, entries={o.key: Entry(o.key, o.expr.spec) for o in outputs})


def modules(report: Report, part: str) -> tuple[int, int]:
    """How many keys with ``.part.`` are loaded, of how many."""
    findings = [
        f
        for f in report.findings
        if f".{part}." in f.key and f.expected and f.category != "unverified-layout"
    ]
    return sum(f.category in ("matched", "renamed") for f in findings), len(findings)


def test_unrenamed_from_hugging_face_nothing_matches_and_the_pack_is_named(hf: Catalog) -> None:
    report = remap.audit(hf, model(), policy="magma")
    assert not report.passed
    assert report.of("zero-overlap")
    assert modules(report, "attention")[0] == modules(report, "mlp")[0] == 0
    best = report.suggestions[0]
    assert best.kind == "pack"
    assert best.command.endswith("-r magma/from-hf")
    assert (best.before, best.after) == (0, PYTHIA)


def test_unwrapped_names_match_outside_of_attention_and_mlp_only(pipeline: Catalog) -> None:
    report = remap.audit(pipeline, model(), policy="magma")
    assert not report.passed
    assert modules(report, "attention") == (0, LAYERS * (4 + 4))
    assert modules(report, "mlp") == (0, LAYERS * (4 + 4))
    assert report.counts["matched"] == 4 * LAYERS + 4
    best = report.suggestions[0]
    assert best.command.endswith("-r magma/wrap-adapters")
    assert best.after == PYTHIA


def test_renamed_it_passes_and_the_counts_are_exact(hf: Catalog) -> None:
    report = remap.audit(hf, model(), ["magma/from-hf"], policy="magma")
    assert report.passed
    assert dict(report.counts) == {
        "renamed": PYTHIA,
        "missing-adapter": ADAPTER_TENSORS,
        "missing-vision": VISION_TENSORS,
        "missing-buffer": 1,  # num_batches_tracked
        "unverified-layout": LAYERS,  # attention.dense is square
    }
    assert report.coverage.keys == PYTHIA
    assert report.coverage.all_keys == PYTHIA + ADAPTER_TENSORS + VISION_TENSORS + 1


def test_the_strict_policy_does_not_let_adapters_be_missing(hf: Catalog) -> None:
    report = remap.audit(hf, model(), ["magma/from-hf"])
    assert not report.passed
    assert {j.finding.category for j in report.at("fail")} == {"missing-adapter", "missing-vision"}


@pytest.mark.parametrize(
    "key", ["2.attention.attn_block.dense.weight", "5.mlp.attn_block.dense_4h_to_h.bias"]
)
def test_one_misnamed_weight_fails_and_is_named(hf: Catalog, key: str) -> None:
    from dataclasses import replace

    converted = renamed(hf, "magma/from-hf")
    wrong = key.replace("dense", "dens", 1)
    entries = {(wrong if k == key else k): e for k, e in converted.entries.items()}
    report = remap.audit(replace(converted, entries=entries), model(), policy="magma")
    assert not report.passed
    (missing,) = report.of("missing-parameter")
    assert missing.key == key
    assert wrong in missing.detail
    (unexpected,) = report.of("unexpected-parameter")
    assert unexpected.key == wrong


@pytest.mark.parametrize(
    ("options", "adapters"),
    [({"layernorm": True}, LAYERS * 2 * 6), ({"parallel": True}, LAYERS * 2 * 5)],
    ids=["layernorm", "parallel"],
)
def test_other_adapters(pipeline: Catalog, options: dict[str, bool], adapters: int) -> None:
    """With a LayerNorm the linear layers are adapter.1 and adapter.3; parallel ones nest the wrapped in
    ``module``."""
    wanted = model(**options)
    report = remap.audit(pipeline, wanted, policy="magma")
    assert not report.passed
    assert report.counts["missing-adapter"] == adapters
    best = report.suggestions[0]
    assert best.after == PYTHIA
    after = audit_with(best, pipeline, wanted)
    assert after.passed
    assert after.counts["missing-adapter"] == adapters


def test_parallel_adapters_are_told_by_the_inserted_segment(pipeline: Catalog) -> None:
    best = remap.audit(pipeline, model(parallel=True), policy="magma").suggestions[0]
    assert "attention -> attention.module" in best.what
    assert "mlp -> mlp.module" in best.what


def test_lora(pipeline: Catalog) -> None:
    """The base weights of what is adapted are one level further down; all other names stay."""
    wanted = model(image_prefix=False, adapters=False, lora=True)
    report = remap.audit(pipeline, wanted, policy="lora")
    assert not report.passed
    assert report.counts["missing-adapter"] == LAYERS * 2
    assert report.counts["missing-parameter"] == LAYERS * 2
    best = report.suggestions[0]
    assert "query_key_value -> query_key_value.base_layer" in best.what
    assert audit_with(best, pipeline, wanted, "lora").passed


def audit_with(suggestion: Any, source: Catalog, wanted: Target, policy: str = "magma") -> Report:
    """The audit with what was suggested."""
    from remap.audit import audit
    from remap.audits.policy_file import load_policy

    pack = (
        read(suggestion.pack.encode(), "fix.yaml")
        if suggestion.pack
        else load(suggestion.command.split()[-1])
    )
    return audit(source, wanted, make_plan(source, [pack]), load_policy(policy))
