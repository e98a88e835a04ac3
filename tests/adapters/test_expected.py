"""An adapter held against a base: is it the right one, is every target there, do the ranks agree?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import remap
from remap.audits.report import Report

DATA = Path(__file__).parent.parent / "data" / "adapters"
PEFT = json.loads(gzip.decompress((DATA / "peft_neox.json.gz").read_bytes()))
LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q"]}


def audited(tmp_path: Path, keys: dict[str, list[int]], config: object, base: dict[str, list[int]]) -> Report:
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file({k: np.ones(s, np.float32) for k, s in keys.items()}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    listed = tmp_path / "base.json"
    listed.write_text(json.dumps({k: [s, "float32"] for k, s in base.items()}))
    return remap.audit(folder, listed)


def found(report: Report) -> dict[str, str]:
    return {j.finding.key: j.finding.category for j in report.judged if j.level != "allow"}


def factors(*modules: str, r: int = 2, inputs: int = 4, outputs: int = 4) -> dict[str, list[int]]:
    front = "base_model.model."
    return {f"{front}{m}.lora_A.weight": [r, inputs] for m in modules} | {
        f"{front}{m}.lora_B.weight": [outputs, r] for m in modules
    }


BASE = {f"l.{i}.{m}.weight": [4, 4] for i in range(4) for m in "qo"}


@pytest.mark.parametrize("method", [m for m in PEFT if not m.startswith("p")])  # prompts have no target
def test_every_method_on_its_base_passes(tmp_path: Path, method: str) -> None:
    from remap.dialects import registry
    from remap.dialects.wrapping import bare

    known = registry.get("peft-model")
    model = PEFT[method]["model"]
    around = known.around([t for t in map(known.parse, model) if t])  # type: ignore[attr-defined]
    base = {bare(k, around): s for k, (s, _) in model.items() if known.parse(k) is None}
    keys = {k: s for k, (s, _) in PEFT[method]["file"].items()}
    report = audited(tmp_path, keys, PEFT[method]["config"], base)
    assert found(report) == {}
    assert report.passed


def test_layers_that_were_not_saved_are_named(tmp_path: Path) -> None:
    """Saved by one pipeline stage: the configuration targets q in all four layers."""
    report = audited(tmp_path, factors("l.0.q", "l.1.q"), LORA, BASE)
    assert found(report) == {
        f"base_model.model.l.{i}.q.lora_{x}.weight": "partial-adapter" for i in (2, 3) for x in "AB"
    }


def test_layers_that_are_not_to_be_changed_are_not_missed(tmp_path: Path) -> None:
    config = {**LORA, "target_modules": r"l\.\d\.q", "layers_to_transform": None}
    assert found(audited(tmp_path, factors(*(f"l.{i}.q" for i in range(4))), config, BASE)) == {}


@pytest.mark.parametrize("some", [{"layers_to_transform": [1, 2]}, {"exclude_modules": ["0.q", "3.q"]}])
def test_fewer_layers(tmp_path: Path, some: dict[str, object]) -> None:
    base = {f"model.{k}": s for k, s in BASE.items()}
    report = audited(tmp_path, factors("model.l.1.q", "model.l.2.q"), {**LORA, **some}, base)
    assert found(report) == {}


def test_another_base_has_other_modules_or_sizes(tmp_path: Path) -> None:
    keys = {**factors("l.0.q"), **factors("gone.q"), **factors("l.1.q", inputs=6)}
    report = audited(
        tmp_path, keys, {**LORA, "layers_to_transform": [0, 1]}, {f"m.{k}": s for k, s in BASE.items()}
    )
    assert not report.passed
    keys = {**factors("l.0.q", "l.2.q", "l.3.q"), **factors("gone.q"), **factors("l.1.q", inputs=6)}
    (tmp_path / "two").mkdir()
    assert found(audited(tmp_path / "two", keys, LORA, BASE)) == {
        "base_model.model.gone.q.lora_A.weight": "unexpected-adapter",
        "base_model.model.gone.q.lora_B.weight": "unexpected-adapter",
        "base_model.model.l.1.q.lora_A.weight": "shape-mismatch",
    }


def test_ranks_are_the_configuration_s(tmp_path: Path) -> None:
    keys = {**factors("l.0.q", "l.2.q", "l.3.q"), **factors("l.1.q", r=3)}
    assert set(found(audited(tmp_path, keys, LORA, BASE))) == {
        f"base_model.model.l.1.q.lora_{x}.weight" for x in "AB"
    }
    (tmp_path / "told").mkdir()
    assert found(audited(tmp_path / "told", keys, {**LORA, "rank_pattern": {"1.q": 3}}, BASE)) == {}


def test_weights_of_the_base_are_no_adapter_s(tmp_path: Path) -> None:
    keys = {**factors(*(f"l.{i}.q" for i in range(4))), "base_model.model.l.0.q.base_layer.weight": [4, 4]}
    assert found(audited(tmp_path, keys, LORA, BASE)) == {
        "base_model.model.l.0.q.base_layer.weight": "unexpected-parameter"
    }


def test_a_module_that_was_to_be_saved_is_missed(tmp_path: Path) -> None:
    keys = factors(*(f"l.{i}.q" for i in range(4)))
    report = audited(tmp_path, keys, {**LORA, "modules_to_save": ["head"]}, {**BASE, "head.weight": [9, 4]})
    assert found(report) == {"base_model.model.head.weight": "missing-parameter"}
