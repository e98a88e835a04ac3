"""The JSON Schema for editors is the one description that packs are checked by."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from remap.packs import available
from remap.packs.language.schema import json_schema
from remap.packs.language.yaml_source import read_yaml


@pytest.mark.parametrize("name", list(available()))
def test_every_pack_is_valid_by_the_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    data = Path(str(files("remap_rules").joinpath(f"{name}.yaml"))).read_bytes()
    jsonschema.validate(read_yaml(data, name).plain(), json_schema())


@pytest.mark.parametrize("broken", [{"remap": 1}, {"stages": "x"}, {"pack": 3}])
def test_what_is_no_pack_is_not(broken: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, json_schema())


def test_an_unknown_name_is_refused_by_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    pack = {"remap": 1, "pack": "a/b", "version": "1", "title": "t", "stages": [{"rules": [{"kep": "a"}]}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(pack, json_schema())
