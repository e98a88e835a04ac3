"""Real judges: DeepSpeed loads what remap made of a real Pythia, transformers what remap made back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import remap

pytest.importorskip("deepspeed")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from checkpoints import VARIANTS, read_tensors  # noqa: E402
from judges.neox_pipeline import Job, launch, make_weight  # noqa: E402

from remap.adapters import graft  # noqa: E402

Pythia = Callable[[str], Path]
Results = dict[tuple[str, int], list[dict[str, Any]]]

STAGES = (1, 2)
BUFFERS = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")


def layers_of(variant: str) -> int:
    return 12 if variant.startswith("12-") else 4


def as_magma(tensors: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """What a MAGMA pipeline must hold after loading these: the facts, written without remap."""
    fixed = {
        "gpt_neox.embed_in.weight": "0.word_embeddings.weight",
        "gpt_neox.final_layer_norm.weight": f"{layers + 3}.norm.weight",
        "gpt_neox.final_layer_norm.bias": f"{layers + 3}.norm.bias",
        "embed_out.weight": f"{layers + 4}.final_linear.weight",
        "lm_head.weight": f"{layers + 4}.final_linear.weight",
    }
    out = {}
    for key, value in tensors.items():
        if key.endswith(BUFFERS):
            continue
        if key in fixed:
            out[fixed[key]] = value
        else:
            _, _, layer, rest = key.split(".", 3)
            out[wrapped(f"{int(layer) + 2}.{rest}")] = value
    return out


def wrapped(key: str) -> str:
    """The name of a GPT-NeoX weight inside MAGMA's adapters."""
    return re.sub(r"^(\d+)[.](attention|mlp)[.]", r"\1.\2.attn_block.", key)


