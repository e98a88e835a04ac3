"""Planning by itself: no tensors, no files.

    python benchmarks/plan.py [--rounds 3]

A million keys under two hundred rules, whose numbers move or are counted up; and the 45,395 keys of
DeepSeek-V3, whose experts are joined. Each runs in a process of its own; time is that process's own
(``time.process_time``, so that a busy machine counts less) for the plan alone, with the proof that it
can be undone, and memory its largest resident set with the key list in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import Figure, Run, report

from remap.packs import Pack, load, read
from remap.plan import make_plan
from remap.types import Catalog, Entry, TensorSpec

SPEC = TensorSpec.parse("bf16[8,8]")
PARTS = [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "uvwxyzklmn"]


def million() -> tuple[Pack, list[str]]:
    """200 rules, 100 layers of 50 experts."""
    lines = [
        "remap: 1",
        "pack: bench/million",
        "version: 1.0.0",
        "title: a million keys",
        "stages:",
        "  - rules:",
    ]
    for part in PARTS:
        source, target = (
            f"model.layers.{{i:int}}.{part}.{{e:int}}.{{p}}",
            f"blocks.{{i+2}}.{{e}}.{part}.{{p}}",
        )
        lines.append(f'      - {{id: {part}, from: "{source}", to: "{target}"}}')
    keys = [f"model.layers.{i}.{p}.{e}.weight" for i in range(100) for p in PARTS for e in range(50)]
    return read("\n".join(lines).encode(), "million.yaml"), keys


def deep() -> tuple[Pack, list[str]]:
    """5,000 layers, so that no number is seen often."""
    lines = ["remap: 1", "pack: bench/deep", "version: 1.0.0", "title: many layers", "stages:", "  - rules:"]
    for part in PARTS:
        source, target = f"model.layers.{{i:int}}.{part}.{{p}}", f"{{i+2}}.{part}.{{p}}"
        lines.append(f'      - {{id: {part}, from: "{source}", to: "{target}"}}')
    keys = [f"model.layers.{i}.{p}.weight" for i in range(5000) for p in PARTS]
    return read("\n".join(lines).encode(), "deep.yaml"), keys


def deepseek() -> tuple[Pack, list[str]]:
    """DeepSeek-V3 as transformers 4 names it: 61 layers, all but three with 256 experts."""
    return load("transformers/deepseek-4-to-5"), list(_deepseek())


def _deepseek() -> Iterator[str]:
    mlp = ("gate_proj", "up_proj", "down_proj")
    attention = ["q_a_proj", "q_a_layernorm", "q_b_proj", "o_proj"]
    attention += ["kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"]
    yield from ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    for i in range(61):
        at = f"model.layers.{i}"
        yield from (f"{at}.self_attn.{p}.weight" for p in attention)
        yield from (f"{at}.input_layernorm.weight", f"{at}.post_attention_layernorm.weight")
        if i < 3:
            yield from (f"{at}.mlp.{p}.weight" for p in mlp)
            continue
        yield from (f"{at}.mlp.gate.weight", f"{at}.mlp.gate.e_score_correction_bias")
        yield from (f"{at}.mlp.shared_experts.{p}.weight" for p in mlp)
        yield from (f"{at}.mlp.experts.{e}.{p}.weight" for e in range(256) for p in mlp)


CASES: dict[str, Callable[[], tuple[Pack, list[str]]]] = {
    "million": million,
    "deep": deep,
    "deepseek": deepseek,
}


def once(case: str) -> None:
    """Plan one case and print its figures."""
    pack, keys = CASES[case]()
    catalog = Catalog("keylist", Path(case), (), {k: Entry(k, SPEC) for k in keys})
    began = time.process_time()
    plan = make_plan(catalog, [pack])
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        json.dumps({"keys": len(keys), "outputs": len(plan.outputs), "seconds": seconds, "megabytes": peak})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        once(args.once)
        return
    for case in CASES:
        command = [sys.executable, __file__, "--once", case]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(args.rounds)]
        figure = Figure(tuple(Run(r["seconds"], r["seconds"], r["megabytes"]) for r in runs))
        title = f"Plan alone, {case}: {runs[0]['keys']:,} keys to {runs[0]['outputs']:,}"
        report(title, {case: figure}, case)


if __name__ == "__main__":
    main()
