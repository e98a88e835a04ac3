"""ZeRO runs from the command line."""

from __future__ import annotations

import torch
from safetensors.torch import load_file


def test_zero_weights_come_out_in_fp32(remap, zero_runs, tmp_path):
    case = "zero1-bf16-aligned"
    ran = remap("convert", zero_runs / case, tmp_path / "out.safetensors", "--weights", "zero")
    assert ran.code == 0
    truth = torch.load(zero_runs / f"{case}.truth.0", weights_only=True)
    found = load_file(tmp_path / "out.safetensors")
    assert all(found[k].float().equal(held["fp32"]) for k, held in truth.items())
    verified = remap("verify", tmp_path / "out.safetensors", "--against", zero_runs / case)
    assert verified.code == 0, verified.err


def test_inspect_says_that_they_are_there(remap, zero_runs):
    ran = remap("inspect", zero_runs / "pipeline")
    assert ran.code == 0
    assert "2 ZeRO-1 files of 1 data-parallel rank hold fp32 weights, exp_avg, exp_avg_sq, step of" in ran.err


def test_moments_come_out_by_way_of_dcp(remap, zero_runs, tmp_path):
    assert remap("convert", zero_runs / "zero3-bf16", tmp_path / "dcp", "--to", "dcp").code == 0
    assert remap("convert", tmp_path / "dcp", tmp_path / "moments.safetensors", "--at", "optim").code == 0
    truth = torch.load(zero_runs / "zero3-bf16.truth.0", weights_only=True)
    found = load_file(tmp_path / "moments.safetensors")
    assert found["state.gain.exp_avg_sq"].equal(truth["gain"]["exp_avg_sq"])


def test_a_place_and_zero_are_two_answers_to_one_question(remap, zero_runs, tmp_path):
    ran = remap("convert", zero_runs / "zero1", tmp_path / "o", "--weights", "zero", "--at", "module")
    assert (ran.code, "--weights zero says where the weights lie" in ran.err) == (2, True)