@pytest.fixture(scope="module")
def magma(pythia: Pythia, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a variant -> its folder of pipeline layer files for MAGMA."""
    root = tmp_path_factory.mktemp("magma")

    def folder(variant: str) -> Path:
        path = root / variant
        if not path.exists():
            remap.convert(pythia(variant), path, rules=["magma/from-hf"], to="deepspeed-pipeline")
        return path

    return folder


@pytest.fixture(scope="module")
def loaded(pythia: Pythia, magma: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """(variant, pipeline stages) -> what each stage says. One launch of DeepSpeed for each size."""
    scratch = tmp_path_factory.mktemp("deepspeed")
    jobs = []
    for variant in VARIANTS:
        tensors = read_tensors(pythia(variant))
        torch.save(as_magma(tensors, layers_of(variant)), scratch / f"{variant}.pt")
        job = Job(
            name=variant,
            folder=str(magma(variant)),
            layers=layers_of(variant),
            dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
            tied=variant.startswith("tied-"),
            expected=str(scratch / f"{variant}.pt"),
        )
        jobs.append(job)
    jobs.append(grafted(pythia("fp32"), scratch))
    found = {stages: launch(jobs, stages, scratch / f"{stages}-stages") for stages in STAGES}
    return {(job.name, stages): found[stages][job.name] for stages in STAGES for job in jobs}


def grafted(base: Path, scratch: Path) -> Job:
    """Adapters of one run on a Pythia: a strict load of all there is."""
    state = as_magma(read_tensors(base), 4)
    adapters = {
        f"{layer}.{part}.adapter.{n}": make_weight(f"trained {layer} {part} {n}", shape)
        for layer in range(2, 6)
        for part in ("attention", "mlp")
        for n, shape in {
            "0.weight": (16, 64),
            "0.bias": (16,),
            "2.weight": (64, 16),
            "2.bias": (64,),
        }.items()
    }
    torch.save(adapters, scratch / "adapters.pt")
    torch.save(state | adapters, scratch / "grafted.pt")
    graft(base, scratch / "adapters.pt", scratch / "grafted", to="deepspeed-pipeline")
    return Job("grafted", str(scratch / "grafted"), expected=str(scratch / "grafted.pt"), strict=True)


@pytest.mark.parametrize("stages", STAGES)
def test_deepspeed_loads_grafted_adapters_strictly(loaded: Results, stages: int) -> None:
    ranks = loaded["grafted", stages]
    assert [problem for rank in ranks for problem in rank["problems"]] == []
    keys = {key for rank in ranks for key in rank["keys"]}
    assert len([key for key in keys if ".adapter." in key]) == 32
    assert len(keys) == 32 + 52


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_deepspeed_loads_every_base_tensor_and_no_adapter(
    loaded: Results, pythia: Pythia, variant: str, stages: int
) -> None:
    ranks = loaded[variant, stages]
    assert [problem for rank in ranks for problem in rank["problems"]] == []
    keys = {key for rank in ranks for key in rank["keys"]}
    adapters = {key for key in keys if ".adapter." in key}
    layers = layers_of(variant)
    assert keys - adapters == as_magma(read_tensors(pythia(variant)), layers).keys()
    assert len(adapters) == 8 * layers


@pytest.mark.parametrize("variant", VARIANTS)
def test_there_and_back_gives_the_same_logits(
    pythia: Pythia, magma: Callable[[str], Path], tmp_path: Path, variant: str
) -> None:
    back = tmp_path / "back"
    remap.convert(magma(variant), back, rules=["magma/from-hf"], inverse=True, to="safetensors")
    kept = {k: v for k, v in read_tensors(pythia(variant)).items() if not k.endswith(BUFFERS)}
    found = read_tensors(back)
    assert found.keys() == kept.keys()
    assert all(torch.equal(found[key], kept[key]) for key in kept)

    shutil.copy(pythia(variant) / "config.json", back)
    assert torch.equal(logits(back), logits(pythia(variant)))


def logits(folder: Path) -> torch.Tensor:
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"]
    tokens = torch.arange(24).reshape(2, 12) * 17 % 512
    with torch.no_grad():
        return model.eval()(tokens).logits


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-NeoX pipeline checkpoint that DeepSpeed itself wrote, on two stages, without adapters."""
    scratch = tmp_path_factory.mktemp("trained")
    launch([Job("trained", str(scratch / "neox"), adapters=False, save=True)], 2, scratch / "run")
    return scratch / "neox"


def layer_files(folder: Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for file in folder.rglob("layer_*-model_states.pt"):
        layer = int(file.name.split("-")[0].removeprefix("layer_"))
        tensors |= {f"{layer}.{key}": value for key, value in torch.load(file, weights_only=True).items()}
    return tensors


def test_what_deepspeed_wrote_is_wrapped_for_magma(trained: Path, tmp_path: Path) -> None:
    remap.convert(trained, tmp_path / "magma", rules=["magma/wrap-adapters"])
    expected = {wrapped(key): value for key, value in layer_files(trained).items()}
    torch.save(expected, tmp_path / "expected.pt")
    job = Job("wrapped", str(tmp_path / "magma"), expected=str(tmp_path / "expected.pt"))
    for stages in STAGES:
        ranks = launch([job], stages, tmp_path / f"{stages}-stages")["wrapped"]
        assert [problem for rank in ranks for problem in rank["problems"]] == []
        assert {k for rank in ranks for k in rank["keys"] if ".adapter." not in k} == expected.keys()


def test_what_deepspeed_wrote_becomes_hugging_face_s(trained: Path, tmp_path: Path) -> None:
    remap.convert(trained, tmp_path / "hf", rules=["gpt_neox/hf-to-neox"], inverse=True, to="safetensors")
    neox = layer_files(trained)
    hf = read_tensors(tmp_path / "hf")
    assert len(hf) == len(neox) == 52
    assert torch.equal(
        hf["gpt_neox.layers.3.attention.query_key_value.weight"], neox["5.attention.query_key_value.weight"]
    )
    assert torch.equal(hf["gpt_neox.final_layer_norm.bias"], neox["7.norm.bias"])
