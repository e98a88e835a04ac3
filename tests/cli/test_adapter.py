"""``remap adapter``, as it is typed."""

from __future__ import annotations

import json

import pytest
import torch
from adapters import magma_models as magma
from safetensors.torch import load_file, save_file


@pytest.fixture
def trained(tmp_path):
    """MAGMA's layer files, as DeepSpeed names them, with adapters and an image prefix in them."""
    state = {
        **magma.model(magma.FORMS["around"]).state_dict(),
        "0.image_prefix.proj.weight": torch.ones(8, 4),
    }
    folder = tmp_path / "trained" / "global_step7"
    folder.mkdir(parents=True)
    for number in {k.partition(".")[0] for k in state}:
        layer = {k.partition(".")[2]: v for k, v in state.items() if k.startswith(f"{number}.")}
        torch.save(layer, folder / f"layer_{int(number):02d}-model_00-model_states.pt")
    torch.save({"module": None, "dp_world_size": 1}, folder / "mp_rank_00_model_states.pt")
    (folder.parent / "latest").write_text("global_step7")
    return folder.parent


def lora(folder, **config):
    folder.mkdir()
    front = "base_model.model.l.0.q"
    state = {f"{front}.lora_A.weight": torch.rand(2, 4), f"{front}.lora_B.weight": torch.rand(4, 2)}
    save_file(state, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, **config}))
    return folder


def test_show_says_what_it_is(remap, trained, tmp_path):
    ran = remap("adapter", "show", trained)
    assert (ran.code, ran.err) == (0, "")
    assert "dialect    magma (MAGMA's adapters and image prefix)" in ran.out
    assert "12  default  {2..13}.attention" in ran.out
    ran = remap("adapter", "show", lora(tmp_path / "a", lora_alpha=8, target_modules=["q"]))
    assert ran.out.splitlines()[-1].split()[:5] == ["1", "default", "l.0.q", "2", "4"]
    ran = remap("adapter", "show", tmp_path / "a", "--json")
    assert json.loads(ran.out)["adapter"]["method"] == "LORA"


def test_show_says_what_is_wrong(remap, tmp_path):
    source = lora(tmp_path / "a")
    state = load_file(source / "adapter_model.safetensors")
    config = json.loads((source / "adapter_config.json").read_text())
    (source / "adapter_config.json").write_text(json.dumps({**config, "r": 3}))
    save_file({**state, "base_model.model.w.weight": torch.ones(16)}, source / "adapter_model.safetensors")
    ran = remap("adapter", "show", source)
    assert ran.code == 1
    assert "others     1 tensor, 50% of the bytes, are no adapter's" in ran.out
    assert ran.err == "problem: l.0.q: its rank is 2, adapter_config.json says 3\n"


def test_layer_files_apart_and_together(remap, trained, tmp_path):
    ran = remap("adapter", "extract", trained, "-o", tmp_path / "adapter")
    assert (ran.code, ran.err) == (0, "")
    assert "adapter: safetensors, 97 tensors in 2 files" in ran.out
    ran = remap("adapter", "extract", trained, "-o", tmp_path / "base", "--part", "base")
    assert (ran.code, ran.out.split(",")[0]) == (0, f"{tmp_path / 'base'}: deepspeed-pipeline")
    ran = remap("adapter", "graft", tmp_path / "base", tmp_path / "adapter", "-o", tmp_path / "model")
    assert (ran.code, ran.err) == (0, "")
    assert remap("diff", tmp_path / "model", trained).code == 0
    assert remap("verify", tmp_path / "model").code == 0


def test_a_base_in_hugging_face_s_names_is_renamed_by_the_pack_that_fits(remap, pythia, tmp_path):
    adapters = {
        f"{n}.{part}.adapter.0.weight": torch.rand(16, 64)
        for n in range(2, 6)
        for part in ("attention", "mlp")
    }
    save_file(adapters, tmp_path / "a.safetensors")
    to = ("--to", "deepspeed-pipeline")
    ran = remap("adapter", "graft", pythia("fp32"), tmp_path / "a.safetensors", "-o", tmp_path / "model", *to)
    assert (ran.code, ran.err) == (0, "note: fp32 is renamed by gpt_neox/hf-to-neox\n")
    layer = torch.load(tmp_path / "model/global_step0/layer_03-model_00-model_states.pt", weights_only=True)
    assert torch.equal(layer["mlp.adapter.0.weight"], adapters["3.mlp.adapter.0.weight"])
    old = load_file(pythia("fp32") / "model.safetensors")["gpt_neox.layers.1.attention.dense.weight"]
    assert torch.equal(layer["attention.attn_block.dense.weight"], old)
    again = ("-r", "magma/from-hf", "--overwrite", "--json")
    ran = remap(
        "adapter", "graft", pythia("fp32"), tmp_path / "a.safetensors", "-o", tmp_path / "model", *to, *again
    )
    assert [s["pack"] for s in json.loads(ran.out)["steps"]] == ["magma/from-hf", "remap adapter"]


def test_a_base_with_fewer_layers_says_which(remap, pythia, tmp_path):
    adapters = {f"{n}.mlp.adapter.0.weight": torch.rand(16, 64) for n in range(2, 7)}
    save_file(adapters, tmp_path / "a.safetensors")
    ran = remap("adapter", "graft", pythia("fp32"), tmp_path / "a.safetensors", "-o", tmp_path / "model")
    assert ran.code == 2
    assert "lacks 1 of the adapter's 5 modules, also renamed by gpt_neox/hf-to-neox\n  6.mlp\n" in ran.err


