"""Public reports of tools that left their users alone, each with what the command line must do."""

from __future__ import annotations

import json
from pathlib import Path

import torch


def test_a_part_is_named_where_the_whole_was_asked_for(remap, tmp_path, monkeypatch):
    """d01, https://github.com/facebookresearch/metaseq/issues/62: reshard.pt is asked for, its parts are
    there. They are not blindly joined; they are named."""
    monkeypatch.chdir(tmp_path)
    for part in range(2):
        torch.save({"w": torch.ones(2)}, f"reshard-model_part-{part}.pt")
    ran = remap("inspect", "reshard.pt")
    assert ran.code == 3
    assert "no such file or folder" in ran.err
    assert "is it reshard-model_part-0.pt or reshard-model_part-1.pt?" in ran.err


def test_the_same_conversion_gives_the_same_bytes(remap, tmp_path, monkeypatch):
    """d16, https://github.com/facebookresearch/metaseq/pull/591: the same weights in different bytes, so that
    nobody could compare downloads."""
    monkeypatch.chdir(tmp_path)
    torch.save({"b": torch.arange(6.0), "a": torch.ones(2, 3)}, "w.pt")
    for form, suffix in (("safetensors", "safetensors"), ("torch", "pt")):
        for name in ("one", "two"):
            assert remap("convert", "w.pt", f"{name}.{suffix}", "--to", form).code == 0
        assert Path(f"one.{suffix}").read_bytes() == Path(f"two.{suffix}").read_bytes()
    digests = [json.loads(p.read_text())["tensors"] for p in tmp_path.glob("*.receipt.json")]
    assert len({json.dumps(d, sort_keys=True) for d in digests}) == 1, "in either format"


def test_a_receipt_names_pack_version_and_digest(remap, tmp_path, monkeypatch):
    """i15, https://github.com/modelscope/ms-swift/pull/9877: a rule that differed between two releases, and
    nobody could say which had been applied."""
    monkeypatch.chdir(tmp_path)
    torch.save({"embed_out.weight": torch.ones(2), "gpt_neox.w": torch.ones(2)}, "w.pt")
    assert remap("convert", "w.pt", "out.safetensors", "-r", "transformers/gptneox-4-to-5").code == 0
    document = json.loads(Path("out.safetensors.receipt.json").read_text())
    (step,) = document["steps"]
    assert (step["pack"], step["version"]) == ("transformers/gptneox-4-to-5", "1.0.0")
    assert len(step["digest"]) >= 16
    assert document["remap"]
