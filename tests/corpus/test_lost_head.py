"""An adapter whose head is lost without a warning by the current libraries: the corpus has the real one.

transformers 4 called GPT-NeoX's head ``embed_out``, 5 calls it ``lm_head``; an adapter that was trained on it
loads without it, and nobody says so (``logits.pt`` has what the model should say).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import remap
from remap.errors import AuditFailed

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

HEAD = "base_model.model.{}.lora_{}.{}weight"


@pytest.fixture
def folder(data: Path) -> Path:
    return data / "adapters/across_versions/neox_lora_head"


def base(folder: Path) -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(folder / "base")


def test_it_is_lost_and_the_watch_says_which_keys(folder: Path) -> None:
    with pytest.raises(AuditFailed, match="embed_out"), remap.watch() as watched:
        peft.PeftModel.from_pretrained(base(folder), folder / "adapter")
    _, adapter = watched.reports  # the base model's was fine
    assert [f.key for f in adapter.of("unexpected-adapter")] == [
        HEAD.format("embed_out", side, "") for side in "AB"
    ]


def test_a_rename_saves_it(folder: Path, tmp_path: Path) -> None:
    pack = tmp_path / "head.yaml"
    pack.write_text(
        """
remap: 1
pack: test/head
version: 1.0.0
title: an adapter of transformers 4 for the model of 5, in one that has its name in the keys
stages:
  - rules:
      - id: head
        from: "base_model.model.embed_out.{part:lora_A|lora_B}.weight"
        to: "base_model.model.lm_head.{part}.default.weight"
      - id: body
        from: "{module:path}.query_key_value.{part:lora_A|lora_B}.weight"
        to: "{module}.query_key_value.{part}.default.weight"
"""
    )
    config = peft.LoraConfig.from_pretrained(folder / "adapter")
    config.target_modules = {"lm_head", "query_key_value"}
    config.base_model_name_or_path = str(folder / "base")  # or PEFT warns
    model = peft.get_peft_model(base(folder), config).eval()
    policy = tmp_path / "adapter.yaml"
    policy.write_text("policy: 1\nname: adapter\nlevels: {missing-parameter: allow, missing-buffer: allow}\n")
    report = remap.load_into(model, folder / "adapter", [pack], policy=policy)
    assert report.counts["renamed"] == 6
    with torch.no_grad():
        logits = model(torch.arange(8)[None]).logits
    assert torch.allclose(logits, torch.load(folder / "logits.pt", weights_only=True), atol=1e-6)
    lost = torch.load(folder / "nohead_5.24.0.pt", weights_only=True)
    assert (logits - lost).abs().max() > 1e-3
