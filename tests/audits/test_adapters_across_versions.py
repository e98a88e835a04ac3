"""An adapter whose part for the output head is lost without a warning where transformers renamed embed_out
to lm_head.

The key lists in ``tests/data/adapters``: ``adapter`` is the file that peft 0.21 wrote with transformers
4.57; ``as_built`` the model that peft builds of its adapter_config.json with transformers 5.24, ``mended``
with the head's new name in the config. Adapter names are as in peft's files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import remap
from remap import api
from remap.audit import audit
from remap.audits.policy_file import load_policy
from remap.audits.target import open_target
from remap.packs import read
from remap.plan import make_plan

LISTS = Path(__file__).parent.parent / "data" / "adapters"
LOST = {
    "neox_lora_head": {
        "base_model.model.embed_out.lora_A.weight",
        "base_model.model.embed_out.lora_B.weight",
    },
    "neox_mts": {"base_model.model.embed_out.weight"},
}
KEPT = 4
"""lora_A and lora_B of query_key_value in two layers."""


@pytest.mark.parametrize("adapter", LOST)
def test_the_lost_head_fails_and_is_named(adapter: str) -> None:
    report = remap.audit(
        LISTS / f"{adapter}.adapter.json", LISTS / f"{adapter}.as_built.json", policy="adapter"
    )
    assert not report.passed
    failed = {j.finding.key: j.finding.detail for j in report.at("fail")}
    assert failed.keys() == LOST[adapter]
    assert all("base_model.model.lm_head" in detail for detail in failed.values())
    assert report.coverage.keys == KEPT


@pytest.mark.parametrize(
    ("adapter", "change"),
    [("neox_lora_head", "embed_out -> lm_head"), ("neox_mts", "embed_out -> lm_head.modules_to_save")],
)
def test_the_suggested_rename_saves_it(adapter: str, change: str) -> None:
    source = api.catalog(LISTS / f"{adapter}.adapter.json")
    wanted = open_target(LISTS / f"{adapter}.mended.json")
    best = audit(source, wanted, None, load_policy("adapter")).suggestions[0]
    assert best.what == f"rename {change}"
    plan = make_plan(source, [read(best.pack.encode(), "fix.yaml")])
    report = audit(source, wanted, plan, load_policy("adapter"))
    assert report.passed
    assert report.coverage.keys == KEPT + len(LOST[adapter])
