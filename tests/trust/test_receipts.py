"""A receipt tells of any change: every bit of an output, its files exchanged, other packs, another source."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from trust.killing.conversions import CONVERSIONS, Conversion, sources

from remap import api
from remap.errors import RemapError, UsageError

BITS = 40
"""Bits of an output that are turned, one after another."""
WRITTEN = [c for c in CONVERSIONS if c.old is None]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sources(tmp_path_factory.mktemp("models"))


def changed(path: Path) -> bool:
    """True where verify says that something is not as written, or can't read it."""
    try:
        return bool(api.verify(path)[1])
    except RemapError:
        return True


@pytest.mark.parametrize("conversion", WRITTEN, ids=lambda c: c.name)
def test_any_bit_that_is_turned_is_told(
    tmp_path: Path, models: dict[str, Path], conversion: Conversion
) -> None:
    from trust.killing.faults import command

    source = conversion.prepare(tmp_path, models[conversion.model])
    out = tmp_path / "made" / conversion.destination
    assert command(conversion.command(source, out)) == 0
    assert not changed(out)
    files = sorted(p for p in out.parent.rglob("*") if p.is_file() and "receipt" not in p.name)
    total = sum(p.stat().st_size for p in files)
    for n in range(BITS):
        at = total * n // BITS
        path = next(p for p in files if (at := at - p.stat().st_size) < 0)
        before = path.read_bytes()
        path.write_bytes(before[:at] + bytes([before[at] ^ 1 << n % 8]) + before[len(before) + at + 1 :])
        assert changed(out), f"{path.name}: byte {len(before) + at}"
        path.write_bytes(before)
    assert not changed(out)


def convert(source: Path, out: Path, *rules: str, **options: object) -> Path:
    api.convert(source, out, list(rules), **options)
    return out


def exchanged(folder: Path, one: str, other: str) -> None:
    (folder / one).rename(folder / "aside")
    (folder / other).rename(folder / one)
    (folder / "aside").rename(folder / other)


def swap_layers(out: Path) -> None:
    step = out / "global_step0"
    exchanged(step, "layer_02-model_00-model_states.pt", "layer_03-model_00-model_states.pt")


def other_companion(out: Path) -> None:
    text = (out / "config.json").read_text()
    (out / "config.json").write_text(text.replace("2", "3"))


@pytest.mark.parametrize("change", [swap_layers, other_companion])
def test_files_that_are_exchanged_are_told(
    tmp_path: Path, models: dict[str, Path], change: Callable[[Path], None]
) -> None:
    out = convert(models["neox"], tmp_path / "out", "magma/from-hf", to="deepspeed-pipeline")
    change(out)
    assert changed(out)


def test_a_pack_that_was_changed_is_not_taken_for_the_one_that_ran(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    pack = tmp_path / "pack.yaml"
    pack.write_text(
        "remap: 1\npack: t/p\nversion: 1.0.0\ntitle: t\nstages:\n  - rules:\n"
        '      - {id: r, from: "gpt_neox.{x:path}", to: "model.{x}"}\n      - {keep: "embed_out.weight"}\n'
    )
    out = convert(models["neox"], tmp_path / "out", str(pack))
    assert api.verify(out, against=models["neox"], rules=[pack])[1] == []
    pack.write_text(pack.read_text() + "# but for a remark\n")
    with pytest.raises(UsageError, match="not those that the receipt names"):
        api.verify(out, against=models["neox"], rules=[pack])


@pytest.mark.parametrize("to", ["torch", "safetensors", "dcp"])
def test_against_the_source_it_is_content_that_counts(
    tmp_path: Path, models: dict[str, Path], to: str
) -> None:
    """The source may lie in another format, in other files, in another order."""
    out = convert(models["neox"], tmp_path / "out", "magma/from-hf", to="deepspeed-pipeline")
    moved = convert(
        models["neox"], tmp_path / "moved", to=to, **({} if to == "dcp" else {"shard_size": 1000})
    )
    assert api.verify(out, against=moved)[1] == []


def test_another_source_is_told_tensor_by_tensor(tmp_path: Path, models: dict[str, Path]) -> None:
    out = convert(models["neox"], tmp_path / "out", "magma/from-hf", to="deepspeed-pipeline")
    other = shutil.copytree(models["neox"], tmp_path / "other")
    data = bytearray((other / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (other / "model.safetensors").write_bytes(data)
    (problem,) = api.verify(out, against=other)[1]
    assert "the source gives digest" in problem
