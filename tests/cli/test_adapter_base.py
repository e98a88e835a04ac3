"""``remap adapter migrate -r``, ``merge`` and ``unmerge``, as they are typed."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

SPLIT = """
remap: 1
pack: test/split
version: 1.0.0
title: a test
stages:
  - rules:
      - id: parts
        from: "l.{i:int}.qkv.{p:weight|bias}"
        to: ["h.{i}.q.{p}", "h.{i}.k.{p}", "h.{i}.v.{p}"]
        do: split
      - {id: rest, from: "l.{i:int}.o.{p}", to: "h.{i}.o.{p}", optional: true}
"""


@pytest.fixture
def lab(tmp_path):
    """A base of two layers, a LoRA on its qkv, and a pack."""
    base = {}
    adapter = {}
    for i in range(2):
        base |= {f"l.{i}.qkv.weight": torch.rand(12, 8), f"l.{i}.o.weight": torch.rand(8, 4)}
        front = f"base_model.model.l.{i}.qkv"
        adapter |= {f"{front}.lora_A.weight": torch.rand(2, 8), f"{front}.lora_B.weight": torch.rand(12, 2)}
    (tmp_path / "lora").mkdir()
    save_file(base, tmp_path / "base.safetensors")
    save_file(adapter, tmp_path / "lora" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["qkv"]}
    (tmp_path / "lora" / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "split.yaml").write_text(SPLIT)
    return tmp_path


def test_migrate_follows_the_base(remap, lab):
    pack, new = lab / "split.yaml", lab / "new"
    ran = remap(
        "adapter",
        "migrate",
        lab / "lora",
        "-o",
        new,
        "-r",
        pack,
        "--base",
        lab / "base.safetensors",
        "--base-name",
        "org/m",
    )
    assert (ran.code, ran.err) == (0, "")
    assert f"{new}: safetensors, 12 tensors in 2 files" in ran.out
    config = json.loads((new / "adapter_config.json").read_text())
    assert (config["target_modules"], config["base_model_name_or_path"]) == (["k", "q", "v"], "org/m")
    assert remap("verify", new).code == 0
    ran = remap("adapter", "migrate", new, "-o", lab / "back", "-r", pack, "--inverse")
    assert ran.code == 0
    old, back = (load_file(f / "adapter_model.safetensors") for f in (lab / "lora", lab / "back"))
    assert {k: t.tolist() for k, t in old.items()} == {k: t.tolist() for k, t in back.items()}


def test_merge_tells_what_is_changed(remap, lab):
    base, merged = lab / "base.safetensors", lab / "merged.safetensors"
    ran = remap("adapter", "merge", base, lab / "lora", "-o", merged, "--weight", "0.5")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1:] == ["changed: 2 of 4 tensors", "       2  l.{0..1}.qkv.weight"]
    old, new = load_file(base), load_file(merged)
    adapter = load_file(lab / "lora" / "adapter_model.safetensors")
    a, b = (adapter[f"base_model.model.l.1.qkv.lora_{x}.weight"] for x in "AB")
    torch.testing.assert_close(new["l.1.qkv.weight"], old["l.1.qkv.weight"] + 0.5 * 4 / 2 * b @ a)
    assert torch.equal(new["l.0.o.weight"], old["l.0.o.weight"])
    assert remap("verify", merged).code == 0
    ran = remap("verify", merged, "--against", base)
    assert ran.code == 2
    assert "remap adapter" in ran.err
    ran = remap("adapter", "unmerge", merged, lab / "lora", "-o", lab / "out.safetensors", "--weight", "0.5")
    assert ran.code == 0
    torch.testing.assert_close(load_file(lab / "out.safetensors"), old)


def test_json_is_the_receipt(remap, lab):
    ran = remap("adapter", "merge", lab / "base.safetensors", lab / "lora", "-o", lab / "m", "--json")
    tensor = json.loads(ran.out)["tensors"]["l.0.qkv.weight"]
    front = "base_model.model.l.0.qkv"
    assert tensor["sources"] == ["l.0.qkv.weight", f"{front}.lora_A.weight", f"{front}.lora_B.weight"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("merge", "base.safetensors", "lora", "-o", "m", "--weight", "1", "--weight", "2"),
            "2 weights for 1 adapters",
        ),
        (
            ("merge", "lora", "lora", "-o", "m"),
            "none of the tensors that the adapter changes are in the base",
        ),
        (("merge", "base.safetensors", "base.safetensors", "-o", "m"), "no tensor of an adapter is in it"),
        (("migrate", "lora", "-o", "m"), "nothing is to be done"),
        (("migrate", "lora", "-o", "m", "-r", "split.yaml", "--to", "kohya"), "first -r, then --to"),
        (("migrate", "lora", "-o", "m.safetensors", "-r", "split.yaml"), "no place for alpha"),
        (("migrate", "lora", "-o", "m", "-r", "split.yaml", "--inverse"), "taken back"),
    ],
)
def test_wrong_use_is_said_and_nothing_written(remap, lab, monkeypatch, arguments, said):
    monkeypatch.chdir(lab)
    ran = remap("adapter", *arguments)
    assert ran.code in (2, 3)
    assert said in ran.err
    assert not [*lab.glob("m"), *lab.glob("m.safetensors")]
