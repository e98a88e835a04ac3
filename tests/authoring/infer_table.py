"""``remap rules infer`` on pairs whose right answer is known -> the table of docs/rules.md.

    python tests/authoring/infer_table.py

The source of a pair is a small model of a layout, 12 layers and 12 experts; its target is what a pack
makes of it. A target key is right if the proposed pack makes it of the same sources as the true one; once
from the two key lists alone, and once from files with random weights.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy
from safetensors.numpy import save_file

from remap import api
from remap.authoring.inference import infer
from remap.comparing.digests import digests
from remap.expr import Take
from remap.packs import load, load_layout, read
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry, TensorSpec

PARAMS = {
    "layers": "12",
    "hidden": "24",
    "inner": "40",
    "vocab": "64",
    "heads": "4",
    "kv_heads": "2",
    "experts": "12",
    "embed": "8",
    "positions": "66",
    "types": "2",
    "rows": "48",
    "projection": "16",
    "text_layers": "12",
    "text_hidden": "24",
    "text_inner": "40",
    "vision_layers": "12",
    "vision_hidden": "20",
    "vision_inner": "36",
}
PAIRS: dict[str, tuple[str, str]] = {
    "Pythia, Hugging Face and NeoX": ("gpt_neox/hf", "gpt_neox/hf-to-neox"),
    "Pythia, Hugging Face and MAGMA": ("gpt_neox/hf", "magma/from-hf"),
    "Pythia, transformers 4 and 5": ("gpt_neox/hf", "transformers/gptneox-4-to-5"),
    "NeoX, layer files and sequential": ("gpt_neox/neox", "gpt_neox/pipeline-to-sequential"),
    "OPT, Hugging Face and metaseq": ("opt/hf", "opt/hf-to-metaseq"),
    "LLaMA, Hugging Face and Meta": ("llama/hf", "llama/hf-to-meta"),
    "LLaMA, Megatron-core and Hugging Face": ("megatron/llama", "megatron/llama-to-hf"),
    "Mixtral, transformers 4 and 5": ("mixtral/hf4", "transformers/mixtral-4-to-5"),
    "BLOOM, published and transformers 5": ("bloom/hf", "transformers/bloom-4-to-5"),
    "BLOOM, Megatron-DeepSpeed and published": ("bloom/megatron", "bloom/megatron-to-hf"),
    "BLOOM, query, key and value apart": ("bloom/hf", "bloom/split-qkv"),
    "GPT-2, Conv1D and linear": ("gpt2/hf", "gpt2/conv1d-to-linear"),
    "BERT, bare and with a head": ("bert/hf", "bert/add-prefix"),
    "CLIP, transformers 4 and 5": ("clip/hf", "transformers/clip-4-to-5"),
}
"""Name -> layout of the source, pack."""
TIED = ("opt/hf", "lm_head.weight")
"""A head that the pack unties; random weights are not tied."""
CHOICES = {"projection"}
"""Parameters of packs that are no sizes, and are called like one."""


def source(layout_name: str) -> dict[str, TensorSpec]:
    """The keys of a small model, those left out that are optional and have no size."""
    layout = load_layout(layout_name)
    given = {k: v for k, v in PARAMS.items() if k in layout.params}
    expected = layout.expected(layout.resolve([], {}, given))
    kind = TensorSpec.parse("f32[]").dtype
    return {
        key: TensorSpec(kind, e.shape)
        for key, e in expected.items()
        if e.shape is not None
        and not e.of.derived
        and (e.of.role == "head" or not e.of.optional)
        and (layout_name, key) != TIED
    }


def right(found: Catalog, target: Catalog, plan: Plan, a: Catalog, b: Catalog) -> tuple[int, int, int]:
    """How many of the target's keys the proposed pack makes of the right sources, how many of these are
    to be confirmed, and how many have the right bytes, ``a`` and ``b`` being the two files."""
    inferred = infer(found, target)
    if inferred.problem is not None:
        return 0, 0, 0
    pack = read(inferred.text.encode(), "inferred.yaml")
    made = {o.key: o for o in make_plan(a, [pack]).outputs}
    open_ = {r.id for r in pack.own_rules if r.confirm}
    same = [o.key for o in plan.outputs if o.key in made and set(made[o.key].sources) == set(o.sources)]
    asked = sum(not open_.isdisjoint(made[k].rule.split(" > ")) for k in same)
    values = digests({k: made[k].expr for k in same})
    wanted = digests({k: Take(b.entries[k]) for k in same})
    return len(same), asked, sum(values[k] == wanted[k] for k in same)


def counts(specs: Mapping[str, TensorSpec], pack: str, params: dict[str, str]) -> tuple[int, ...]:
    """One line of the table: from the key lists alone, then from two files."""
    chance = numpy.random.default_rng(0)
    plan = make_plan(_keylist(specs), [load(pack)], params=params)
    names = _keylist({o.key: o.expr.spec for o in plan.outputs})
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder) / "a.safetensors", Path(folder) / "b.safetensors"
        save_file({k: chance.standard_normal(s.shape, dtype=numpy.float32) for k, s in specs.items()}, a)
        api.convert(a, b, [pack], params=params)
        files = api.catalog(a), api.catalog(b)
        by_names = right(_keylist(specs), names, plan, *files)
        return (len(plan.outputs), *by_names, right(*files, plan, *files)[2])


def _keylist(specs: Mapping[str, TensorSpec]) -> Catalog:
    return Catalog("keylist", Path("a"), (), {k: Entry(k, s) for k, s in specs.items()})


def table() -> Iterator[str]:
    """The table, one line at a time."""
    yield "| pair | keys | by names: right sources | of these to confirm | right bytes | by weights |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, (layout, pack) in PAIRS.items():
        params = {k: v for k, v in PARAMS.items() if k in load(pack).all_params - CHOICES}
        yield f"| {name} | {' | '.join(map(str, counts(source(layout), pack, params)))} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
