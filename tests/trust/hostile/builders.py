"""What makes hostile and damaged files: each function gives one that fills a folder."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

TENSORS = {"a.weight": torch.ones(4, 4), "b.weight": torch.zeros(4)}
DEEP = '{"a":' * 60_000 + "1" + "}" * 60_000
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


class Canary:
    """Pickled, it makes a file named CANARY when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch CANARY",)


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def model(folder: Path) -> Path:
    (folder / "x").mkdir(exist_ok=True)
    save_file(TENSORS, folder / "x/model.safetensors")
    return folder / "x"


def beside(name: str, content: str | bytes) -> Callable[[Path], None]:
    """A model, and a file beside it."""

    def make(folder: Path) -> None:
        text(f"x/{name}", content)(model(folder).parent)

    return make


def linked(name: str, target: str) -> Callable[[Path], None]:
    return lambda folder: (model(folder) / name).symlink_to(target)


def index(content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (model(folder) / "model.safetensors").rename(folder / "x/s.safetensors")
        text("x/model.safetensors.index.json", content)(folder)

    return make


def receipt(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    """A converted model whose receipt was changed."""

    def make(folder: Path) -> None:
        from remap import api

        api.convert(model(folder), folder / "out")
        path = folder / "out/remap.receipt.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return make


def metadata(change: Callable[[object], object]) -> Callable[[Path], None]:
    """A distributed checkpoint whose metadata was changed."""

    def make(folder: Path) -> None:
        dcp.save(TENSORS, checkpoint_id=folder / "x", no_dist=True)
        with (folder / "x/.metadata").open("rb") as f:
            found = pickle.load(f)
        change(found)
        (folder / "x/.metadata").write_bytes(pickle.dumps(found))

    return make


def storage(**fields: object) -> Callable[[object], None]:
    """Every tensor is said to lie elsewhere."""

    def change(found) -> None:
        for info in found.storage_data.values():
            for name, value in fields.items():
                setattr(info, name, value)

    return change


def chunks(offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[object], None]:
    """The matrix is said to have one chunk, there."""

    def change(found) -> None:
        (chunk,) = found.state_dict_metadata["a.weight"].chunks
        chunk.offsets, chunk.sizes = torch.Size(offsets), torch.Size(sizes)

    return change


def universal(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """A universal folder of two weights, of which one was changed."""

    def make(folder: Path) -> None:
        step = folder / "x/global_step1"
        for name, value in TENSORS.items():
            (step / "zero" / name).mkdir(parents=True)
            torch.save({"param": value}, step / "zero" / name / "fp32.pt")
        torch.save({"universal_checkpoint_info": {}}, step / "mp_rank_00_model_states.pt")
        (folder / "x/latest_universal").write_text("global_step1")
        change(step / "zero/a.weight/fp32.pt")

    return make


def replaced(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def instead(other: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        other(path)

    return change


def saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def adapter(config: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        name = "a" * 40 + "!"
        save_file(
            {
                f"base_model.model.{name}.lora_{n}.weight": torch.ones(s)
                for n, s in (("A", (2, 4)), ("B", (4, 2)))
            },
            _made(folder / "x") / "adapter_model.safetensors",
        )
        text("x/adapter_config.json", config)(folder)
        save_file({f"{name}.weight": torch.ones(4, 4)}, folder / "base.safetensors")

    return make


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def steps(tag: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        text("x/latest", tag)(folder)
        torch.save({"module": TENSORS}, _made(folder / "global_step1") / "mp_rank_00_model_states.pt")
        shutil.copytree(folder / "global_step1", folder / "x/sub/global_step1")

    return make


def metaseq(folder: Path) -> None:
    from trust.killing.conversions import opt, source

    from remap import api

    api.convert(source(folder / "opt", opt()), folder / "x", "opt/hf-to-metaseq", to="metaseq")
