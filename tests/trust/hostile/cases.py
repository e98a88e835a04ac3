"""Hostile and damaged inputs of the kinds that the corpus has not, and the commands that meet them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trust.hostile.builders import (
    BOMB,
    DEEP,
    Canary,
    _made,
    adapter,
    beside,
    chunks,
    index,
    instead,
    linked,
    metadata,
    metaseq,
    model,
    receipt,
    replaced,
    saved,
    steps,
    storage,
    text,
    universal,
)


@dataclass(frozen=True)
class Case:
    """``make`` fills a folder; then remap is run there with ``arguments``, and ends with ``code``."""

    name: str
    make: Callable[[Path], object]
    arguments: tuple[str, ...] = ("inspect", "x")
    code: int = 3


PLAN = ("plan", "keys.json")
CONVERT = ("convert", "x", "out", "--to", "safetensors")
VERIFY = ("verify", "out")
AUDIT = ("audit", "x", "--against", "x")
MERGE = ("adapter", "merge", "base.safetensors", "x", "-o", "out.safetensors")
LORA = '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": '

S = '"s.safetensors"'

BILLION = (
    '{"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "num_hidden_layers": 1000000000}'
)

CASES: tuple[Case, ...] = (
    Case(
        "a key list that unpacks to a gigabyte",
        text("keys.json.gz", gzip.compress(bytes(1 << 30), 1)),
        ("plan", "keys.json.gz"),
    ),
    Case(
        "a key list that is cut short",
        text("keys.json.gz", gzip.compress(b"{}" * 99)[:20]),
        ("plan", "keys.json.gz"),
    ),
    Case(
        "a key list with a key twice",
        text("keys.json", '{"a": [[1], "float32"], "a": [[2], "float32"]}'),
        PLAN,
    ),
    Case(
        "a key list with a key twice, escaped",
        text("keys.json", '{"a": [[1], "float32"], "\\u0061": [[2], "float32"]}'),
        PLAN,
    ),
    Case(
        "a key list with a size of a thousand digits",
        text("keys.json", '{"a": [[' + "9" * 1000 + '], "float32"]}'),
        PLAN,
    ),
    Case("a key list of nothing but depth", text("keys.json", DEEP), PLAN),
    Case("a key list that is a device", lambda f: (f / "keys.json").symlink_to("/dev/zero"), PLAN),
    Case(
        "a key list with more dimensions than a file has bytes",
        text("keys.json", '{"a": [[' + "2," * 6000 + '2], "float32"]}'),
        PLAN,
    ),
    Case(
        "a configuration of a billion layers",
        lambda f: (
            model(f),
            text("c/config.json", BILLION)(f),
        ),
        ("audit", "x", "--against", "c"),
    ),
    Case(
        "a configuration of a billion layers beside the weights",
        beside("config.json", BILLION),
        ("convert", "x", "out", "-r", "magma/from-hf"),
        2,
    ),
    Case(
        "an index with a key twice",
        index(f'{{"weight_map": {{"a.weight": {S}, "b.weight": {S}, "a.weight": {S}}}}}'),
    ),
    Case(
        "an index with two maps",
        index(f'{{"weight_map": {{"a.weight": {S}}}, "weight_map": {{"a.weight": {S}, "b.weight": {S}}}}}'),
    ),
    Case(
        "an index that is a device",
        lambda f: (model(f) / "model.safetensors.index.json").symlink_to("/dev/zero"),
    ),
    Case("a configuration of nothing but depth", beside("config.json", DEEP)),
    Case("a configuration with a name twice", beside("config.json", '{"hidden_size": 1, "hidden_size": 2}')),
    Case("a tokenizer that is a link to a secret", linked("tokenizer.json", "/etc/hostname"), CONVERT),
    Case(
        "a configuration that is a link to a secret",
        linked("config.json", "../../../../../../etc/hostname"),
        CONVERT,
    ),
    Case("a pipe beside the weights", lambda f: os.mkfifo(model(f) / "config.json"), code=0),
    Case(
        "a receipt that names files elsewhere",
        receipt(lambda d: d["files"].update({"../../etc/passwd": {"size": 1, "xxh3_128": ""}})),
        VERIFY,
    ),
    Case(
        "a receipt that names absolute files",
        receipt(lambda d: d["files"].update({"/etc/passwd": {"size": 1, "xxh3_128": ""}})),
        VERIFY,
    ),
    Case("a receipt of other types", receipt(lambda d: d.update(tensors=[1, 2])), VERIFY),
    Case("a receipt of the future", receipt(lambda d: d.update(version=99)), VERIFY, 2),
    Case(
        "a receipt that says nothing of a tensor", receipt(lambda d: d["tensors"].pop("a.weight")), VERIFY, 4
    ),
    Case(
        "a receipt without a file that is there",
        receipt(lambda d: d["files"].pop("model.safetensors")),
        VERIFY,
        2,
    ),
    Case("a receipt of nothing but depth", beside("remap.receipt.json", DEEP), ("verify", "x")),
    Case("distributed metadata that runs code", metadata(lambda m: m.state_dict_metadata.update(x=Canary()))),
    Case(
        "distributed metadata that names files elsewhere",
        metadata(storage(relative_path="../../secret")),
        CONVERT,
    ),
    Case(
        "distributed metadata that names absolute files",
        metadata(storage(relative_path="/etc/passwd")),
        CONVERT,
    ),
    Case("distributed metadata beyond the file", metadata(storage(offset=1 << 40)), CONVERT),
    Case("distributed metadata before the file", metadata(storage(offset=-8)), CONVERT),
    Case("a chunk beyond its tensor", metadata(chunks((2, 0), (4, 4))), CONVERT),
    Case("a chunk that leaves a hole", metadata(chunks((0, 0), (2, 4))), CONVERT),
    Case("a chunk of negative size", metadata(chunks((0, 0), (-1, 4))), CONVERT),
    Case("a universal weight that runs code", universal(replaced(saved({"param": Canary()})))),
    Case("a universal weight that is cut short", universal(lambda p: p.write_bytes(p.read_bytes()[:300]))),
    Case("a universal weight that is a pipe", universal(instead(os.mkfifo))),
    Case("a universal weight that is a device", universal(instead(lambda p: p.symlink_to("/dev/zero")))),
    Case("a universal weight that is no tensor", universal(replaced(saved({"param": 3})))),
    Case(
        "an adapter's configuration with a name twice",
        adapter('{"r": 2, "r": 4}'),
        ("audit", "x", "--against", "base.safetensors"),
    ),
    Case("an adapter's configuration of nothing but depth", adapter(DEEP), MERGE),
    Case(
        "an adapter's modules as a pattern without an end",
        adapter(LORA + '"(a|aa)+$"}'),
        ("audit", "x", "--against", "base.safetensors"),
    ),
    Case(
        "an adapter's alpha by a pattern without an end",
        adapter(LORA + '["x"], "alpha_pattern": {"(a|aa)+$": 1}}'),
        MERGE,
    ),
    Case(
        "an adapter's rank by a pattern that is none",
        adapter(LORA + '["x"], "rank_pattern": {"((": 1}}'),
        ("audit", "x", "--against", "base.safetensors"),
    ),
    Case(
        "a layout that is a bomb",
        lambda f: (model(f), text("l.layout.yaml", BOMB)(f)),
        ("convert", "x", "out", "--tp", "2", "--to", "deepspeed", "--layout", "./l.layout.yaml"),
        2,
    ),
    Case(
        "a layout that is a device",
        lambda f: (model(f), (f / "l.layout.yaml").symlink_to("/dev/zero")),
        ("convert", "x", "out", "--tp", "2", "--to", "deepspeed", "--layout", "./l.layout.yaml"),
        2,
    ),
    Case(
        "a policy that is a bomb",
        lambda f: (model(f), text("p.yaml", BOMB)(f)),
        (*AUDIT, "--policy", "./p.yaml"),
        2,
    ),
    Case(
        "a policy that extends itself",
        lambda f: (model(f), text("p.yaml", "policy: 1\nname: x\ntitle: t\nextends: ./p.yaml\n")(f)),
        (*AUDIT, "--policy", "./p.yaml"),
        2,
    ),
    Case(
        "a policy that is a device",
        lambda f: (model(f), (f / "p.yaml").symlink_to("/dev/zero")),
        (*AUDIT, "--policy", "./p.yaml"),
        2,
    ),
    Case(
        "a baseline that is no JSON",
        lambda f: (model(f), text("b.json", DEEP)(f)),
        (*AUDIT, "--baseline", "b.json"),
        2,
    ),
    Case(
        "a partition file that is a bomb",
        lambda f: (metaseq(f), text("p.yml", BOMB)(f)),
        ("reshard", "x", "out", "--fsdp", "2", "--partition", "p.yml"),
        2,
    ),
    Case("a step that is the folder above", steps("..")),
    Case("a step beyond a subfolder", steps("sub/global_step1")),
    Case("a step with a zero byte", steps("a\0b")),
    Case("a link to itself", lambda f: (f / "x").symlink_to("x")),
    Case("a folder of links to folders above", lambda f: (_made(f / "x") / "loop").symlink_to("..")),
)
