"""Ranks and stages on the command line."""

from __future__ import annotations

import json

SAID = ("-p", "gpt_j_residual=true")


def test_ranks_are_inspected_as_they_lie(remap, neox_runs):
    ran = remap("inspect", neox_runs / "tp2")
    assert ran.code == 0
    assert "ranks      2 tensor-parallel" in ran.out
    assert "2 attention.dense.weight" not in ran.out
    assert "{2..5}.attention.dense.weight@{0..1}" in ran.out


def test_what_must_be_said_is_exit_code_3(remap, neox_runs, tmp_path):
    ran = remap("convert", neox_runs / "tp2", tmp_path / "out.safetensors")
    assert ran.code == 3
    assert "say which: -p gpt_j_residual=true" in ran.err
    assert remap("convert", neox_runs / "tp2", tmp_path / "out.safetensors", *SAID).code == 0


def test_a_run_is_divided_anew_and_verified(remap, neox_runs, tmp_path):
    out = tmp_path / "out"
    ran = remap("reshard", neox_runs / "tp2", out, "--tp", "4", "--pp", "2", *SAID)
    assert ran.code == 0
    assert "not carried along: buffer_names, optimizer" in ran.err
    assert len(list((out / "global_step7").glob("mp_rank_*"))) == 8
    assert remap("verify", out, "--against", neox_runs / "tp2").code == 0
    same = remap("diff", neox_runs / "tp2", out, *SAID)
    assert (same.code, same.out.split(":")[0]) == (0, "the same")


def test_a_plan_has_the_models_tensors(remap, neox_runs):
    pack = ("-r", "gpt_neox/hf-to-neox", "--inverse")
    ran = remap("plan", neox_runs / "tp2", *pack, *SAID, "--json")
    (dense,) = (
        o for o in json.loads(ran.out)["outputs"] if o["key"].endswith("layers.0.attention.dense.weight")
    )
    assert dense["shape"] == [16, 16]


def test_an_audit_reads_ranks(remap, neox_runs):
    ran = remap("audit", neox_runs / "tp2", "--against", "gpt_neox/neox", *SAID)
    assert ran.code == 0, ran.out


def test_ranks_that_divide_nothing_are_wrong_use(remap, neox_runs, tmp_path):
    ran = remap("reshard", neox_runs / "tp2", tmp_path / "out", "--tp", "3", *SAID)
    assert ran.code == 2
    assert "4 heads can't be divided over 3 ranks: each has whole ones" in ran.err
    assert remap("reshard", neox_runs / "tp2", tmp_path / "out", "--fsdp", "3").code == 2
    assert remap("convert", neox_runs / "tp2", tmp_path / "o.pt", "--tp", "2", *SAID).code == 2


def test_a_layout_is_named(remap, neox_runs, tmp_path):
    wrong = remap("keys", neox_runs / "tp2", "--layout", "opt/metaseq")
    assert wrong.code == 3
    assert "are no keys of opt/metaseq" in wrong.err
    assert remap("keys", neox_runs / "tp2", "--layout", "gpt_neox/neox", *SAID).code == 0
