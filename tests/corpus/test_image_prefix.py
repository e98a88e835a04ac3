"""MAGMA's image prefix from the key list of CLIP's RN50x16, against the list of MAGMA's own module."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import remap


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def test_clips_encoder_becomes_magmas(pytestconfig: pytest.Config) -> None:
    keys = pytestconfig.getoption("--data") / "keys"
    wanted = read(keys / "derived" / "magma_image_prefix__clip_resnet_large.json.gz")
    plan = remap.plan(keys / "vision" / "openclip__RN50x16.json.gz", ["magma/image-prefix"])
    found = {o.key: list(o.expr.spec.shape) for o in plan.outputs}
    assert found == {f"0.{k}": shape for k, (shape, _) in wanted.items() if ".enc." in k}
