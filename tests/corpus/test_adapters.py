"""Every adapter of the corpus: read whole, put on its base (PEFT's own key list of the model is the right
value), taken out again, held against the base; the UNet's LoRA in every dialect, values included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import remap
from remap.adapters import extract, graft, migrate, read
from remap.dialects import registry
from remap.dialects.wrapping import bare
from remap.errors import UsageError

PROMPTS = ("prefix", "prefix_proj", "prompt", "ptuning")


def base_of(folder: Path, destination: Path) -> dict[str, list[int]]:
    """A base of the sizes that the model's key list tells, and that list."""
    model = {k: s for k, (s, _) in json.loads((folder / "keys_in_model.json").read_text()).items()}
    known = registry.get("peft-model")
    around = known.around([t for t in map(known.parse, model) if t])  # type: ignore[attr-defined]
    state = {bare(k, around): s for k, s in model.items() if known.parse(k) is None}
    destination.mkdir()
    save_file(
        {k: np.random.rand(*s).astype(np.float32) for k, s in state.items()},
        destination / "model.safetensors",
    )
    tied = folder.parent.name == "opt"
    (destination / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    return model


def test_every_method_on_every_base(data: Path, tmp_path: Path) -> None:
    folders = sorted(p.parent for p in (data / "adapters").glob("*/*/keys_in_model.json"))
    single = [f for f in folders if (f / "adapter_config.json").is_file()]
    assert len(single) == 44
    for folder in single:
        here = tmp_path / f"{folder.parent.name}-{folder.name}"
        here.mkdir()
        found = read(folder)
        embedding = folder.name == "lora_emb" and folder.parent.name == "opt"  # PEFT saved the base's, too
        assert len(found.base) == embedding, folder
        model = base_of(folder, here / "base")
        if folder.name in PROMPTS:
            with pytest.raises(UsageError, match="changes no weight"):
                graft(here / "base", folder, here / "model")
            continue
        graft(here / "base", folder, here / "model.safetensors", others="drop")
        made = remap.open(here / "model.safetensors")
        assert {k: list(made.spec(k).shape) for k in made} == model, folder
        extract(here / "model.safetensors", here / "again", config=folder / "adapter_config.json")
        left = [d for d in remap.diff(here / "again", folder) if d.key not in found.base]
        assert left == [], folder
        report = remap.audit(folder, here / "base")
        assert report.passed != embedding, folder


@pytest.mark.parametrize("to", ["peft", "diffusers", "kohya"])
@pytest.mark.parametrize("source", ["peft", "diffusers", "kohya"])
def test_the_unet_s_lora(data: Path, tmp_path: Path, source: str, to: str) -> None:
    folder = data / "adapters" / "sd_unet_lora"
    migrate(folder / f"{source}.safetensors", tmp_path / "out.safetensors", to=to)
    assert remap.diff(tmp_path / "out.safetensors", folder / f"{to}.safetensors") == []


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("unet__sd15_diffusers", "unet"),
        ("unet__sdxl_diffusers", "unet"),
        ("transformer__flux_dev_diffusers", "transformer"),
        ("transformer__sd3_diffusers", "transformer"),
    ],
)
def test_every_module_of_the_published_models_is_found_by_its_flattened_name(
    data: Path, name: str, component: str
) -> None:
    from remap.dialects.modules import flat, shipped

    keys = remap.open(data / "keys" / "sd" / f"{name}.json.gz")
    modules = {k.rpartition(".")[0] for k in keys if len(keys.spec(k).shape) >= 2}
    assert len(modules) > 100
    unknown = {m for m in modules if (component, m) not in shipped(flat(m))}
    assert unknown <= {"pos_embed"}  # SD 3's table of positions
    assert all(len(shipped(flat(m))) == 1 for m in modules - unknown)
