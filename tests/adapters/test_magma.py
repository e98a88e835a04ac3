"""MAGMA: a trained checkpoint in its parts, and together again; ``magma_models`` load it strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from adapters import magma_models as magma

import remap
from remap.adapters import extract, graft, read
from remap.errors import DestinationError, UsageError


def save(model: torch.nn.Module, file: Path, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    state = {**model.state_dict(), **more}
    torch.save(state, file)
    return state


@pytest.mark.parametrize("form", magma.FORMS)
def test_extract_undoes_graft_and_the_model_loads_strictly(tmp_path: Path, form: str) -> None:
    bare = magma.model(magma.Block, seed=1)
    save(bare, tmp_path / "base.pt")
    wrapped = magma.model(magma.FORMS[form], seed=2)
    save(wrapped, tmp_path / "trained.pt")

    extract(tmp_path / "trained.pt", tmp_path / "adapter")
    graft(tmp_path / "base.pt", tmp_path / "adapter", tmp_path / "model.pt")
    other = magma.model(magma.FORMS[form], seed=3)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True), strict=True)
    extract(tmp_path / "model.pt", tmp_path / "again")
    assert remap.diff(tmp_path / "again", tmp_path / "adapter") == []
    extract(tmp_path / "model.pt", tmp_path / "bare.pt", part="base")
    assert remap.diff(tmp_path / "bare.pt", tmp_path / "base.pt") == []

    graft(tmp_path / "trained.pt", tmp_path / "adapter", tmp_path / "same.pt")  # onto a base that has one
    assert remap.diff(tmp_path / "same.pt", tmp_path / "trained.pt") == []


@pytest.mark.parametrize(
    ("form", "wraps", "layernorm", "scaled"),
    [
        ("around", ["attn_block"], False, False),
        ("layernorm", ["attn_block"], True, False),
        ("parallel", ["module"], False, False),
        ("scaled", ["module"], False, True),
        ("sequential", ["0"], False, False),
    ],
)
def test_a_small_json_says_what_they_are(
    tmp_path: Path, form: str, wraps: list[str], layernorm: bool, scaled: bool
) -> None:
    save(magma.model(magma.FORMS[form], layers=1), tmp_path / "trained.pt")
    extract(tmp_path / "trained.pt", tmp_path / "adapter")
    about = json.loads((tmp_path / "adapter" / "remap.adapter.json").read_text())
    assert about["wraps"]["2.mlp"] == wraps
    assert (about["layernorm"], about["scaled"]) == (layernorm, scaled)
    assert (about["dialect"], about["rank"], about["image_prefix"]) == ("magma", magma.INNER, False)


def test_the_image_prefix_goes_with_the_adapter_or_alone(tmp_path: Path) -> None:
    prefix = {
        "0.image_prefix.proj.weight": torch.ones(8, 4),
        "0.image_prefix.enc.conv1.weight": torch.ones(2, 3),
    }
    state = save(magma.model(magma.FORMS["around"]), tmp_path / "trained.pt", **prefix)
    extract(tmp_path / "trained.pt", tmp_path / "adapter")
    assert set(remap.open(tmp_path / "adapter")) == {
        k for k in state if ".adapter." in k or "image_prefix" in k
    }
    extract(tmp_path / "trained.pt", tmp_path / "prefix", part="image-prefix")
    assert set(remap.open(tmp_path / "prefix")) == set(prefix)
    save(magma.model(magma.Block), tmp_path / "base.pt")
    graft(tmp_path / "base.pt", tmp_path / "prefix", tmp_path / "model.pt")
    assert set(remap.open(tmp_path / "model.pt")) == {*magma.model(magma.Block).state_dict(), *prefix}


def test_names_with_or_without_the_adapters(tmp_path: Path) -> None:
    """To the wrapped layout and back, adapters dropped or kept."""
    wrapped = magma.model(magma.FORMS["around"])
    state = save(wrapped, tmp_path / "trained.pt")
    save(magma.model(magma.Block), tmp_path / "base.pt")
    graft(tmp_path / "base.pt", tmp_path / "trained.pt", tmp_path / "names.pt", names_only=True)
    assert set(remap.open(tmp_path / "names.pt")) == {k for k in state if ".adapter." not in k}
    extract(tmp_path / "trained.pt", tmp_path / "kept.pt", part="unwrapped")
    bare = magma.model(magma.Block).state_dict()
    assert set(remap.open(tmp_path / "kept.pt")) == {*bare, *(k for k in state if ".adapter." in k)}
    graft(tmp_path / "kept.pt", tmp_path / "kept.pt", tmp_path / "back.pt")
    assert remap.diff(tmp_path / "back.pt", tmp_path / "trained.pt") == []


def test_a_base_of_another_size_or_with_other_names_is_refused(tmp_path: Path) -> None:
    save(magma.model(magma.FORMS["around"], layers=3), tmp_path / "trained.pt")
    save(magma.model(magma.Block, layers=2), tmp_path / "small.pt")
    with pytest.raises(UsageError, match="2 of the adapter's 6 modules") as refused:
        graft(tmp_path / "small.pt", tmp_path / "trained.pt", tmp_path / "out")
    assert refused.value.problems == ("4.attention", "4.mlp")
    torch.save(
        {"2.attention.dense.weight": torch.ones(6, 6), "2.mlp.w.weight": torch.ones(8, 2)},
        tmp_path / "odd.pt",
    )
    save(magma.model(magma.FORMS["around"], layers=1), tmp_path / "one.pt")
    with pytest.raises(UsageError, match="other sizes") as refused:
        graft(tmp_path / "odd.pt", tmp_path / "one.pt", tmp_path / "out")
    assert [p.partition(":")[0] for p in refused.value.problems] == ["2.attention"]
    assert not (tmp_path / "out").exists()


def test_neither_source_is_written_to(tmp_path: Path) -> None:
    save(magma.model(magma.FORMS["around"], layers=1), tmp_path / "trained.pt")
    save(magma.model(magma.Block, layers=1), tmp_path / "base.pt")
    extract(tmp_path / "trained.pt", tmp_path / "adapter")
    for destination in (tmp_path / "adapter" / "model", tmp_path / "base.pt"):
        with pytest.raises(DestinationError, match="a source is never written to"):
            graft(tmp_path / "base.pt", tmp_path / "adapter", destination)


def test_a_document_that_tells_half_is_filled_up(tmp_path: Path) -> None:
    """Whatever the JSON says, a module with an adapter is wrapped."""
    save(magma.model(magma.FORMS["around"]), tmp_path / "trained.pt")
    extract(tmp_path / "trained.pt", tmp_path / "adapter")
    extract(tmp_path / "trained.pt", tmp_path / "base.pt", part="base")
    document = json.loads((tmp_path / "adapter/remap.adapter.json").read_text())
    document["wraps"] = {"2.mlp": ["attn_block"]}
    (tmp_path / "adapter/remap.adapter.json").write_text(json.dumps(document))
    graft(tmp_path / "base.pt", tmp_path / "adapter", tmp_path / "model.pt")
    assert remap.diff(tmp_path / "model.pt", tmp_path / "trained.pt") == []


def test_weights_that_were_trained_along_are_found_and_put_back(tmp_path: Path) -> None:
    base = magma.model(magma.Block, seed=1)
    save(base, tmp_path / "base.pt")
    state = save(magma.model(magma.FORMS["around"], seed=2), tmp_path / "trained.pt")
    for key, value in base.state_dict().items():
        part = key.replace("attention.", "attention.attn_block.").replace("mlp.", "mlp.attn_block.")
        state[part] = value
    state["3.input_layernorm.bias"] = torch.full((8,), 7.0)
    torch.save(state, tmp_path / "trained.pt")
    extract(tmp_path / "trained.pt", tmp_path / "adapter", base=tmp_path / "base.pt")
    assert [k for k in remap.open(tmp_path / "adapter") if ".adapter." not in k] == ["3.input_layernorm.bias"]
    graft(tmp_path / "base.pt", tmp_path / "adapter", tmp_path / "model.pt")
    assert remap.diff(tmp_path / "model.pt", tmp_path / "trained.pt") == []


def test_second_names_of_one_tensor_are_one(tmp_path: Path) -> None:
    """Aleph Alpha's model has ``transformer`` beside ``lm.transformer.h``: the same modules."""
    lm = magma.model(magma.FORMS["sequential"], layers=1)["2"].state_dict()
    state = {f"lm.transformer.h.0.{k}": v for k, v in lm.items()} | {
        f"transformer.0.{k}": v for k, v in lm.items()
    }
    torch.save(state, tmp_path / "magma.pt")
    receipt, _ = extract(tmp_path / "magma.pt", tmp_path / "adapter")
    assert {k.partition(".")[0] for k in receipt.tensors} == {"lm"}
    assert len(receipt.tensors) == 8


def test_a_module_that_is_called_module_is_no_wrapper(tmp_path: Path) -> None:
    save(magma.model(magma.FORMS["parallel"], layers=1), tmp_path / "trained.pt")
    found = read(tmp_path / "trained.pt")
    assert "2.mlp.module.module.weight" in found.base
    extract(tmp_path / "trained.pt", tmp_path / "base.pt", part="base")
    assert "2.mlp.module.weight" in remap.open(tmp_path / "base.pt")
