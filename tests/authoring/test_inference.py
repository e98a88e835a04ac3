"""Inference: by content where there are weights, by names and shapes elsewhere, and nothing by guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from packs.language import catalog, renames
from safetensors.torch import save_file

from remap.authoring.examples import run_examples
from remap.authoring.inference import infer
from remap.authoring.lint import lint
from remap.formats import registry
from remap.packs import read
from remap.plan import make_plan
from remap.types import Catalog


def saved(folder: Path, name: str, tensors: Mapping[str, torch.Tensor]) -> Catalog:
    file = folder / f"{name}.safetensors"
    save_file({k: t.contiguous().clone() for k, t in tensors.items()}, file)
    return registry.open_catalog(file)


def test_renames_are_proved_by_content_whatever_the_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    a = {f"h.{i}.{n}.w": torch.randn(4, 4) for i in range(12) for n in ("q", "k")}
    b = {key.replace("h.", "x.").replace(".q.", ".zap.").replace(".k.", ".zip."): t for key, t in a.items()}
    found = infer(saved(tmp_path, "a", a), saved(tmp_path, "b", b))
    assert (found.explained, found.proved, found.problem) == (24, 24, None)
    assert found.text.count("- id:") == 2
    assert 'from: "h.{i:int}.q.w"\n        to: "x.{i}.zap.w"' in found.text


def test_indexes_that_are_shifted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    a = {f"layers.{i}.w": torch.randn(4) for i in range(12)}
    b = {f"{i + 2}.w": t for i, t in enumerate(a.values())}
    found = infer(saved(tmp_path, "a", a), saved(tmp_path, "b", b))
    assert found.explained == 12
    assert 'to: "{i+2}.w"' in found.text


def test_ops_are_recognised(tmp_path: Path) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(8, 4) for _ in range(3))
    a = {"0.q": q, "0.k": k, "0.v": v, "0.conv": torch.randn(4, 6), "0.wide": torch.randn(5)}
    a |= {"0.turn": torch.randn(12, 3), "0.half": torch.randn(7).bfloat16()}
    turned = a["0.turn"].view(2, 3, 2, 3).transpose(1, 2).reshape(12, 3)
    b = {"z.qkv": torch.cat([k, v, q]), "z.lin": a["0.conv"].T, "z.low": a["0.wide"].bfloat16()}
    b |= {"z.rot": turned, "z.high": a["0.half"].float()}
    found = infer(saved(tmp_path, "a", a), saved(tmp_path, "b", b))
    assert (found.explained, found.proved, found.problem) == (5, 5, None)
    plan = make_plan(registry.open_catalog(tmp_path / "a.safetensors"), [read(found.text.encode(), "i.yaml")])
    assert {o.key: (o.op, o.sources) for o in plan.outputs} == {
        "z.qkv": ("concat", ("0.k", "0.v", "0.q")),
        "z.lin": ("transpose", ("0.conv",)),
        "z.low": ("cast", ("0.wide",)),
        "z.rot": ("rotary", ("0.turn",)),
        "z.high": ("cast", ("0.half",)),
    }
    assert [str(f) for f in run_examples(read(found.text.encode(), "i.yaml"))] == []


def test_equal_tensors_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    ones = {f"l.{i}.norm": torch.ones(4) for i in range(3)}
    found = infer(
        saved(tmp_path, "a", ones),
        saved(tmp_path, "b", {k.replace("norm", "ln"): t for k, t in ones.items()}),
    )
    assert (found.explained, found.problem) == (3, None)
    assert 'from: "l.{i:int}.norm"\n        to: "l.{i}.ln"' in found.text


def test_names_where_there_are_no_weights() -> None:
    parts = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"}
    a = {f"model.layers.{i}.self_attn.{p}.weight": "f16[4,4]" for i in range(12) for p in parts}
    b = {f"layers.{i}.attention.{p}.weight": "f16[4,4]" for i in range(12) for p in parts.values()}
    found = infer(catalog(a), catalog(b))
    assert (found.explained, found.proved) == (48, 0)
    plan = make_plan(catalog(a), [read(found.text.encode(), "i.yaml")])
    wanted = {
        f"model.layers.{i}.self_attn.{p}.weight": f"layers.{i}.attention.{w}.weight"
        for i in range(12)
        for p, w in parts.items()
    }
    assert renames(plan) == wanted


def test_what_could_be_either_is_not_guessed() -> None:
    a = {"x.alpha.w": "f16[4]", "x.omega.w": "f16[4]"}
    b = {"y.one.w": "f16[4]", "y.two.w": "f16[4]"}
    found = infer(catalog(a), catalog(b))
    assert found.explained == 0
    assert found.unused == ("x.alpha.w", "x.omega.w")
    assert found.missing == ("y.one.w", "y.two.w")


def test_what_is_not_explained_is_dropped_for_all_to_see() -> None:
    found = infer(catalog({"a.w": "f16[4]", "extra": "i64[3]"}), catalog({"b.w": "f16[4]"}))
    assert (found.explained, found.unused) == (1, ("extra",))
    assert 'because: "inference found nothing' in found.text


def test_heads_that_lie_in_groups_are_put_together_and_taken_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    apart: dict[str, torch.Tensor] = {}
    together: dict[str, torch.Tensor] = {}
    for i in range(12):
        q, k, v = torch.randn(4, 2, 3, 5), torch.randn(4, 1, 3, 5), torch.randn(4, 1, 3, 5)  # groups, heads
        apart |= {f"l.{i}.q": q.reshape(24, 5), f"l.{i}.k": k.reshape(12, 5), f"l.{i}.v": v.reshape(12, 5)}
        together[f"h.{i}.qkv"] = torch.cat([q, k, v], 1).reshape(48, 5)
    a, b = saved(tmp_path, "a", apart), saved(tmp_path, "b", together)
    joined, cut = infer(a, b), infer(b, a)
    assert (joined.explained, joined.proved, joined.problem) == (12, 12, None)
    assert (cut.explained, cut.proved, cut.problem) == (36, 36, None)
    for found, op in ((joined, "fuse_qkv"), (cut, "split_qkv")):
        assert (
            f"{op}:\n            layout: groups\n            heads: 8\n            kv_heads: 4" in found.text
        )


def test_blocks_of_rows_are_taken_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = {f"l.{i}.gate_up": torch.randn(8, 3) for i in range(3)}
    parts = {
        f"l.{i}.{n}": w for i in range(3) for n, w in zip("gu", whole[f"l.{i}.gate_up"].chunk(2), strict=True)
    }
    found = infer(saved(tmp_path, "a", whole), saved(tmp_path, "b", parts))
    assert (found.explained, found.problem) == (6, None)


def test_rows_that_only_begin_alike_are_not_taken_for_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = torch.randn(8, 3)
    parts = {"g": whole[:4].clone(), "u": whole[4:].clone()}
    parts["u"][3, 2] += 1
    found = infer(saved(tmp_path, "a", {"gate_up": whole}), saved(tmp_path, "b", parts))
    assert found.explained == 0


def test_what_reorders_is_shown_with_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    w = torch.randn(12, 5)
    a = saved(tmp_path, "a", {"conv": w, "mask": torch.ones(2)})
    found = read(infer(a, saved(tmp_path, "b", {"linear": w.T})).text.encode(), "i.yaml")
    assert [str(f) for f in run_examples(found)] == []
    assert [f.code for f in lint(found)] == ["rule-without-example"]  # what it could not explain
    assert found.examples[0].expect == {"linear": "f32[3,2] = 0 3 1 4 2 5"}


def test_weight_and_bias_are_one_rule_and_what_stays_is_kept() -> None:
    same = {"emb.weight": "f16[8,4]", "norm.weight": "f16[4]"}
    a = same | {
        f"h.{i}.mlp.fc.{p}": s for i in range(12) for p, s in (("weight", "f16[4,4]"), ("bias", "f16[4]"))
    }
    b = {k.replace("h.", "layers.").replace(".mlp.", ".ffn."): s for k, s in a.items()}
    found = infer(catalog(a), catalog(b))
    assert (found.explained, found.problem) == (26, None)
    (moved, kept) = read(found.text.encode(), "i.yaml").own_rules
    assert (moved.id, moved.sources[0].text) == ("ffn-fc", "h.{i:int}.mlp.fc.{p:bias|weight}")
    assert [s.text for s in kept.sources] == ["emb.weight", "norm.weight"]


def test_leftovers_are_told_by_template(tmp_path: Path) -> None:
    torch.manual_seed(0)
    w = {f"h.{i}.w": torch.randn(3) for i in range(12)}
    masks = {f"h.{i}.mask": torch.ones(2, 2) for i in range(12)}
    found = infer(saved(tmp_path, "a", {**w, **masks}), saved(tmp_path, "b", w))
    assert '- "h.{i:int}.mask"' in found.text
    assert (found.explained, len(found.unused), found.problem) == (12, 12, None)


def experts(*parts: str) -> dict[str, torch.Tensor]:
    """Two layers of 12 experts; all parts but ``down`` are [6, 4]."""
    torch.manual_seed(0)
    return {
        f"l.{i}.moe.experts.{e}.{p}.weight": torch.randn(4, 6) if p == "down" else torch.randn(6, 4)
        for i in range(2)
        for e in range(12)
        for p in parts
    }


def stacked(tensors: Mapping[str, torch.Tensor], part: str, i: int) -> torch.Tensor:
    return torch.stack([tensors[f"l.{i}.moe.experts.{e}.{part}.weight"] for e in range(12)])


def both_ways(tmp_path: Path, apart: dict[str, torch.Tensor], whole: dict[str, torch.Tensor]) -> list[str]:
    """The packs inferred there and back, both of which explain everything by bytes."""
    a, b = saved(tmp_path, "a", apart), saved(tmp_path, "b", whole)
    texts = []
    for source, target in ((a, b), (b, a)):
        found = infer(source, target)
        count = len(target.entries)
        assert (found.explained, found.proved, found.unused, found.problem) == (count, count, (), None)
        made = read(found.text.encode(), "i.yaml")
        assert [str(f) for f in (*run_examples(made), *lint(made))] == []
        texts.append(found.text)
    return texts


def test_experts_are_stacked_by_content_gate_and_up_in_one(tmp_path: Path) -> None:
    apart = experts("w1", "w3", "down")
    whole = {}
    for i in range(2):
        both = [stacked(apart, "w1", i), stacked(apart, "w3", i)]
        whole |= {f"l.{i}.mlp.gate_up": torch.cat(both, 1), f"l.{i}.mlp.down": stacked(apart, "down", i)}
    there, back = both_ways(tmp_path, apart, whole)
    assert '- "l.{i:int}.moe.experts.{e:int}.w1.weight"' in there
    assert re.search(r"- concat:\s+dim: 0\s+- stack:\s+over: e", there)
    assert re.search(r"- unstack:\s+dim: 0\s+over: e\s+- split:", back)


def test_experts_are_stacked_by_content_transposed(tmp_path: Path) -> None:
    apart = experts("gate", "up", "down")
    whole = {}
    for i in range(2):
        both = torch.cat([stacked(apart, "gate", i), stacked(apart, "up", i)], 1)
        down = stacked(apart, "down", i)
        whole |= {f"l.{i}.m.gate_up": both.transpose(1, 2), f"l.{i}.m.down": down.transpose(1, 2)}
    there, _ = both_ways(tmp_path, apart, whole)
    assert re.search(r"- concat:\s+dim: 0\s+- transpose\s+- stack:", there)


def test_rows_by_turns_and_experts_in_rows_are_seen_by_content(tmp_path: Path) -> None:
    apart = experts("gate", "up", "down")
    whole = {}
    for i in range(2):
        turns = torch.stack([stacked(apart, "gate", i), stacked(apart, "up", i)], 2).reshape(12, 12, 4)
        whole |= {f"l.{i}.m.gate_up": turns, f"l.{i}.m.down": stacked(apart, "down", i).reshape(48, 6)}
    there, back = both_ways(tmp_path, apart, whole)
    assert re.search(r"- interleave:\s+dim: 0\s+- stack:", there)
    assert re.search(r"concat:\s+dim: 0\s+over: e\s+parts: 12", there)
    assert "- deinterleave:" in back


def test_experts_in_another_order_are_not_taken_for_a_stack(tmp_path: Path) -> None:
    apart = experts("up")
    whole = {"l.0.m.up": stacked(apart, "up", 0).flip(0), "l.1.m.up": stacked(apart, "up", 1)}
    found = infer(saved(tmp_path, "a", apart), saved(tmp_path, "b", whole))
    assert found.missing == ("l.0.m.up",)


def opt(fused: bool) -> dict[str, str]:
    names = ("qkv_proj",) if fused else ("q_proj", "k_proj", "v_proj")
    return {f"l.{i}.self_attn.{n}.weight": f"f16[{12 if fused else 4},4]" for i in range(12) for n in names}


def test_by_names_query_key_and_value_in_one_are_proposed_to_be_confirmed() -> None:
    for source, target, op in ((opt(False), opt(True), "fuse_qkv"), (opt(True), opt(False), "split_qkv")):
        found = infer(catalog(source), catalog(target))
        assert (found.explained, found.problem) == (len(target), None)
        assert f"{op}:\n            layout: blocks" in found.text
        (rule,) = read(found.text.encode(), "i.yaml").own_rules
        assert "no name says: set layout, order, heads" in rule.confirm
        assert found.confirm == {rule.id: rule.confirm}


def test_what_is_not_confirmed_is_an_error_of_lint_and_a_note_of_the_plan() -> None:
    made = read(infer(catalog(opt(False)), catalog(opt(True))).text.encode(), "i.yaml")
    (finding,) = lint(made)
    assert finding.code == "unconfirmed"
    assert "make sure, then delete confirm:" in finding.message
    (note,) = make_plan(catalog(opt(False)), [made]).notes
    assert note.startswith("rule self-attn-qkv-proj of local/inferred is not confirmed: query, key and value")


def test_by_names_experts_are_stacked() -> None:
    parts = {"w1": "f16[6,4]", "w3": "f16[6,4]", "w2": "f16[4,6]"}
    a = {f"l.{i}.experts.{e}.{p}.weight": s for i in range(12) for e in range(12) for p, s in parts.items()}
    wholes = {"gate_up_proj": "f16[12,12,4]", "down_proj": "f16[12,4,6]"}
    b = {f"l.{i}.mlp.experts.{n}": s for i in range(12) for n, s in wholes.items()}
    found = infer(catalog(a), catalog(b))
    assert (found.explained, found.problem) == (24, None)
    confirm = [r.confirm[:11] for r in read(found.text.encode(), "i.yaml").own_rules]
    assert sorted(confirm) == ["", "gate and up"]


def test_what_fits_as_well_in_another_way_is_not_put_together() -> None:
    a = {f"{block}.{p}.weight": "f16[4,4]" for block in ("left", "right") for p in "qkv"}
    found = infer(catalog(a), catalog({"one.weight": "f16[12,4]", "two.weight": "f16[12,4]"}))
    assert (found.explained, len(found.missing), len(found.unused)) == (0, 2, 6)


def test_the_last_that_is_left_is_proposed_and_said_to_be() -> None:
    found = infer(
        catalog({"a.w": "f16[4]", "16.scale.x": "f16[8]"}), catalog({"b.w": "f16[4]", "end.x": "f16[8]"})
    )
    assert found.explained == 2
    assert set(found.confirm.values()) == {"by elimination: nothing else is left with this shape"}


def test_a_square_matrix_may_be_transposed_as_others_are() -> None:
    a = {"h.c_fc.weight": "f16[4,8]", "h.c_proj.weight": "f16[4,4]"}
    b = {"h.c_fc.weight": "f16[8,4]", "h.c_proj.weight": "f16[4,4]"}
    confirm = infer(catalog(a), catalog(b)).confirm
    assert sorted(confirm.values()) == [
        "others are transposed; of a square matrix the shape does not say it",
        "the shapes are transposed",
    ]
