"""What is in a file: whose adapter, which tensors, and what is none of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from remap.adapters import read
from remap.adapters.about import about
from remap.adapters.scaling import alpha, rank, scale
from remap.errors import Damaged, NotACheckpoint

DATA = Path(__file__).parent.parent / "data" / "adapters"
PEFT = json.loads(gzip.decompress((DATA / "peft_neox.json.gz").read_bytes()))


def folder(path: Path, keys: dict[str, tuple[int, ...]], config: object = None) -> Path:
    """An adapter's folder, all ones."""
    path.mkdir(exist_ok=True)
    save_file({k: np.ones(s, np.float32) for k, s in keys.items()}, path / "adapter_model.safetensors")
    if config is not None:
        (path / "adapter_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("method", PEFT)
def test_every_tensor_of_a_peft_file_is_the_adapter_s(tmp_path: Path, method: str) -> None:
    found = PEFT[method]
    keys = {k: tuple(s) for k, (s, _) in found["file"].items()}
    adapter = read(folder(tmp_path / "a", keys, found["config"]))
    assert (adapter.dialect, adapter.base) == ("peft", ())
    assert {t.key for t in adapter.tensors} == keys.keys()
    modules = {m for m in adapter.modules if m}
    in_model = {k.removeprefix("base_model.model.") for k in found["model"]}
    assert all(any(k.startswith(f"{m}.") for k in in_model) for m in modules)


def test_only_the_configuration_tells_a_trained_module_from_a_weight_of_the_base(tmp_path: Path) -> None:
    keys = {
        "base_model.model.lm_head.weight": (4, 2),
        "base_model.model.q.base_layer.weight": (2, 2),
        "base_model.model.q.lora_A.weight": (1, 2),
        "base_model.model.q.lora_B.weight": (2, 1),
        "base_model.model.norm.bias": (2,),
    }
    assert set(read(folder(tmp_path / "none", keys)).base) == {k for k in keys if "lora" not in k}
    config = {"peft_type": "LORA", "modules_to_save": ["lm_head"], "bias": "all"}
    found = read(folder(tmp_path / "all", keys, config))
    assert found.base == ("base_model.model.q.base_layer.weight",)
    assert found.of("lm_head").keys() == {"modules_to_save.weight"}
    assert found.of("norm").keys() == {"bias"}


def test_wrappers_of_training_are_seen_through(tmp_path: Path) -> None:
    keys = {f"module._orig_mod.base_model.model.q.lora_{x}.default.weight": (2, 2) for x in "AB"}
    found = read(folder(tmp_path / "a", keys))
    assert (found.dialect, found.modules) == ("peft-model", ("q",))
    assert {t.key for t in found.tensors} == keys.keys()


def test_a_file_without_any_says_where_it_was_looked_for(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", {"q.weight": (2, 2)})
    with pytest.raises(NotACheckpoint, match="no tensor of an adapter") as refused:
        read(path)
    assert refused.value.problems == (str(path / "adapter_model.safetensors"),)


def test_scales(tmp_path: Path) -> None:
    keys = {f"base_model.model.l.{i}.q.lora_{x}.weight": (4, 4) for i in range(12) for x in "AB"}
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "alpha_pattern": {r"l\.1\.q": 2, "^l.11.q": 1}}
    found = read(folder(tmp_path / "plain", keys, config))
    assert {m: scale(found, m) for m in ("l.0.q", "l.1.q", "l.10.q", "l.11.q")} == {
        "l.0.q": 2, "l.1.q": 0.5, "l.10.q": 2, "l.11.q": 0.25,
    }  # fmt: skip
    found = read(folder(tmp_path / "root", keys, {**config, "use_rslora": True}))
    assert scale(found, "l.0.q") == 4  # 8 / sqrt(4)
    found = read(folder(tmp_path / "bare", keys))
    assert (rank(found, "l.0.q"), alpha(found, "l.0.q"), scale(found, "l.0.q")) == (4, None, 1)
    more = {f"base_model.model.l.{i}.q.alpha": () for i in range(12)}
    found = read(folder(tmp_path / "beside", {**keys, **more}, config))
    assert (found.base, scale(found, "l.0.q")) == ((), 0.25)


def test_a_pattern_that_is_none_is_named(tmp_path: Path) -> None:
    keys = {f"base_model.model.q.lora_{x}.weight": (2, 2) for x in "AB"}
    found = read(folder(tmp_path / "a", keys, {"peft_type": "LORA", "alpha_pattern": {"(": 1}}))
    with pytest.raises(Damaged, match="is no pattern"):
        scale(found, "q")


def test_modules_to_save_are_found_by_the_end_of_their_text(tmp_path: Path) -> None:
    """As PEFT finds them: ``head`` is ``lm_head``."""
    keys = {"q.lora_A.weight": (2, 4), "q.lora_B.weight": (4, 2), "lm_head.weight": (9, 4)}
    found = read(
        folder(
            tmp_path / "adapter",
            {f"base_model.model.{k}": shape for k, shape in keys.items()},
            {"peft_type": "LORA", "modules_to_save": ["head"]},
        )
    )
    assert found.base == ()
    assert ("lm_head", "modules_to_save.weight") in [(t.module, t.leaf) for t in found.tensors]


def test_factors_of_stacked_experts_are_told_by_parameter(tmp_path: Path) -> None:
    """PEFT lays the factors of three experts side by side: each has rank 2, and so its scale."""
    keys = {
        "mlp.experts.base_layer.lora_A.weight": (6, 4),
        "mlp.experts.base_layer.lora_B.weight": (8, 6),
        "mlp.experts.lora_A.weight": (6, 8),
        "mlp.experts.lora_B.weight": (4, 6),
    }
    found = about(
        read(
            folder(
                tmp_path / "adapter",
                {f"base_model.model.{k}": shape for k, shape in keys.items()},
                {
                    "peft_type": "LORA",
                    "r": 2,
                    "lora_alpha": 3,
                    "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
                },
            )
        )
    )
    assert [(row.module, row.rank, row.scale) for row in found.modules] == [
        ("mlp.experts.gate_up_proj", "2", "1.5"),
        ("mlp.experts.down_proj", "2", "1.5"),
    ]


def test_a_model_does_not_tell_its_scales(tmp_path: Path) -> None:
    front = "base_model.model.q"
    keys = {f"{front}.lora_A.{n}.weight": (r, 4) for n, r in (("one", 2), ("two", 3))}
    keys |= {f"{front}.lora_B.{n}.weight": (4, r) for n, r in (("one", 2), ("two", 3))}
    found = about(read(folder(tmp_path / "model", {**keys, f"{front}.base_layer.weight": (4, 4)})))
    assert [(row.adapter, row.rank, row.scale) for row in found.modules] == [
        ("one", "2", ""),
        ("two", "3", ""),
    ]


def test_a_norm_s_own_parameter_is_no_adapter_s_name(tmp_path: Path) -> None:
    """GPT-NeoX' RMSNorm has a scale."""
    keys = {"base_model.model.2.input_layernorm.ln_tuning_layers.scale": (4,)}
    (tensor,) = read(folder(tmp_path / "adapter", keys, {"peft_type": "LN_TUNING"})).tensors
    assert (tensor.module, tensor.leaf) == ("2.input_layernorm", "ln_tuning_layers.scale")
    assert tensor.adapter == "default"
