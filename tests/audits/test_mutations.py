"""No false comfort: a correct checkpoint is spoilt in thirty ways, and each time the right finding must
appear.

The model has four layers with attention, MLP and norms, an embedding, an output head and a mask buffer.
Where values are needed the checkpoints are real files and the audit is asked for ``--values``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from audits.tables import catalog, specs, target
from safetensors.torch import save_file

import remap
from remap.audit import audit
from remap.audits.report import Report

HIDDEN = 8
LAYER = {
    "attn.q.weight": [HIDDEN, HIDDEN],
    "attn.kv.weight": [2 * HIDDEN, HIDDEN],
    "attn.o.weight": [HIDDEN, HIDDEN],
    "mlp.up.weight": [4 * HIDDEN, HIDDEN],
    "mlp.down.weight": [HIDDEN, 4 * HIDDEN],
    "norm.weight": [HIDDEN],
    "attn.masked_bias": [],
    "mlp.experts.w1": [4, HIDDEN, 2],
}
MODEL = {
    "embed_tokens.weight": [50, HIDDEN],
    **{f"layers.{i}.{k}": s for i in range(4) for k, s in LAYER.items()},
    "final_norm.weight": [HIDDEN],
    "lm_head.weight": [50, HIDDEN],
}
Keys = dict[str, object]


def without(*keys: str) -> Callable[[Keys], Keys]:
    return lambda m: {k: s for k, s in m.items() if k not in keys}


def shaped(key: str, shape: object) -> Callable[[Keys], Keys]:
    return lambda m: {**m, key: shape}


def named(old: str, new: str) -> Callable[[Keys], Keys]:
    return lambda m: {(new if k == old else k): s for k, s in m.items()}


def every(change: Callable[[str], str]) -> Callable[[Keys], Keys]:
    return lambda m: {change(k): s for k, s in m.items()}


def plus(key: str, shape: object) -> Callable[[Keys], Keys]:
    return lambda m: {**m, key: shape}


MUTATIONS: list[tuple[str, Callable[[Keys], Keys], str, str, str]] = [
    # what was done, how, the key that a finding must name, its category, a word of its detail
    (
        "a weight dropped",
        without("layers.1.mlp.up.weight"),
        "layers.1.mlp.up.weight",
        "missing-parameter",
        "",
    ),
    ("a norm dropped", without("final_norm.weight"), "final_norm.weight", "missing-parameter", ""),
    (
        "a mask dropped",
        without("layers.0.attn.masked_bias"),
        "layers.0.attn.masked_bias",
        "missing-buffer",
        "",
    ),
    ("the head dropped", without("lm_head.weight"), "lm_head.weight", "missing-parameter", "embed_tokens"),
    (
        "the last layer dropped",
        lambda m: {k: s for k, s in m.items() if not k.startswith("layers.3.")},
        "layers.3.attn.q.weight",
        "missing-stage",
        "layers 0 to 2",
    ),
    (
        "a middle layer dropped",
        lambda m: {k: s for k, s in m.items() if not k.startswith("layers.1.")},
        "layers.1.attn.q.weight",
        "missing-parameter",
        "",
    ),
    (
        "the first layer dropped",
        lambda m: {k: s for k, s in m.items() if not k.startswith("layers.0.")},
        "layers.0.attn.q.weight",
        "missing-stage",
        "layers 1 to 3",
    ),
    (
        "a weight misnamed",
        named("layers.2.attn.q.weight", "layers.2.attn.qq.weight"),
        "layers.2.attn.q.weight",
        "missing-parameter",
        "layers.2.attn.qq.weight",
    ),
    (
        "a misnamed weight is left over",
        named("layers.2.attn.q.weight", "layers.2.attn.qq.weight"),
        "layers.2.attn.qq.weight",
        "unexpected-parameter",
        "",
    ),
    (
        "a letter's case",
        named("layers.2.norm.weight", "layers.2.Norm.weight"),
        "layers.2.norm.weight",
        "missing-parameter",
        "layers.2.Norm.weight",
    ),
    (
        "a space",
        named("final_norm.weight", "final_norm.weight "),
        "final_norm.weight",
        "missing-parameter",
        "final_norm.weight ",
    ),
    (
        "layers counted from one",
        every(lambda k: _shifted(k)),
        "layers.0.attn.q.weight",
        "missing-stage",
        "layers 1 to 3",
    ),
    (
        "one layer too many",
        every(lambda k: _shifted(k)),
        "layers.4.attn.q.weight",
        "unexpected-stage",
        "layers 1 to 3",
    ),
    ("a prefix", every(lambda k: f"model.{k}"), "", "zero-overlap", ""),
    ("a wrapper", every(lambda k: f"module.{k}"), "", "zero-overlap", ""),
    (
        "a matrix transposed",
        shaped("layers.0.mlp.up.weight", [HIDDEN, 4 * HIDDEN]),
        "layers.0.mlp.up.weight",
        "shape-mismatch",
        "transposed",
    ),
    (
        "a square matrix transposed is invisible",
        lambda m: m,
        "layers.0.attn.q.weight",
        "unverified-layout",
        "square",
    ),
    (
        "the vocabulary padded",
        shaped("embed_tokens.weight", [64, HIDDEN]),
        "embed_tokens.weight",
        "shape-mismatch",
        "vocabulary of 64",
    ),
    (
        "one tensor-parallel part",
        shaped("layers.0.mlp.up.weight", [2 * HIDDEN, HIDDEN]),
        "layers.0.mlp.up.weight",
        "shape-mismatch",
        "one of 2 tensor-parallel parts along dimension 0",
    ),
    (
        "a part of the columns",
        shaped("layers.0.mlp.down.weight", [HIDDEN, HIDDEN]),
        "layers.0.mlp.down.weight",
        "shape-mismatch",
        "one of 4 tensor-parallel parts along dimension 1",
    ),
    (
        "fewer experts",
        shaped("layers.0.mlp.experts.w1", [3, HIDDEN, 2]),
        "layers.0.mlp.experts.w1",
        "shape-mismatch",
        "3 experts, the target has 4",
    ),
    (
        "flattened",
        shaped("layers.0.mlp.up.weight", [4 * HIDDEN * HIDDEN]),
        "layers.0.mlp.up.weight",
        "shape-mismatch",
        "flattened",
    ),
    (
        "another size",
        shaped("layers.0.mlp.up.weight", [5 * HIDDEN, 2 * HIDDEN]),
        "layers.0.mlp.up.weight",
        "shape-mismatch",
        "another size",
    ),
    (
        "emptied",
        shaped("layers.3.attn.o.weight", [0]),
        "layers.3.attn.o.weight",
        "placeholder",
        "no elements",
    ),
    (
        "another type",
        shaped("layers.3.attn.o.weight", f"f16[{HIDDEN},{HIDDEN}]"),
        "layers.3.attn.o.weight",
        "dtype-mismatch",
        "widened",
    ),
    (
        "integers",
        shaped("layers.3.attn.o.weight", f"i8[{HIDDEN},{HIDDEN}]"),
        "layers.3.attn.o.weight",
        "dtype-kind",
        "other numbers",
    ),
    (
        "a stale buffer",
        plus("layers.0.attn.rotary_emb.inv_freq", [4]),
        "layers.0.attn.rotary_emb.inv_freq",
        "unexpected-buffer",
        "",
    ),
    (
        "an optimizer",
        plus("optimizer.state.final_norm.weight.exp_avg", [HIDDEN]),
        "optimizer.state.final_norm.weight.exp_avg",
        "unexpected-optimizer",
        "",
    ),
    (
        "scales of a quantised weight",
        plus("layers.0.mlp.up.weight_scale", [1]),
        "layers.0.mlp.up.weight_scale",
        "unexpected-quantisation",
        "",
    ),
    (
        "half of a LoRA pair",
        plus("layers.0.attn.q.lora_A.weight", [2, HIDDEN]),
        "layers.0.attn.q.lora_A.weight",
        "adapter-pair",
        "lora_B",
    ),
    (
        "a second copy behind a wrapper",
        plus("module.final_norm.weight", [HIDDEN]),
        "final_norm.weight",
        "collision",
        "",
    ),
    (
        "a weight in a flat parameter",
        plus("layers.0._flat_param", [640]),
        "layers.0._flat_param",
        "unexpected-flat",
        "",
    ),
    (
        "extra state",
        plus("layers.0.mlp._extra_state", "u8[5]"),
        "layers.0.mlp._extra_state",
        "unexpected-extra-state",
        "",
    ),
]
SILENT = {
    "matched",
    "renamed",
    "unverified-layout",
    "missing-buffer",
    "dtype-mismatch",
    "unexpected-buffer",
    "unexpected-optimizer",
    "unexpected-extra-state",
}
"""Categories that the strict policy does not fail."""


def _shifted(key: str) -> str:
    head, *rest = key.split(".")
    return ".".join([head, str(int(rest[0]) + 1), *rest[1:]]) if head == "layers" else key


def test_the_model_itself_passes() -> None:
    report = audit(catalog(MODEL), target(MODEL))
    assert report.passed
    assert report.counts["matched"] == len(MODEL)


@pytest.mark.parametrize(
    ("done", "mutate", "key", "category", "word"), MUTATIONS, ids=[m[0] for m in MUTATIONS]
)
def test_names_and_shapes(
    done: str, mutate: Callable[[Keys], Keys], key: str, category: str, word: str
) -> None:
    report = audit(catalog(mutate(dict(MODEL))), target(MODEL))
    found = [f for f in report.findings if f.key == key and f.category == category]
    assert found, f"{done}: {report}"
    assert word in found[0].detail
    assert report.passed is (category in SILENT)


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return {
        k: torch.randn(s.shape, generator=torch.Generator().manual_seed(zlib.crc32(k.encode())))
        for k, s in specs(MODEL).items()
    }


def compared(folder: Path, one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> Report:
    for name, state in (("a", one), ("b", other)):
        save_file({k: v.contiguous() for k, v in state.items()}, folder / f"{name}.safetensors")
    return remap.audit(folder / "a.safetensors", folder / "b.safetensors", values=True)


def test_the_same_values(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    report = compared(tmp_path, tensors, tensors)
    assert report.passed
    assert {f.detail for f in report.of("matched")} == {"the same values"}
    assert not report.of("unverified-layout")


def test_two_layers_swapped(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    swap = {"1": "2", "2": "1"}

    def renamed(key: str) -> str:
        parts = key.split(".")
        return ".".join([parts[0], swap.get(parts[1], parts[1]), *parts[2:]])

    report = compared(tmp_path, {renamed(k): v for k, v in tensors.items()}, tensors)
    assert not report.passed
    details = {f.key: f.detail for f in report.of("values-differ")}
    assert details.keys() == {k for k in MODEL if k.startswith(("layers.1.", "layers.2."))}
    assert details["layers.1.attn.q.weight"] == "the values of the target's layers.2.attn.q.weight"
    names_only = remap.audit(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert names_only.passed
    assert names_only.of("unverified-layout")


def test_a_square_matrix_transposed(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    key = "layers.0.attn.q.weight"
    report = compared(tmp_path, {**tensors, key: tensors[key].T}, tensors)
    (found,) = report.of("values-differ")
    assert (found.key, found.detail) == (key, "the transpose of the target's values")
    assert not report.passed


def test_one_element_changed(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    key = "final_norm.weight"
    changed = tensors[key].clone()
    changed[3] += 1e-6
    report = compared(tmp_path, {**tensors, key: changed}, tensors)
    assert [f.key for f in report.of("values-differ")] == [key]


def test_gate_and_up_interleaved(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """e13, https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5376: half of the rows moved, shapes the
    same."""
    key = "layers.0.attn.kv.weight"
    moved = torch.cat([tensors[key][::2], tensors[key][1::2]])
    report = compared(tmp_path, {**tensors, key: moved}, tensors)
    assert [f.key for f in report.of("values-differ")] == [key]


def test_names_alone_prove_no_layout() -> None:
    report = audit(catalog(list(MODEL)), target(MODEL))
    assert report.passed
    assert len(report.of("unverified-layout")) == len(MODEL)
    assert report.coverage.all_elements == 0


def test_a_tie_that_is_known_is_no_missing_weight() -> None:
    source = catalog(without("lm_head.weight")(dict(MODEL)))
    wanted = replace(target(MODEL), ties={"lm_head.weight": "embed_tokens.weight"})
    report = audit(source, wanted)
    assert report.passed
    assert [f.key for f in report.of("missing-tied")] == ["lm_head.weight"]


@pytest.mark.parametrize("said", [None, {"lm_head.weight": "embed_tokens.weight"}])
def test_two_tensors_for_one_are_told_unless_they_are_one(said: dict[str, str] | None) -> None:
    wanted = replace(target(MODEL), ties={"lm_head.weight": "embed_tokens.weight"})
    report = audit(catalog(MODEL, metadata={"ties": json.dumps(said)} if said else {}), wanted)
    assert [f.key for f in report.of("unverified-tie")] == ([] if said else ["lm_head.weight"])
    assert report.passed


@pytest.mark.parametrize(
    ("ties", "config", "found"),
    [
        (None, {}, "missing-tied"),  # nothing is known of the target: what the checkpoint says
        (None, {"tie_word_embeddings": False}, "missing-parameter"),  # its own config speaks first
        ({}, {}, "missing-parameter"),  # a model with a head of its own
    ],
)
def test_a_tie_of_the_checkpoint_is_none_of_a_model_that_has_none(
    ties: dict[str, str] | None, config: dict[str, object], found: str
) -> None:
    source = catalog(without("lm_head.weight")(dict(MODEL)), config={"tie_word_embeddings": True})
    report = audit(source, replace(target(MODEL), ties=ties, config=config))
    assert [f.key for f in report.of(found)] == ["lm_head.weight"]
    assert report.passed is (found == "missing-tied")


def test_a_tie_whose_partner_does_not_fit_is_missing() -> None:
    source = catalog(without("lm_head.weight", "embed_tokens.weight")(dict(MODEL)))
    wanted = replace(target(MODEL), ties={"lm_head.weight": "embed_tokens.weight"})
    report = audit(source, wanted)
    assert {f.key for f in report.of("missing-parameter")} == {"lm_head.weight", "embed_tokens.weight"}


def test_a_learned_buffer_is_missing_like_a_parameter() -> None:
    wanted = {"bn.weight": [4], "bn.running_mean": [4], "bn.num_batches_tracked": []}
    report = audit(
        catalog({"bn.weight": [4]}), replace(target(wanted), buffers=frozenset(wanted) - {"bn.weight"})
    )
    assert [f.key for f in report.of("missing-parameter")] == ["bn.running_mean"]
    assert [f.key for f in report.of("missing-buffer")] == ["bn.num_batches_tracked"]


def test_a_parameter_with_a_buffers_name_is_no_buffer() -> None:
    wanted = {"w": [4], "rotary_emb.inv_freq": [4]}
    report = audit(catalog({"w": [4]}), replace(target(wanted), buffers=frozenset()))
    assert [f.key for f in report.of("missing-parameter")] == ["rotary_emb.inv_freq"]