def test_a_lora_in_kohya_s_words_and_back(remap, tmp_path):
    source = lora(tmp_path / "lora", lora_alpha=8, target_modules=["q"])
    assert remap("adapter", "migrate", source, "-o", tmp_path / "k.safetensors", "--to", "kohya").code == 0
    assert load_file(tmp_path / "k.safetensors")["l_0_q.alpha"].item() == 8
    ran = remap("adapter", "migrate", tmp_path / "k.safetensors", "-o", tmp_path / "p", "--to", "peft")
    assert ran.code == 2
    assert "l_0_q: no module is called that" in ran.err
    (tmp_path / "base.json").write_text('{"l.0.q.weight": [[4, 4], "float32"]}')
    base = ("--base", tmp_path / "base.json")
    assert (
        remap(
            "adapter", "migrate", tmp_path / "k.safetensors", "-o", tmp_path / "p", "--to", "peft", *base
        ).code
        == 0
    )
    config = json.loads((tmp_path / "p/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 8, ["l.0.q"])
    assert remap("diff", tmp_path / "p", source).code == 0


def test_settings_are_json_where_they_are_some(remap, tmp_path):
    front = "base_model.model.q"
    state = {
        f"{front}.lora_A.default.weight": torch.rand(2, 4),
        f"{front}.lora_B.default.weight": torch.rand(4, 2),
    }
    save_file(state, tmp_path / "m.safetensors")
    ran = remap("adapter", "extract", tmp_path / "m.safetensors", "-o", tmp_path / "a")
    assert ran.code == 2
    assert "the tensors don't tell lora_alpha" in ran.err
    more = ("--set", "lora_alpha=16", "--set", "use_rslora=true", "--set", "task_type=CAUSAL_LM")
    assert remap("adapter", "extract", tmp_path / "m.safetensors", "-o", tmp_path / "a", *more).code == 0
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (config["lora_alpha"], config["use_rslora"], config["task_type"]) == (16, True, "CAUSAL_LM")


def test_against_the_source_a_receipt_can_t_do_it_again(remap, tmp_path):
    source = lora(tmp_path / "lora")
    remap("adapter", "migrate", source, "-o", tmp_path / "d.safetensors", "--to", "diffusers")
    assert remap("verify", tmp_path / "d.safetensors").code == 0
    ran = remap("verify", tmp_path / "d.safetensors", "--against", source)
    assert (ran.code, "made by remap adapter" in ran.err) == (2, True)


def test_no_adapter_no_output(remap, tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "w.safetensors")
    ran = remap("adapter", "extract", tmp_path / "w.safetensors", "-o", tmp_path / "out")
    assert ran.code == 3
    assert str(tmp_path / "w.safetensors") in ran.err
    assert not (tmp_path / "out").exists()
    ran = remap("adapter", "migrate", lora(tmp_path / "a"), "-o", tmp_path / "out", "--to", "nobody")
    assert (ran.code, "use one of peft, kohya" in ran.err) == (2, True)


def wrapped_by_rank(run, out):
    """A tensor-parallel NeoX run with MAGMA's adapters, which every rank has whole; the adapters."""
    step = out / "global_step7"
    step.mkdir(parents=True)
    (out / "latest").write_text("global_step7")
    adapters = {}
    for path in sorted((run / "global_step7").iterdir()):
        if not path.name.startswith("layer_"):
            (step / path.name).write_bytes(path.read_bytes())
            continue
        layer = torch.load(path, weights_only=False)
        number, size = int(path.name[6:8]), len(layer.get("input_layernorm.weight", ()))
        torch.manual_seed(number)  # the same on all ranks
        shapes = {"0.weight": (2, size), "0.bias": (2,), "2.weight": (size, 2), "2.bias": (size,)}
        made = {}
        for part in ("attention", "mlp") if size else ():
            layer = {k.replace(f"{part}.", f"{part}.attn_block.", 1): v for k, v in layer.items()}
            made |= {f"{part}.adapter.{leaf}": torch.rand(shape) for leaf, shape in shapes.items()}
        torch.save(layer | made, step / path.name)
        adapters |= {f"{number}.{k}": v for k, v in made.items()}
    return adapters


def test_out_of_tensor_parallel_ranks(remap, neox_runs, tmp_path):
    """What ranks hold is not told by shapes alone: it is said as for every other command."""
    said = ("-p", "gpt_j_residual=true")
    adapters = wrapped_by_rank(neox_runs / "tp2", tmp_path / "run")
    assert remap("adapter", "extract", tmp_path / "run", "-o", tmp_path / "out").code == 3
    assert remap("adapter", "show", tmp_path / "run", *said).code == 0
    ran = remap("adapter", "extract", tmp_path / "run", "-o", tmp_path / "out", *said)
    assert ran.code == 0, ran.err
    found = load_file(tmp_path / "out/adapter_model.safetensors")
    assert found.keys() == adapters.keys()
    assert all(torch.equal(found[k], v) for k, v in adapters.items())
    ran = remap("adapter", "extract", tmp_path / "run", "-o", tmp_path / "base", "--part", "base", *said)
    assert ran.code == 0, ran.err
    assert remap("diff", tmp_path / "base", neox_runs / "tp2", *said).code == 0
    ran = remap("adapter", "graft", neox_runs / "tp2", tmp_path / "run", "-o", tmp_path / "model", *said)
    assert ran.code == 0, ran.err
    assert remap("diff", tmp_path / "model", tmp_path / "run", *said).code == 0
