"""One change that explains many findings: it is found, small, and proved; where none is, none is told."""

from __future__ import annotations

import pytest
from audits.tables import run

from remap.audits.names.wrappers import unwrap
from remap.audits.suggest.packs import likely
from remap.audits.suggest.segments import difference
from remap.packs import available, read


@pytest.mark.parametrize(
    ("ours", "theirs", "change"),
    [
        ("a.embed_out.weight", "a.lm_head.weight", (("embed_out",), ("lm_head",))),
        ("q.weight", "q.base_layer.weight", (("q",), ("q", "base_layer"))),
        ("l.0.attn.module.q.weight", "l.0.attn.q.weight", (("attn", "module"), ("attn",))),
        ("m.l.0.w", "l.0.w", (("m", "l"), ("l",))),
        ("l.0.w", "l.1.w", None),  # numbers are no names
        ("a", "b", None),
    ],
)
def test_what_differs_between_two_keys(ours: str, theirs: str, change: object) -> None:
    assert difference(ours, theirs) == change


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        ("module.module.a.w", "a.w"),
        ("_orig_mod.module.a._fsdp_wrapped_module._checkpoint_wrapped_module.w", "a.w"),
        ("h.attn.module.q.w", "h.attn.module.q.w"),  # e21: MAGMA's parallel adapters
        ("module.h.attn.module.q.w", "h.attn.module.q.w"),
        ("module", "module"),
        ("a.module", "a.module"),
        ("_forward_module.a.w", "a.w"),
    ],
)
def test_wrappers_are_taken_out_and_names_are_not(key: str, plain: str) -> None:
    assert unwrap(key) == plain
    assert unwrap(plain) == plain


def test_an_output_head_is_never_made_an_embedding() -> None:
    """They have one shape, and names that are alike."""
    report = run({"embed_out.weight": [9, 2], "w": [1]}, {"embed_in.weight": [9, 2], "w": [1]})
    assert report.suggestions == ()
    assert [f.detail for f in report.of("missing-parameter")] == [""]


def test_of_two_places_that_fit_none_is_guessed() -> None:
    source = {"alpha.weight": [3, 2], "beta.weight": [3, 2], "w": [1]}
    assert run(source, {"gamma.weight": [3, 2], "delta.weight": [3, 2], "w": [1]}).suggestions == ()


def test_another_shape_is_no_match() -> None:
    assert run({"m.a": [2], "w": [1]}, {"a": [3], "w": [1]}).suggestions == ()


def test_a_few_of_many_that_were_renamed_are_brought_back_by_few_rules() -> None:
    """Half of the experts have another name: one rule for all of them, not one each."""
    wanted = {f"l.{i}.experts.{e}.w": [2] for i in range(10) for e in range(100)}
    source = {(k.replace("experts", "exp") if k.split(".")[3] > "50" else k): s for k, s in wanted.items()}
    best = run(source, wanted).suggestions[0]
    assert (best.after, best.of) == (1000, 1000)
    pack = read(best.pack.encode(), "fix.yaml")
    assert [r.does for r in pack.own_rules] == ["rename", "keep"]


def test_what_would_need_a_rule_a_key_is_no_change() -> None:
    wanted = {f"l.{i}.w": [2] for i in range(600)}
    source = {f"{i}.l.{599 - i}.w": [2] for i in range(600)}
    assert not [s for s in run(source, wanted).suggestions if s.pack.count("- id:") > 400]


def test_at_most_three_are_told_the_best_first() -> None:
    report = run({f"model.{k}": [2] for k in "abc"}, {k: [2] for k in "abc"})
    assert 1 <= len(report.suggestions) <= 3
    counts = [s.after for s in report.suggestions]
    assert counts == sorted(counts, reverse=True)


def test_a_passing_audit_suggests_nothing() -> None:
    report = run({"w": [1], "h.rotary_emb.inv_freq": [2]}, {"w": [1]})
    assert report.passed
    assert report.suggestions == ()


def test_packs_are_looked_for_by_the_words_of_the_keys() -> None:
    keys = ["gpt_neox.layers.0.attention.dense.weight", "gpt_neox.embed_in.weight"]
    names = [name for name, _ in likely(keys, available())]
    assert "magma/from-hf" in names
    assert likely(["zzz.qqq.weight"], available()) == []


def test_a_pack_whose_parts_differ_in_a_digit_inside_a_word() -> None:
    """w1 and w3 of Mixtral's experts become one tensor: a sample of the keys must have both."""
    layer = {f"block_sparse_moe.experts.{e}.w{n}.weight": [6, 4] for e in range(12) for n in (1, 3)}
    layer |= {f"block_sparse_moe.experts.{e}.w2.weight": [4, 6] for e in range(12)}
    layer |= {"block_sparse_moe.gate.weight": [12, 4], "self_attn.q_proj.weight": [4, 4]}
    layer |= {f"{n}_layernorm.weight": [4] for n in ("input", "post_attention")}
    source = {f"model.layers.{i}.{k}": s for i in range(12) for k, s in layer.items()}
    source |= {"model.embed_tokens.weight": [9, 4], "model.norm.weight": [4]}
    experts = {"mlp.experts.gate_up_proj": [12, 12, 4], "mlp.experts.down_proj": [12, 4, 6]}
    new = {k: s for k, s in layer.items() if "moe" not in k} | experts | {"mlp.gate.weight": [12, 4]}
    wanted = {f"model.layers.{i}.{k}": s for i in range(12) for k, s in new.items()}
    wanted |= {"model.embed_tokens.weight": [9, 4], "model.norm.weight": [4]}
    best = run(source, wanted).suggestions[0]
    assert best.what == "the pack transformers/mixtral-4-to-5"
    assert best.after == best.of == len(wanted)
