"""The six commands of the main job, on a real Pythia."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

PACK = ("-r", "magma/from-hf")


@pytest.fixture
def out(remap, pythia, tmp_path):
    """A Pythia converted for MAGMA."""
    folder = tmp_path / "out"
    ran = remap("convert", pythia("fp32"), folder, *PACK, "--to", "deepspeed-pipeline")
    assert (ran.code, ran.err) == (0, "")
    assert "deepspeed-pipeline, 52 tensors in" in ran.out
    return folder


def test_inspect_says_what_it_is_in_a_line_for_all_layers(remap, pythia):
    ran = remap("inspect", pythia("fp32"))
    assert ran.code == 0
    assert "format     safetensors" in ran.out
    assert "4  gpt_neox.layers.{0..3}.attention.dense.weight" in ran.out


def test_inspect_as_json_has_a_version_and_every_tensor(remap, pythia):
    document = json.loads(remap("inspect", pythia("bf16-sharded"), "--json").out)
    assert document["version"] == 1
    assert document["tensors"]["gpt_neox.embed_in.weight"] == {
        "dtype": "bfloat16",
        "shape": [512, 64],
        "nbytes": 512 * 64 * 2,
    }


def test_inspect_as_a_tree_has_every_module(remap, pythia):
    out = remap("inspect", pythia("fp32"), "--tree").out
    assert "query_key_value" in out
    assert out.count("attention") >= 4


def test_plan_shows_renames_and_writes_nothing(remap, pythia, tmp_path):
    ran = remap("plan", pythia("fp32"), *PACK)
    assert ran.code == 0
    line = next(x for x in ran.out.splitlines() if "attention.dense.weight" in x)
    assert line.split() == [
        "4",
        "gpt_neox.layers.{0..3}.attention.dense.weight",
        "->",
        "{2..5}.attention.attn_block.dense.weight",
        "f32[64,64]",
        "attention",
        ">",
        "wrapped",
    ]


def test_plan_names_what_is_dropped_and_why(remap, pythia):
    out = remap("plan", pythia("bin-fp16-buffers"), *PACK).out
    assert "gpt_neox.layers.{0..3}.attention.masked_bias" in out
    assert "12 dropped" in out


def test_plan_all_has_a_line_for_every_tensor(remap, pythia):
    out = remap("plan", pythia("fp32"), *PACK, "--all").out
    assert "gpt_neox.layers.3.attention.dense.weight" in out


def test_the_layer_files_hold_the_weights(out, pythia):
    source = load_file(pythia("fp32") / "model.safetensors")
    layer = torch.load(out / "global_step0/layer_03-model_00-model_states.pt", weights_only=True)
    key = "attention.attn_block.dense.weight"
    assert layer[key].equal(source["gpt_neox.layers.1.attention.dense.weight"])
    assert (out / "latest").read_text() == "global_step0"


def test_there_and_back_is_the_same(remap, out, pythia, tmp_path):
    back = tmp_path / "back"
    ran = remap("convert", out, back, *PACK, "--inverse", "--to", "safetensors")
    assert ran.code == 0
    ran = remap("diff", pythia("fp32"), back)
    assert (ran.code, ran.out) == (0, "the same: 52 tensors, bit for bit\n")
    a, b = load_file(pythia("fp32") / "model.safetensors"), load_file(back / "model.safetensors")
    assert a.keys() == b.keys()
    assert all(a[k].equal(b[k]) for k in a)


def test_what_describes_the_model_travels_along(remap, out, pythia, tmp_path):
    remap("convert", out, tmp_path / "back", *PACK, "--inverse", "--to", "safetensors")
    assert (tmp_path / "back/config.json").read_bytes() == (pythia("fp32") / "config.json").read_bytes()


def test_the_same_input_gives_the_same_bytes(remap, pythia, tmp_path):
    for name in ("a", "b"):
        remap("convert", pythia("bin-fp16"), tmp_path / name, *PACK, "--to", "deepspeed-pipeline")
    a, b = (
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()}
        for n in ("a", "b")
    )
    assert a == b


def test_verify_passes_what_was_written(remap, out, pythia):
    assert remap("verify", out).out == f"{out}: 52 tensors as the receipt says\n"
    assert remap("verify", out, "--against", pythia("fp32")).code == 0


def test_verify_fails_on_one_changed_bit(remap, out):
    path = out / "global_step0/layer_02-model_00-model_states.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    ran = remap("verify", out)
    assert ran.code == 4
    assert "its bytes have digest" in ran.err
    assert "2." in ran.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda out: (out / "global_step0/mp_rank_00_model_states.pt").unlink(),
            "mp_rank_00_model_states.pt: missing",
        ),
        (
            lambda out: (out / "latest").write_text("global_step1"),
            "latest: what it holds beside tensors is not what was written",
        ),
        (lambda out: (out / "config.json").write_text("{}"), "config.json: 2 bytes"),
    ],
)
def test_verify_fails_on_a_file_that_is_not_as_written(remap, out, change, said):
    if "latest" in said:
        (out / "global_step1").symlink_to("global_step0")
    change(out)
    ran = remap("verify", out)
    assert ran.code == 4
    assert said in ran.err


def test_verify_names_a_layer_too_many(remap, out):
    torch.save({"w": torch.ones(1)}, out / "global_step0/layer_06-model_00-model_states.pt")
    ran = remap("verify", out)
    assert ran.code == 4
    assert "6.w: not in the receipt" in ran.err


def test_verify_against_takes_the_packs_that_have_no_name(remap, pythia, tmp_path):
    pack = tmp_path / "mine.yaml"
    remap("rules", "invert", "gpt_neox/pipeline-to-sequential", "-o", pack)
    save_file({"sequential.2.w": torch.ones(2)}, tmp_path / "in.safetensors")
    remap("convert", tmp_path / "in.safetensors", tmp_path / "out.safetensors", "-r", pack)
    against = ("verify", tmp_path / "out.safetensors", "--against", tmp_path / "in.safetensors")
    assert remap(*against).code == 2
    assert remap(*against, "-r", pack).code == 0


def test_a_pack_applied_twice_by_name_is_verified_so(remap, out, tmp_path):
    wrap = ("-r", "magma/wrap-adapters", "--again", "wrapped")
    assert remap("convert", out, tmp_path / "twice", *wrap).code == 0
    assert remap("verify", tmp_path / "twice", "--against", out).code == 0


def test_convert_passes_on_what_the_source_warns_of(remap, out, tmp_path):
    (out / "latest").unlink()
    ran = remap("convert", out, tmp_path / "again", *PACK, "--inverse", "--to", "safetensors")
    assert ran.code == 0
    assert "no latest beside the step folder" in ran.err


def test_the_config_that_travels_along_tells_the_new_type(remap, pythia, tmp_path):
    remap("convert", pythia("fp32"), tmp_path / "half", "--dtype", "bf16")
    config = json.loads((tmp_path / "half/config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"


def test_verify_against_another_source_fails(remap, out, pythia):
    ran = remap("verify", out, "--against", pythia("fp16"))
    assert ran.code == 4
    assert "the source gives digest" in ran.err


def test_verify_without_a_receipt_says_what_to_do(remap, pythia):
    ran = remap("verify", pythia("fp32"))
    assert ran.code == 2
    assert "remap diff" in ran.err


def test_diff_gives_a_verdict_for_each_difference(remap, tmp_path):
    save_file(
        {"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(2), "d": torch.ones(1)},
        tmp_path / "x.safetensors",
    )
    save_file(
        {"a": torch.zeros(2), "b": torch.ones(3), "c": torch.ones(2).half(), "e": torch.ones(1)},
        tmp_path / "y.safetensors",
    )
    ran = remap("diff", tmp_path / "x.safetensors", tmp_path / "y.safetensors", "--json")
    assert ran.code == 1
    verdicts = {d["key"]: d["verdict"] for d in json.loads(ran.out)["differences"]}
    assert verdicts == {"a": "values", "b": "shape", "c": "cast", "d": "only in A", "e": "only in B"}


def test_diff_says_what_it_did_not_look_at(remap, tmp_path):
    for name, value in (("x", 1), ("y", 2)):
        save_file({"a": torch.full((2,), value)}, tmp_path / f"{name}.safetensors")
    command = ("diff", tmp_path / "x.safetensors", tmp_path / "y.safetensors", "--no-values")
    assert remap(*command).out == "the same: 1 tensor, keys, shapes and dtypes; values were not compared\n"
    document = json.loads(remap(*command, "--json").out)
    assert (document["compared"], document["equal"]) == ("specs", ["a"])


def test_a_key_list_plans_as_its_checkpoint_does(remap, pythia, tmp_path):
    keys = tmp_path / "keys.json"
    assert remap("keys", pythia("fp32"), "-o", keys).code == 0
    a, b = (
        json.loads(remap("plan", s, *PACK, "-p", "layers=4", "--json").out) for s in (pythia("fp32"), keys)
    )
    assert sorted(o["key"] for o in a["outputs"]) == sorted(o["key"] for o in b["outputs"])


def test_dtype_casts_as_torch_does(remap, pythia, tmp_path):
    remap("convert", pythia("fp32"), tmp_path / "h.safetensors", "--dtype", "bf16")
    a, b = load_file(pythia("fp32") / "model.safetensors"), load_file(tmp_path / "h.safetensors")
    assert all(a[k].bfloat16().equal(b[k]) for k in a)


def test_the_head_comes_back_under_the_name_that_it_had(remap, pythia, tmp_path):
    tensors = load_file(pythia("fp32") / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("embed_out.weight")
    save_file(tensors, tmp_path / "new.safetensors")
    remap("convert", tmp_path / "new.safetensors", tmp_path / "out", *PACK, "--to", "deepspeed-pipeline")
    remap("convert", tmp_path / "out", tmp_path / "back.safetensors", *PACK, "--inverse")
    assert remap("diff", tmp_path / "new.safetensors", tmp_path / "back.safetensors").code == 0


def test_python_dash_m_remap_is_remap():
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", "remap", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("remap, version ")
