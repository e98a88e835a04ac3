"""``remap audit``: exit codes, forms, baseline, fix; and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

KEYS = Path(__file__).parent.parent / "data" / "keys"


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """Key lists a (wrapped), b, and c, which has one key more than b."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    b = {"fc.weight": [[2, 3], "float32"], "fc.bias": [[2], "float32"]}
    write("a.json", {f"model.{k}": v for k, v in b.items()})
    write("b.json", b)
    write("c.json", {**b, "head.weight": [[5], "float32"]})
    Path("empty.yaml").touch()
    return tmp_path


def write(name, keys):
    Path(name).write_text(json.dumps(keys))


@pytest.mark.parametrize(
    ("source", "target", "code"), [("b", "b", 0), ("a", "b", 1), ("b", "c", 1), ("c", "b", 1)]
)
def test_exit_codes(remap, lists, source, target, code):
    ran = remap("audit", f"{source}.json", "--against", f"{target}.json")
    assert ran.code == code
    assert ("PASSES" if code == 0 else "FAILS") in ran.out
    assert ran.err == ""


def test_json_goes_to_stdout_and_the_verdict_to_stderr(remap, lists):
    ran = remap("audit", "b.json", "--against", "c.json", "--format", "json")
    assert json.loads(ran.out)["passed"] is False
    assert "fails the policy strict" in ran.err


def test_an_output_file(remap, lists):
    ran = remap("audit", "b.json", "--against", "c.json", "--format", "sarif", "-o", "audit.sarif")
    assert (ran.code, ran.out) == (1, "")
    assert json.loads(Path("audit.sarif").read_text())["version"] == "2.1.0"


def test_an_output_that_cannot_be_written(remap, lists):
    ran = remap("audit", "b.json", "--against", "b.json", "-o", "no/such/folder/report")
    assert ran.code == 2
    assert "can't be written" in ran.err


def test_the_fix_is_written_and_works(remap, lists):
    ran = remap("audit", "a.json", "--against", "b.json", "--write-fix", "fix.yaml")
    assert ran.code == 1
    assert "remap audit" in ran.out
    assert "-r fix.yaml" in ran.out
    assert remap("audit", "a.json", "--against", "b.json", "-r", "fix.yaml").code == 0


def test_the_suggested_command_says_all_that_was_asked_for_and_passes(remap, lists):
    keys = {
        f"gpt_neox.layers.{i}.input_layernorm.{p}": [[8], "float32"]
        for i in range(3)
        for p in ("weight", "bias")
    }
    sizes = {
        "attention.query_key_value": (24, 8),
        "attention.dense": (8, 8),
        "post_attention_layernorm": (8,),
    }
    sizes |= {"mlp.dense_h_to_4h": (32, 8), "mlp.dense_4h_to_h": (8, 32)}
    for name, shape in sizes.items():
        for i in range(3):
            keys[f"gpt_neox.layers.{i}.{name}.weight"] = [shape, "float32"]
            keys[f"gpt_neox.layers.{i}.{name}.bias"] = [shape[:1], "float32"]
    keys |= {f"gpt_neox.final_layer_norm.{p}": [[8], "float32"] for p in ("weight", "bias")}
    keys |= {"gpt_neox.embed_in.weight": [[50, 8], "float32"], "embed_out.weight": [[50, 8], "float32"]}
    write("pythia.json", keys)
    sizes = ("layers=3", "hidden=8", "vocab=50", "inner=32")
    options = [w for size in sizes for w in ("--target-param", size)]
    ran = remap("audit", "pythia.json", "--against", "magma/neox", *options, "--policy", "magma")
    assert ran.code == 1
    (command,) = [line.strip() for line in ran.out.splitlines() if line.startswith("  remap audit")]
    assert command.endswith("--policy magma -r magma/from-hf")
    assert remap(*shlex.split(command)[1:]).code == 0


def test_no_fix_where_none_is_found(remap, lists):
    ran = remap("audit", "b.json", "--against", "c.json", "--write-fix", "fix.yaml")
    assert "no fix was written" in ran.err
    assert not Path("fix.yaml").exists()


