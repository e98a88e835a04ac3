"""An adapter of every method, migrated: PEFT loads it onto the base that the same pack converted, and the
model says what it said before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from adapters import bench, models

import remap
from remap.errors import PlanError

RENAME_ONLY = ["adalora", "loha", "lokr", "lokr-patterns", "vera", "oft", "boft", "prefix"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base in the names of transformers, and in those of both packs."""
    root = tmp_path_factory.mktemp("lab")
    models.saved(models.neox(), root / "base")
    for name, text in (("sideways", models.SIDEWAYS), ("split", models.SPLIT)):
        (root / f"{name}.yaml").write_text(text)
        remap.convert(root / "base", root / name, [root / f"{name}.yaml"])
    return root


@pytest.mark.parametrize("method", bench.METHODS)
def test_renamed(lab: Path, tmp_path: Path, method: str) -> None:
    """With the base's keys known the configuration has short names, without them whole paths."""
    before = bench.made(models.neox(), bench.METHODS[method], tmp_path / "old")
    wanted = models.logits(before)
    said = models.logits(models.neox())
    assert (wanted[:, -said.shape[1] :] - said).abs().max() > 1e-3  # prompts come before the text
    for base in (lab / "base", None):
        if method == "prefix" and base is None:
            continue  # refused: the base's keys tell that no row moves
        output = tmp_path / ("short" if base else "whole")
        bench.migrate(tmp_path / "old", output, [bench.pack(models.SIDEWAYS)], base)
        after = bench.on(models.sideways(lab / "sideways"), output)
        torch.testing.assert_close(models.logits(after), wanted)
        report = remap.audit(output, lab / "sideways", policy="lora")
        assert report.passed, report.findings


@pytest.mark.parametrize("method", [m for m in bench.METHODS if m not in RENAME_ONLY])
def test_split(lab: Path, tmp_path: Path, method: str) -> None:
    """Fused query, key and value, head by head, become three modules."""
    before = bench.made(models.neox(), bench.METHODS[method], tmp_path / "old")
    bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SPLIT)], lab / "base")
    after = bench.on(models.split(lab / "split"), tmp_path / "new")
    torch.testing.assert_close(models.logits(after), models.logits(before))
    bench.migrate(
        tmp_path / "new", tmp_path / "back", [bench.pack(models.SPLIT)], lab / "split", inverse=True
    )
    again = bench.on(models.neox(), tmp_path / "back")
    torch.testing.assert_close(models.logits(again), models.logits(before))


@pytest.mark.parametrize("method", RENAME_ONLY)
def test_what_follows_a_rename_only_is_refused(lab: Path, tmp_path: Path, method: str) -> None:
    bench.made(models.neox(), bench.METHODS[method], tmp_path / "old")
    with pytest.raises(PlanError) as refused:
        bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SPLIT)], lab / "base")
    assert len(refused.value.problems) == (1 if method == "prefix" else 2 * 3)
    assert not (tmp_path / "new").exists()


def test_adalora_s_ranks_are_kept_by_the_names_of_tensors(lab: Path, tmp_path: Path) -> None:
    """After training: ``rank_pattern`` says of every singular value whether it is left."""
    bench.made(models.neox(), bench.METHODS["adalora"], tmp_path / "old")
    file = tmp_path / "old/adapter_config.json"
    left = [True, False] * 3
    said = json.loads(file.read_text())
    said["rank_pattern"] = {
        f"gpt_neox.layers.{n}.attention.query_key_value.lora_E": left for n in range(models.LAYERS)
    }
    file.write_text(json.dumps(said))
    found = bench.migrate(tmp_path / "old", tmp_path / "new", [bench.pack(models.SIDEWAYS)], lab / "base")
    assert found["rank_pattern"] == {
        f"gpt_neox.blocks.{n}.attention.qkv.lora_E": left for n in range(models.LAYERS)
    }
