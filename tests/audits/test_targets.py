"""What a checkpoint may be audited against."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from audits import magma_model
from safetensors.torch import save_file
from torch import nn

import remap
from remap.audits.target import Target, as_catalog, open_target
from remap.errors import UsageError
from remap.formats.keylist import dump
from remap.integrations.torch_model import target_of

MODEL = """
from torch import nn

def build():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    assert model[0].weight.is_meta
    return model

def broken():
    return nn.Linear(4)

def other():
    return {}

def ends():
    raise SystemExit(0)

class Ours(Exception):
    pass

def raises():
    raise Ours("no such thing")

def asserts():
    assert False, "not here"

def imports():
    import no_such_package_of_ours

def shapeless():
    return nn.LazyLinear(4)

def talks():
    print("built")
    return build()

class Nested:
    build = staticmethod(build)
"""
KEYS = [
    "0.weight",
    "0.bias",
    "1.weight",
    "1.bias",
    "1.running_mean",
    "1.running_var",
    "1.num_batches_tracked",
    "2.weight",
    "2.bias",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "house_model.py"
    path.write_text(MODEL)
    return path


def test_a_function_in_a_file(model: Path) -> None:
    found = open_target(f"{model}:build")
    assert list(found.specs) == KEYS
    assert found.buffers == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert found.ties == {"2.weight": "0.weight"}
    assert str(found.specs["0.weight"]) == "f32[4,4]"


def test_a_function_in_a_module(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(model.parent)
    assert list(open_target("house_model:Nested.build").specs) == KEYS


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("{file}:nothing", "has no function 'nothing'"),
        ("{file}:broken", "building the model failed: TypeError"),
        ("{file}:other", "it returned dict, no torch.nn.Module"),
        ("{file}:ends", "building the model failed: SystemExit: 0"),
        ("{file}:raises", "building the model failed: Ours: no such thing ({file}:"),
        ("{file}:asserts", "building the model failed: AssertionError: not here"),
        ("{file}:imports", "building the model failed: ModuleNotFoundError"),
        ("{file}:shapeless", "parameters of the model have no shape yet"),
        ("no_such_package_of_ours:build", "can't be imported"),
        ("no/such/file.py:build", "no such Python file"),
        ("no/such/checkpoint", "nothing to audit against"),
    ],
)
def test_what_is_no_target(model: Path, what: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        open_target(what.format(file=model))
    assert message.format(file=model) in str(error.value)


@pytest.mark.parametrize("text", ["def build(:", "import no_such_package_of_ours", "exit(0)", "1 / 0"])
def test_a_file_that_does_not_run_is_no_target(tmp_path: Path, text: str) -> None:
    (tmp_path / "wrong_model.py").write_text(text)
    with pytest.raises(UsageError, match="can't be imported"):
        open_target(f"{tmp_path / 'wrong_model.py'}:build")


def test_what_building_prints_is_no_part_of_a_report(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_target(f"{model}:talks")
    assert capsys.readouterr() == ("", "built\n")


def test_what_is_no_layout_has_no_parameters(model: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"a": [[2], "float16"]}')
    for what in (f"{model}:build", tmp_path / "keys.json"):
        with pytest.raises(UsageError, match="no layout"):
            open_target(what, params={"layers": "5"})


def test_a_model_is_a_target_and_no_checkpoint(tmp_path: Path) -> None:
    saved = nn.Linear(2, 3)
    save_file(saved.state_dict(), tmp_path / "m.safetensors")
    assert remap.audit(tmp_path / "m.safetensors", nn.Linear(2, 3)).counts == {"matched": 2}
    for wrong in (saved, saved.state_dict()):
        with pytest.raises(UsageError, match="named by its path; this is a"):
            remap.audit(wrong, nn.Linear(2, 3))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="this is a OrderedDict"):
        remap.audit(tmp_path / "m.safetensors", saved.state_dict())  # type: ignore[arg-type]


def test_a_view_is_a_tie_as_the_object_itself_is() -> None:
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = nn.Parameter(tied[0].weight.data)
    assert target_of(tied).ties == {"1.weight": "0.weight"}


def test_a_models_key_list_keeps_buffers_and_ties(model: Path, tmp_path: Path) -> None:
    made = open_target(f"{model}:build")
    path = tmp_path / "keys.json"
    path.write_text(dump(as_catalog(made)))
    read = open_target(path)
    assert (read.specs, read.buffers, read.ties) == (made.specs, made.buffers, made.ties)


def test_a_config_without_weights(pythia: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copy(pythia("fp32") / "config.json", tmp_path)
    found = open_target(tmp_path)
    assert len(found.specs) == 52
    report = remap.audit(pythia("fp32"), tmp_path)
    assert report.counts["matched"] == 51
    assert [f.key for f in report.of("unexpected-parameter")] == ["embed_out.weight"], (
        "the file's name of the head"
    )
    assert report.suggestions[0].command.endswith("-r transformers/gptneox-4-to-5")


def test_a_config_of_an_unknown_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no_such_model"}')
    with pytest.raises(UsageError, match="transformers can't read its config"):
        open_target(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt_neox", "architectures": ["pipeline"]}, "has no pipeline"),
        ({"model_type": "gpt_neox", "hidden_size": "64"}, "transformers can't read its config"),
    ],
)
def test_a_config_names_a_model_and_nothing_else(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=message):
        open_target(tmp_path)


def test_an_index_without_its_shards_is_names_only(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}))
    found = open_target(path)
    assert found.names_only
    assert list(found.specs) == ["a", "b"]
    report = remap.audit(path, found)
    assert report.counts["matched"] == 2
    said = "the list has names only; shapes and dtypes are not checked"
    assert report.notes == (said, f"{path}: {said}")


def test_a_compressed_key_list(tmp_path: Path) -> None:
    path = tmp_path / "keys.json.gz"
    path.write_bytes(gzip.compress(b'{"a": [[2], "float16"]}'))
    assert str(open_target(path).specs["a"]) == "f16[2]"


def test_a_checkpoint(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    found = open_target(tmp_path / "a.safetensors")
    assert found.catalog is not None
    assert str(found.specs["a"]) == "f32[2]"


def test_a_layout_with_parameters(pythia: Callable[[str], Path]) -> None:
    source = pythia("fp32")
    assert remap.audit(source, "gpt_neox/hf").passed
    report = remap.audit(source, "gpt_neox/hf", target_params={"layers": "5"})
    assert report.counts["missing-stage"] == 12
    assert {f.key.split(".")[2] for f in report.of("missing-stage")} == {"4"}


def test_a_layout_of_ones_own_is_named_by_its_path(pythia: Callable[[str], Path], tmp_path: Path) -> None:
    own = tmp_path / "own.layout.yaml"
    own.write_text(files("remap_rules").joinpath("gpt_neox", "hf.layout.yaml").read_text())
    report = remap.audit(pythia("fp32"), own, target_params={"layers": "5"})
    assert report.counts["missing-stage"] == 12


def test_a_layouts_output_head_is_wanted_unless_the_config_ties_it(
    pythia: Callable[[str], Path], tmp_path: Path
) -> None:
    state = {
        k: [list(e.spec.shape), e.spec.dtype.name]
        for k, e in remap.open(pythia("fp32")).catalog.entries.items()
    }
    del state["embed_out.weight"]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(state))
    report = remap.audit(path, "gpt_neox/hf")
    assert [f.key for f in report.of("missing-parameter")] == ["embed_out.weight"]
    tied = remap.audit(pythia("tied-fp32"), "gpt_neox/hf")
    assert tied.passed
    assert [f.key for f in tied.of("missing-tied")] == ["embed_out.weight"]


def test_a_layouts_unknown_parameter(pythia: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match="the layout has no parameter 'layer'; did you mean 'layers'"):
        remap.audit(pythia("fp32"), "gpt_neox/hf", target_params={"layer": "4"})


def test_a_module_with_extra_state_and_a_buffer_that_is_not_saved() -> None:
    class Extra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(2))
            self.register_buffer("gone", torch.zeros(2), persistent=False)

        def get_extra_state(self) -> dict[str, int]:
            return {"scale": 1}

        def set_extra_state(self, state: object) -> None:
            del state

    found = target_of(nn.ModuleDict({"e": Extra()}), "m")
    assert list(found.specs) == ["e.kept", "e._extra_state"]
    assert found.buffers == {"e.kept"}


def test_a_target_is_taken_as_it_is() -> None:
    made = Target("mine", {})
    assert open_target(made) is made


def magma_keys(build: dict[str, bool]) -> dict[str, object]:
    state = magma_model.build(**build).state_dict()
    return {k: [list(v.shape), "float32"] for k, v in state.items()}


def test_a_layouts_optional_groups_are_told_where_they_are_absent(pythia: Callable[[str], Path]) -> None:
    report = remap.audit(pythia("fp32"), "magma/neox", "magma/from-hf")
    assert report.passed
    told = [f.detail for f in report.of("optional-absent")]
    (mlp,) = [t for t in told if "mlp_adapter=present" in t]
    assert mlp.startswith("{i+2}.mlp.adapter.{adapter_norm.down}.weight, ")
    assert mlp.endswith(", 16 tensors; --target-param mlp_adapter=present wants them")
    (prefix,) = [t for t in told if "prefix=present" in t]
    assert prefix.startswith("0.image_prefix.enc.**, ")
    assert not any("inv_freq" in t for t in told), "the model computes it"


def test_a_layouts_group_is_wanted_by_its_parameter(pythia: Callable[[str], Path]) -> None:
    params = {"mlp_adapter": "present", "attention_adapter": "present", "prefix": "present"}
    report = remap.audit(pythia("fp32"), "magma/neox", "magma/from-hf", policy="magma", target_params=params)
    assert report.passed, "as the policy allows"
    assert len(report.of("missing-adapter")) == 4 * 2 * 4, "layers, attention and MLP, two linear layers"
    assert {f.key for f in report.of("missing-vision")} == {
        "0.image_prefix.proj.weight",
        "0.image_prefix.proj.bias",
    }
    assert not remap.audit(pythia("fp32"), "magma/neox", "magma/from-hf", target_params=params).passed, (
        "but not the strict one"
    )


@pytest.mark.parametrize("layernorm", [False, True])
def test_a_layouts_group_is_wanted_whole_where_a_part_is_there(tmp_path: Path, layernorm: bool) -> None:
    keys = magma_keys({"layernorm": layernorm})
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(keys))
    assert remap.audit(path, "magma/neox").passed
    gone = f"3.mlp.adapter.{3 if layernorm else 2}.bias"
    del keys[gone]
    path.write_text(json.dumps(keys))
    report = remap.audit(path, "magma/neox", policy="magma")
    assert [f.key for f in report.of("partial-adapter")] == [gone]
    assert not report.passed


def test_a_layout_has_no_types_unless_they_are_given(pythia: Callable[[str], Path]) -> None:
    report = remap.audit(pythia("fp32"), "gpt_neox/hf")
    assert [f.detail for f in report.of("unverified-dtype")] == ["gpt_neox/hf says nothing of element types"]
    typed = remap.audit(pythia("fp32"), "gpt_neox/hf", target_params={"dtype": "f16"})
    assert not typed.of("unverified-dtype")
    assert typed.counts["dtype-mismatch"] == typed.coverage.all_keys
    assert remap.audit(pythia("fp32"), "gpt_neox/hf", target_params={"dtype": "f32"}).counts["matched"]


def test_a_size_that_nothing_tells_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"w": [[2], "float32"]}')
    with pytest.raises(UsageError) as error:
        remap.audit(path, "gpt_neox/hf")
    assert "a size of the model is not known" in str(error.value)
    assert "--target-param" in str(error.value)
