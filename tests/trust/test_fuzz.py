"""Damaged files of every kind that remap reads. ``make fuzz`` runs this for as long as one likes."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import HealthCheck, given, settings
from safetensors.torch import save
from trust.fuzz import Edit, damage, edits, guarded, header_again, put, zipped_again

from remap import api
from remap.adapters.read import read as read_adapter
from remap.audits.policy_file import load_policy
from remap.errors import RemapError
from remap.formats.metaseq.partition import load_partition
from remap.packs.load import load_layout
from remap.packs.load import read as read_pack
from remap.plan import make_plan

EXAMPLES = int(os.environ.get("FUZZ", "60"))
"""Examples of every kind."""

fuzz = settings(
    max_examples=EXAMPLES,
    derandomize="FUZZ" not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
RULES = Path(__file__).parents[2] / "rules"
TENSORS = {f"layers.{i}.{n}.weight": torch.arange(6).view(2, 3) + i * 0.5 for i in range(2) for n in "ab"}


def torch_file(**options: object) -> bytes:
    out = io.BytesIO()
    extra = {"step": 3, "args": {"lr": 0.1, "names": ["a", "b"]}, "none": None}
    torch.save({"model": TENSORS, **extra}, out, **options)
    return out.getvalue()


ZIP = torch_file()
LEGACY = torch_file(_use_new_zipfile_serialization=False)
SAFETENSORS = save(TENSORS, metadata={"format": "pt"})
HALVES = [dict(list(TENSORS.items())[:2]), dict(list(TENSORS.items())[2:])]
SHARDS = {f"model-0000{i}-of-00002.safetensors": save(half) for i, half in enumerate(HALVES, 1)}
INDEX = json.dumps(
    {"weight_map": {k: name for name, half in zip(SHARDS, HALVES, strict=True) for k in half}}
).encode()
KEYS = json.dumps({k: [[2, 3], "float32"] for k in TENSORS}).encode()
ADAPTER = {
    f"base_model.model.layers.0.a.lora_{n}.weight": torch.ones(s) for n, s in (("A", (2, 3)), ("B", (2, 2)))
}
ADAPTER_CONFIG = json.dumps(
    {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["a"], "rank_pattern": {"x": 1}}
).encode()


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dcp")
    dcp.save({"model": TENSORS, "step": 3}, checkpoint_id=folder, no_dist=True)
    return folder


@pytest.fixture
def folder() -> Iterator[Callable[[], Path]]:
    """A new folder for every example, removed with the last."""
    with tempfile.TemporaryDirectory() as root:
        yield lambda: Path(tempfile.mkdtemp(dir=root))


def opened(path: Path) -> None:
    """Open, convert, verify."""
    with guarded():
        catalog = api.catalog(path)
        out = Path(tempfile.mkdtemp(dir=path.parent if path.is_dir() else path.parent.parent)) / "out"
        api.convert(catalog, out, to="safetensors")
        assert api.verify(out)[1] == []


@fuzz
@given(changes=edits())
def test_pickles(folder, changes: list[Edit]) -> None:
    opened(put(folder() / "a/x.pt", zipped_again(ZIP, "data.pkl", lambda data: damage(data, changes))))


@fuzz
@given(changes=edits())
def test_zips(folder, changes: list[Edit]) -> None:
    opened(put(folder() / "a/x.pt", damage(ZIP, changes)))


@fuzz
@given(changes=edits())
def test_ends_of_zips(folder, changes: list[Edit]) -> None:
    opened(put(folder() / "a/x.pt", ZIP[:-1200] + damage(ZIP[-1200:], changes)))


@fuzz
@given(changes=edits())
def test_legacy_files(folder, changes: list[Edit]) -> None:
    opened(put(folder() / "a/x.pt", damage(LEGACY, changes)))


@fuzz
@given(changes=edits())
def test_safetensors(folder, changes: list[Edit]) -> None:
    opened(put(folder() / "a/x.safetensors", damage(SAFETENSORS, changes)))


@fuzz
@given(changes=edits())
def test_headers_of_safetensors(folder, changes: list[Edit]) -> None:
    data = header_again(SAFETENSORS, lambda header: damage(header, changes))
    opened(put(folder() / "a/x.safetensors", data))


@fuzz
@given(changes=edits())
def test_indexes(folder, changes: list[Edit]) -> None:
    root = folder() / "a"
    for name, data in SHARDS.items():
        put(root / name, data)
    put(root / "model.safetensors.index.json", damage(INDEX, changes))
    opened(root)


@fuzz
@given(changes=edits())
def test_metadata_of_distributed_checkpoints(folder, metadata: Path, changes: list[Edit]) -> None:
    root = folder() / "a"
    shutil.copytree(metadata, root)
    put(root / ".metadata", damage((root / ".metadata").read_bytes(), changes))
    opened(root)


@fuzz
@given(changes=edits())
def test_receipts(folder, changes: list[Edit]) -> None:
    """A receipt that was changed is never taken for that of what lies beside it."""
    root = folder()
    put(root / "x.safetensors", SAFETENSORS)
    api.convert(root / "x.safetensors", root / "out")
    receipt = root / "out/remap.receipt.json"
    put(receipt, damage(receipt.read_bytes(), changes))
    with guarded():
        api.verify(root / "out")


@fuzz
@given(changes=edits())
def test_key_lists(folder, changes: list[Edit]) -> None:
    with guarded():
        api.plan(put(folder() / "keys.json", damage(KEYS, changes)))


@pytest.mark.parametrize("name", ["magma/wrap-adapters", "gpt_neox/hf-to-neox", "opt/hf-to-metaseq"])
def test_packs(folder, name: str) -> None:
    text = (RULES / f"{name}.yaml").read_bytes()
    catalog = api.catalog(put(folder() / "keys.json", KEYS))

    @fuzz
    @given(changes=edits())
    def run(changes: list[Edit]) -> None:
        with guarded():
            make_plan(catalog, [read_pack(damage(text, changes), "pack.yaml")], tolerant=True)

    run()


@fuzz
@given(changes=edits())
def test_layouts(folder, changes: list[Edit]) -> None:
    with guarded():
        load_layout(
            str(
                put(
                    folder() / "x.layout.yaml",
                    damage((RULES / "gpt_neox/hf.layout.yaml").read_bytes(), changes),
                )
            )
        )


@fuzz
@given(changes=edits())
def test_policies(folder, changes: list[Edit]) -> None:
    text = b"policy: 1\nname: x\ntitle: t\nextends: magma\nlevels:\n  missing-adapter: allow\n"
    with guarded():
        load_policy(str(put(folder() / "x.yaml", damage(text, changes))))


@fuzz
@given(changes=edits())
def test_partition_files(folder, changes: list[Edit]) -> None:
    text = (RULES / "opt/metaseq.partition.yml").read_bytes()
    with guarded():
        load_partition(put(folder() / "x.yml", damage(text, changes)))


@fuzz
@given(changes=edits())
def test_configurations(folder, changes: list[Edit]) -> None:
    root = folder() / "a"
    put(root / "model.safetensors", SAFETENSORS)
    put(root / "config.json", damage(b'{"model_type": "gpt_neox", "num_hidden_layers": 2}', changes))
    opened(root)


@fuzz
@given(changes=edits())
def test_configurations_of_adapters(folder, changes: list[Edit]) -> None:
    root = folder() / "a"
    put(root / "adapter_model.safetensors", save(ADAPTER))
    put(root / "adapter_config.json", damage(ADAPTER_CONFIG, changes))
    with guarded():
        read_adapter(root)


@pytest.mark.parametrize(
    ("name", "data"), [("x.pt", ZIP), ("x.pt", LEGACY), ("x.safetensors", SAFETENSORS), ("x.json", KEYS)]
)
def test_undamaged_they_open(folder, name: str, data: bytes) -> None:
    assert api.catalog(put(folder() / name, data)).entries.keys() == TENSORS.keys()


def test_what_fuzzing_finds_is_an_error_of_remaps() -> None:
    """The guard lets remap's errors pass, and nothing else."""
    with guarded():
        raise RemapError("fine")
    with pytest.raises(ValueError), guarded():
        raise ValueError
    with pytest.raises(AssertionError), guarded():
        os.system("true")