def test_an_installed_pack_needs_no_fix(remap, lists):
    old, new = (KEYS / version / "gptneox__pythia-14m.json.gz" for version in ("t4.57.6", "t5.24.0"))
    ran = remap("audit", old, "--against", new, "--write-fix", "fix.yaml")
    assert ran.code == 1
    assert "no fix was written: the pack transformers/gptneox-4-to-5 does it: remap audit" in ran.err
    assert not Path("fix.yaml").exists()
    assert remap("audit", old, "--against", new, "-r", "transformers/gptneox-4-to-5").code == 0


def test_a_policy_file(remap, lists):
    Path("audit.yaml").write_text("policy: 1\ncategories: {head: 'head.**'}\nlevels: {missing-head: allow}\n")
    assert remap("audit", "b.json", "--against", "c.json", "--policy", "audit.yaml").code == 0
    assert remap("audit", "a.json", "--against", "b.json", "--policy", "audit.yaml").code == 1


def test_a_wrong_policy(remap, lists):
    Path("audit.yaml").write_text("policy: 1\nlevels: {missing-hed: allow}\n")
    ran = remap("audit", "b.json", "--against", "c.json", "--policy", "audit.yaml")
    assert ran.code == 2
    assert "audit.yaml:2: no category is called 'missing-hed'" in ran.err


def test_a_baseline_is_written_and_then_only_news_fails(remap, lists):
    ran = remap("audit", "b.json", "--against", "c.json", "--baseline", "known.json", "--update-baseline")
    assert ran.code == 0
    assert json.loads(Path("known.json").read_text())["findings"] == ["RM101 head.weight"]
    assert remap("audit", "b.json", "--against", "c.json", "--baseline", "known.json").code == 0
    write("d.json", {**json.loads(Path("c.json").read_text()), "new.weight": [[7], "float32"]})
    ran = remap("audit", "b.json", "--against", "d.json", "--baseline", "known.json")
    assert ran.code == 1
    assert "FAILS: 1 finding " in ran.out


def test_a_baseline_does_not_cover_that_nothing_matched(remap, lists):
    ran = remap("audit", "a.json", "--against", "b.json", "--baseline", "known.json", "--update-baseline")
    assert ran.code == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--update-baseline",), "--update-baseline needs a file"),
        (("--baseline", "none.json"), "the baseline can't be read"),
        (("--baseline", "b.json"), "not a baseline"),
        (("--policy", "none.yaml"), "the policy can't be read: No such file"),
        (("--policy", "empty.yaml"), "a policy begins with policy: 1"),
        (("--target-param", "layers=5"), "has no parameters"),
        (("--policy", "magna"), "did you mean 'magma'"),
        (("--values",), "values can't be compared"),
        (("--target-param", "x"), "is not name=value"),
    ],
)
def test_wrong_use(remap, lists, arguments, what):
    ran = remap("audit", "b.json", "--against", "b.json", *arguments)
    assert ran.code == 2
    assert what in ran.err


def test_nothing_to_audit_against(remap, lists):
    assert remap("audit", "b.json").code == 2
    ran = remap("audit", "b.json", "--against", "none.json")
    assert ran.code == 2
    assert "no such file or folder" in ran.err


@pytest.mark.parametrize("source", ["none.json", "empty"])
def test_zero_inputs_are_never_a_pass(remap, lists, source):
    """d02, d04, e15: https://github.com/facebookresearch/metaseq/issues/653 and 439, ms-swift/issues/7891."""
    Path("empty").mkdir()
    ran = remap("audit", source, "--against", "b.json")
    assert ran.code == 3
    assert ran.out == ""


