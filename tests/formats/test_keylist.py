"""Key lists: the three spellings, and what is none of them."""

from __future__ import annotations

import gzip
import json

import pytest
import torch

from remap.errors import Damaged, UsageError
from remap.formats import keylist, registry
from remap.types import TensorSpec


def opened(path, document):
    path.write_text(json.dumps(document))
    return registry.open_catalog(path)


def test_a_list_gives_specs_and_no_bytes(tmp_path):
    catalog = opened(tmp_path / "keys.json", {"a.weight": [[2, 3], "float16"]})
    assert catalog.entries["a.weight"].spec == TensorSpec.parse("f16[2,3]")
    assert catalog.entries["a.weight"].location is None


def test_a_gzipped_list_is_read(tmp_path):
    path = tmp_path / "keys.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"a": [[1], "float32"]}).encode()))
    assert set(registry.open_catalog(path).entries) == {"a"}


def test_layer_files_give_their_number_to_the_key(tmp_path):
    catalog = opened(
        tmp_path / "k.json", {"layer_02-model_00-model_states.pt": {"norm.weight": [[4], "float16"]}}
    )
    assert set(catalog.entries) == {"2.norm.weight"}


def test_an_index_without_its_shards_gives_names_and_a_warning(tmp_path):
    catalog = opened(tmp_path / "index.json", {"weight_map": {"a": "model-00001-of-00002.safetensors"}})
    assert set(catalog.entries) == {"a"}
    assert "names only" in catalog.warnings[0]


def test_what_is_dumped_is_read_back(tmp_path):
    catalog = opened(tmp_path / "a.json", {"a.weight": [[2, 3], "float16"], "b": [[], "bool"]})
    (tmp_path / "b.json").write_text(keylist.dump(catalog))
    assert registry.open_catalog(tmp_path / "b.json").entries == catalog.entries


def test_the_ties_of_a_checkpoint_are_in_its_list(tmp_path):
    weight = torch.ones(2)
    torch.save({"a": weight, "b": weight, "c": torch.ones(2)}, tmp_path / "m.pt")
    written = json.loads(keylist.dump(registry.open_catalog(tmp_path / "m.pt")))
    assert written["__metadata__"] == {"ties": {"b": "a"}}


def test_wrong_entries_are_all_named(tmp_path):
    with pytest.raises(Damaged, match=r"a: 3[\s\S]*b: \[\[2\], \"float7\"\]"):
        opened(tmp_path / "k.json", {"a": 3, "b": [[2], "float7"], "c": [[1], "float32"]})


@pytest.mark.parametrize("known", [{"ties": ["a"]}, {"buffers": 5}, {"ties": {"a": 3}}, [], "a"])
def test_what_is_said_beside_the_keys_has_one_form(tmp_path, known):
    with pytest.raises(Damaged, match="__metadata__ is not what a key list has"):
        opened(tmp_path / "k.json", {"__metadata__": known, "a": [[1], "float32"]})


def test_it_is_no_output(tmp_path):
    catalog = opened(tmp_path / "k.json", {"a": [[1], "float32"]})
    with pytest.raises(UsageError, match="not an output format"):
        keylist.FORMAT.lay_out({}, catalog, None)
