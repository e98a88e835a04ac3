"""Every GPT-NeoX key list, 14M to 20B, four versions of transformers: total there, identity back.

Without ``--data``, the sample in ``tests/data``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent.parent / "data"
Cli = Callable[..., tuple[int, str, str]]
Keys = dict[str, list[object]]
BUFFERS = (".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data") or SAMPLE
    lists = sorted(folder.glob("keys/t*/gptneox__*.json.gz"))
    assert lists, f"no key lists in {folder}"
    names = [f"{p.parent.name}-{p.name.removesuffix('.json.gz')}" for p in lists]
    metafunc.parametrize("listed", lists, ids=names)


def plan(cli: Cli, keys: Keys, scratch: Path, *options: str) -> tuple[Keys, dict[str, str]]:
    """The outputs of ``remap plan``, as a key list, and its drops, key -> reason."""
    file = scratch / "keys.json"
    file.write_text(json.dumps(keys))
    code, out, err = cli("plan", file, *options, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["version"] == 1
    sources = [key for output in found["outputs"] for key in output["sources"]]
    assert sorted(sources + [drop["key"] for drop in found["drops"]]) == sorted(keys)
    assert all(output["rule"] for output in found["outputs"])
    outputs = {output["key"]: [output["shape"], output["dtype"]] for output in found["outputs"]}
    assert len(outputs) == len(found["outputs"])
    return outputs, {drop["key"]: drop["because"] for drop in found["drops"]}


@pytest.mark.parametrize("pack", ["gpt_neox/hf-to-neox", "magma/from-hf"])
def test_the_plan_is_total_and_the_inverse_the_identity(
    cli: Cli, tmp_path: Path, listed: Path, pack: str
) -> None:
    keys = json.loads(gzip.decompress(listed.read_bytes()))
    there, dropped = plan(cli, keys, tmp_path, "-r", pack)
    assert dropped.keys() == {key for key in keys if key.endswith(BUFFERS)}
    assert all(dropped.values())

    head = "lm_head" if "lm_head.weight" in keys else "embed_out"
    back, lost = plan(cli, there, tmp_path, "-r", pack, "--inverse", "-p", f"head={head}")
    assert not lost
    assert back == {key: value for key, value in keys.items() if key not in dropped}
