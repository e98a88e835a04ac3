"""What holds of every format that can be written: a suite that each one's tests inherit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from remap.dtypes import TABLE
from remap.expr import Take
from remap.expr.blocks import evaluate
from remap.formats import registry
from remap.formats.base import Format, WriteOptions
from remap.stream import write_files
from remap.types import Catalog


def write(fmt: Format, tensors: dict[str, Take], source: Catalog, folder: Path, **options) -> Path:
    """Lay ``tensors`` out and write them into ``folder``; what the format finds there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_files(fmt.lay_out(tensors, source, WriteOptions(**options)), folder)
    (root,) = fmt.find(folder)
    return root


def source_of(tensors: dict[str, torch.Tensor], path: Path) -> Catalog:
    """A catalog of ``tensors``, in a safetensors file that the library wrote."""
    save_file(tensors, path)
    return registry.open_catalog(path)


def random_tensors() -> dict[str, torch.Tensor]:
    """One tensor of each type that torch and safetensors share, a 0-dim and an empty one."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 2, (64,), generator=generator, dtype=torch.uint8)
    tensors = {
        f"0.{t.name}.weight": raw.repeat(t.itemsize).view(getattr(torch, t.name)).reshape(8, 8)
        for t in TABLE
        if t.safetensors
    }
    return {
        **tensors,
        "2.scalar": torch.tensor(3.5),
        "10.empty": torch.zeros(0, 4),
        "100.last": torch.arange(6),
    }


class FormatSuite:
    """Subclasses set ``name``, the format's."""

    name: str

    @pytest.fixture
    def fmt(self) -> Format:
        return registry.get(self.name)

    def test_every_type_and_shape_comes_back_as_it_went_in(self, fmt, tmp_path):
        tensors = random_tensors()
        source = source_of(tensors, tmp_path / "in.safetensors")
        root = write(fmt, {k: Take(e) for k, e in source.entries.items()}, source, tmp_path / "out")
        found = fmt.open(root).entries
        assert set(found) == set(tensors)
        for key, value in tensors.items():
            read = evaluate(Take(found[key]))
            assert (read.dtype, read.shape) == (value.dtype, value.shape), key
            assert read.reshape(-1).view(torch.uint8).equal(value.reshape(-1).view(torch.uint8)), key

    def test_any_of_its_files_finds_the_whole(self, fmt, tmp_path):
        source = source_of(random_tensors(), tmp_path / "in.safetensors")
        root = write(fmt, {k: Take(e) for k, e in source.entries.items()}, source, tmp_path / "out")
        catalog = fmt.open(root)
        for file in catalog.files:
            assert registry.open_catalog(file).entries.keys() == catalog.entries.keys(), file.name
        assert registry.open_catalog(tmp_path / "out").format == self.name

    def test_the_same_input_gives_the_same_bytes(self, fmt, tmp_path):
        source = source_of(random_tensors(), tmp_path / "in.safetensors")
        takes = {k: Take(e) for k, e in source.entries.items()}
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            write(fmt, takes, source, folder)
        a, b = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders)
        assert a == b

    def test_a_folder_without_it_is_not_claimed(self, fmt, tmp_path):
        (tmp_path / "notes.txt").write_text("nothing here")
        assert list(fmt.find(tmp_path)) == []
