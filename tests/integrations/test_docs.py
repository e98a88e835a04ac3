"""The Python of docs/loading.md runs as it stands, DeepSpeed's apart (see test_deepspeed_engine)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

TEXT = (Path(__file__).parents[2] / "docs/loading.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_its_examples(pythia: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from integrations.magma_model import build, departures, expected

    (tmp_path / "pythia-410m").symlink_to(pythia("fp32"))
    monkeypatch.chdir(tmp_path)
    model = build()
    setup = SimpleNamespace(setup=lambda: build().load_state_dict(model.state_dict(), strict=False))
    names: dict[str, Any] = {"model": model, "trainer": setup}
    for block in BLOCKS:
        code = compile(block, "docs/loading.md", "exec")
        if "deepspeed_engine" not in block:
            exec(code, names)  # noqa: S102  # the docs are ours
    assert departures(model, expected(pythia("fp32"))) == []
    assert names["report"].passed
    assert len(names["watched"].reports) == 1


def test_what_it_imports_of_deepspeed_is_there() -> None:
    pytest.importorskip("deepspeed")
    from remap.integrations import deepspeed_engine

    found = {n for b in BLOCKS for n in re.findall(r"deepspeed_engine import (\w+)", b)}
    assert found == {"load_checkpoint", "RemapCheckpointEngine"}
    assert all(hasattr(deepspeed_engine, n) for n in found)