def test_of_two_state_dicts_the_weights_are_taken_and_the_average_if_asked_for(remap, lists):
    """a13, https://github.com/sming256/OpenTAD/issues/44: only the average has a prefix."""
    weights = {"proj.weight": torch.zeros(2, 3), "proj.bias": torch.zeros(2)}
    average = {f"module.{k}": v for k, v in weights.items()}
    torch.save({"state_dict": weights, "state_dict_ema": average}, "both.pt")
    write("model.json", {k: [list(v.shape), "float32"] for k, v in weights.items()})
    assert "state_dict_ema" in remap("inspect", "both.pt").out
    assert remap("audit", "both.pt", "--against", "model.json").code == 0
    ran = remap("audit", "both.pt", "--against", "model.json", "--at", "state_dict_ema")
    assert ran.code == 1
    assert "take the wrapper module. out of the source's names: 2 of 2 keys would match" in ran.out


def test_two_sources_of_one_key_are_a_finding_beside_the_others(remap, lists):
    """i10, https://github.com/onnxruntime/mobius/pull/334."""
    write("two.json", {"model.a": [[1], "float32"], "a": [[1], "float32"]})
    strip = "{id: strip, from: 'model.{r:path}', to: '{r}'}"
    rules = f"  - rules:\n      - {strip}\n      - {{id: others, keep: a}}\n"
    Path("p.yaml").write_text(f"remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages:\n{rules}")
    ran = remap("audit", "two.json", "--against", "b.json", "-r", "p.yaml")
    assert ran.code == 1
    assert "from model.a (p.yaml:7 (rule strip)) and a (p.yaml:8 (rule others))" in ran.out


def test_github_writes_annotations_and_a_summary(remap, lists, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(lists / "summary.md"))
    ran = remap("audit", "b.json", "--against", "c.json", "--format", "github")
    assert ran.out.startswith("::error title=RM101 missing-parameter::head.weight")
    assert Path("summary.md").read_text().startswith("### FAILS: 1 finding")


def test_a_real_conversion_passes(remap, pythia, tmp_path):
    """A Pythia that was converted for GPT-NeoX against the layout, and back against the original, with
    values."""
    out, back = tmp_path / "out", tmp_path / "back"
    pack = ("-r", "gpt_neox/hf-to-neox")
    assert remap("convert", pythia("fp32"), out, *pack, "--to", "deepspeed-pipeline").code == 0
    assert remap("audit", out, "--against", "gpt_neox/neox", "--target-param", "layers=4").code == 0
    assert remap("convert", out, back, *pack, "--inverse", "--to", "safetensors").code == 0
    ran = remap("audit", back, "--against", pythia("fp32"), "--values")
    assert ran.code == 0
    assert "52  RM001  matched" in ran.out


def test_values_are_compared_through_a_pack(remap, pythia, tmp_path):
    out = tmp_path / "magma.safetensors"
    pack = ("-r", "magma/from-hf")
    assert remap("convert", pythia("fp32"), out, *pack).code == 0
    ran = remap("audit", pythia("fp32"), "--against", out, *pack, "--values", "--format", "json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert found["counts"] == {"renamed": 52}
    assert all(f["detail"].endswith("; the same values") for f in found["findings"])


def test_names_need_no_torch(lists):
    code = "import sys; sys.argv[1:] = ['audit', 'b.json', '--against', 'c.json']\nimport atexit\n"
    code += "atexit.register(lambda: print('torch' in sys.modules))\nfrom remap.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 1
    assert done.stdout.endswith("False\n")


def test_json_is_the_same_as_format_json(remap, lists):
    ran = remap("audit", "b.json", "--against", "c.json", "--json")
    assert ran.out == remap("audit", "b.json", "--against", "c.json", "--format", "json").out
    assert json.loads(ran.out)["version"] == 1


@pytest.mark.parametrize(
    "option", [("-o",), ("--write-fix",), ("--update-baseline", "--baseline")], ids=lambda o: o[-1]
)
def test_what_is_compared_is_never_written_to(remap, lists, option):
    before = Path("c.json").read_bytes()
    ran = remap("audit", "b.json", "--against", "c.json", *option, "./c.json")
    assert ran.code == 2
    assert "one of the two that are compared" in ran.err
    assert Path("c.json").read_bytes() == before
