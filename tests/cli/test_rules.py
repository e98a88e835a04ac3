"""``remap rules``: the packs that come with remap, and one that is wrong."""

from __future__ import annotations

import json

HEAD = "remap: 1\npack: test/p\nversion: 1.0.0\ntitle: a test\n"


def test_list_has_every_pack_with_its_title(remap):
    ran = remap("rules", "list", "--json")
    packs = {p["name"]: p["title"] for p in json.loads(ran.out)["packs"]}
    assert packs["magma/from-hf"] == "Hugging Face GPT-NeoX (Pythia) to MAGMA"


def test_list_has_the_layouts_that_have_all_words(remap):
    ran = remap("rules", "list", "magma", "adapters around", "--json")
    assert [x["name"] for x in json.loads(ran.out)["layouts"]] == ["magma/neox"]


def test_list_says_that_nothing_has_the_words(remap):
    ran = remap("rules", "list", "nonesuch")
    assert (ran.out, ran.err) == ("", "no pack and no layout has all of these words\n")


def test_all_packs_are_sound(remap):
    ran = remap("rules", "lint")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(" sound\n")


def test_all_packs_do_what_their_examples_say(remap):
    ran = remap("rules", "test")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(" as their examples say\n")


def test_lint_names_what_is_missing(remap, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "stages:\n  - rules:\n      - {id: a, from: 'x', to: 'y'}\n")
    ran = remap("rules", "lint", path)
    assert ran.code == 1
    assert "no evidence" in ran.out
    assert "no examples" in ran.out


def test_a_pack_that_does_not_load_is_said_with_its_line(remap, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "stages:\n  - rules:\n      - {id: a, form: 'x', to: 'y'}\n")
    ran = remap("rules", "test", path)
    assert ran.code == 2
    assert "p.yaml:7" in ran.out
    assert "from" in ran.out


def test_an_example_that_does_not_hold_fails(remap, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD
        + "stages:\n  - rules:\n      - {id: a, from: 'x', to: 'y'}\n"
        + "examples:\n  - given: {x: 'f32[2]'}\n    expect: {z: 'f32[2]'}\n"
    )
    ran = remap("rules", "test", path)
    assert ran.code == 1
    assert "example-differs" in ran.out


def test_show_is_a_page_with_the_names(remap):
    out = remap("rules", "show", "magma/wrap-adapters").out
    assert out.startswith("# magma/wrap-adapters 1.")
    assert "{layer}.{part}.attn_block.{rest}" in out


def test_a_new_pack_passes_lint_and_its_examples(remap, tmp_path):
    path = tmp_path / "pack.yaml"
    assert remap("rules", "new", "mine/first", "-o", path).code == 0
    assert remap("rules", "lint", path).code == 0
    assert remap("rules", "test", path).code == 0


def test_an_inverted_pack_undoes_the_pack(remap, tmp_path, pythia):
    path = tmp_path / "back.yaml"
    assert remap("rules", "invert", "gpt_neox/pipeline-to-sequential", "-o", path).code == 0
    keys = tmp_path / "keys.json"
    keys.write_text('{"sequential.2.norm.weight": [[4], "float16"]}')
    ran = remap("plan", keys, "-r", path, "--json")
    assert [o["key"] for o in json.loads(ran.out)["outputs"]] == ["2.norm.weight"]


def test_what_cannot_be_written_is_said(remap, tmp_path):
    ran = remap("rules", "new", "mine/first", "-o", tmp_path / "no/such/folder.yaml")
    assert ran.code == 2
    assert "can't be written" in ran.err


def test_lint_on_a_key_list_finds_a_dead_rule(remap, tmp_path, pythia):
    ran = remap("rules", "lint", "transformers/clip-4-to-5", "--keys", pythia("fp32"))
    assert ran.code == 1
    assert "rule" in ran.out


def test_the_schema_is_a_json_schema(remap):
    document = json.loads(remap("rules", "schema").out)
    assert document["$schema"].startswith("https://json-schema.org/")


def test_infer_proves_renames_by_content(remap, tmp_path, pythia):
    remap("convert", pythia("fp32"), tmp_path / "neox", "-r", "gpt_neox/hf-to-neox", "--to", "safetensors")
    pack = tmp_path / "found.yaml"
    ran = remap("rules", "infer", pythia("fp32"), tmp_path / "neox", "-o", pack)
    assert ran.code == 0
    assert "explained: 52 of 52 keys" in ran.err
    again = remap("plan", pythia("fp32"), "-r", pack, "--json")
    wanted = remap("plan", pythia("fp32"), "-r", "gpt_neox/hf-to-neox", "--json")
    pairs = [{o["key"]: o["sources"] for o in json.loads(r.out)["outputs"]} for r in (again, wanted)]
    assert pairs[0] == pairs[1]
