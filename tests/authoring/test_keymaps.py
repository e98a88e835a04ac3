"""A pack against an oracle: right, wrong with the key, or broken with the reason."""

from __future__ import annotations

from packs.language import catalog, rules

from remap.authoring.keymaps import judge
from remap.packs import load

EXPERTS = {
    f"model.layers.0.mlp.experts.{e}.{p}_proj.weight": "f16[4,4]" for e in range(12) for p in ("gate", "up")
}


def test_merged_experts_are_judged_by_their_sources() -> None:
    wanted = dict.fromkeys(EXPERTS, "model.layers.0.mlp.experts.gate_up_proj")
    pack = rules("""
        - id: gate-up
          from: ["model.layers.{i:int}.mlp.experts.{e:int}.gate_proj.weight",
                 "model.layers.{i:int}.mlp.experts.{e:int}.up_proj.weight"]
          to: "model.layers.{i}.mlp.experts.gate_up_proj"
          do: [concat, {stack: {over: e}}]
    """)
    assert judge("qwen", pack, catalog(EXPERTS), wanted).problems == ()


def test_a_difference_is_named() -> None:
    pack = load("transformers/gptneox-4-to-5")
    keys = ["embed_out.weight", "gpt_neox.embed_in.weight"]
    found = judge("x", pack, catalog(keys), {"embed_out.weight": "head.weight"})
    assert found.problems == ("embed_out.weight becomes lm_head.weight; it should be head.weight",)


def test_a_pack_that_does_not_fit_says_why() -> None:
    found = judge("x", load("transformers/gptneox-4-to-5"), catalog(["other.w"]), {})
    assert "no rule owns" in found.problems[0]
