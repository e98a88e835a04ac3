"""Layouts: the keys of a family, with shapes, listed for one model and compared with what is there."""

from __future__ import annotations

import pytest
from packs.language import catalog

from remap.errors import PackError
from remap.packs import available_layouts, load, load_layout, recognised
from remap.packs.layout import read_layout
from remap.plan import make_plan

PYTHIA = {"layers": "12", "hidden": "64", "vocab": "512", "inner": "256"}


@pytest.mark.parametrize("name", list(available_layouts()))
def test_every_layout_can_be_read(name: str) -> None:
    layout = load_layout(name)
    assert layout.name == name
    assert layout.evidence


def test_the_keys_of_a_model() -> None:
    # 12 L + 4 tensors, reference: transformers, modeling_gpt_neox.py
    layout = load_layout("gpt_neox/hf")
    found = layout.expected(layout.resolve([], {}, PYTHIA))
    assert sum(not k.of.optional for k in found.values()) + 1 == 12 * 12 + 4  # the head may be tied
    qkv = found["gpt_neox.layers.11.attention.query_key_value.weight"]
    assert (qkv.shape, str(qkv.of.partition), qkv.of.role) == ((192, 64), "rows(heads)", "weight")


def test_the_pack_leads_from_one_layout_to_the_other() -> None:
    source, target = load_layout("gpt_neox/hf"), load_layout("magma/neox")
    expected = source.expected(source.resolve([], {}, PYTHIA))
    keys = {
        k: f"f16[{','.join(map(str, e.shape))}]"
        for k, e in expected.items()
        if e.shape is not None and not e.of.derived
    }
    plan = make_plan(catalog(keys), [load("magma/from-hf")])
    made = catalog({o.key: str(o.expr.spec) for o in plan.outputs}).entries.values()
    assert list(target.differences(made, target.resolve(made, {}))) == []


def test_slots_are_the_layers_of_the_pipeline() -> None:
    layout = load_layout("gpt_neox/neox")
    found = layout.expected(layout.resolve([], {}, PYTHIA))
    assert {e.slot for e in found.values()} == {0, *range(2, 14), 15, 16}  # 1 and L+2 hold no weights
    assert all(key.startswith(f"{e.slot}.") for key, e in found.items())


def test_differences_name_both_shapes() -> None:
    layout = load_layout("gpt_neox/hf")
    keys = {
        "gpt_neox.embed_in.weight": "f16[8,4]",
        "gpt_neox.final_layer_norm.weight": "f16[5]",
        "x": "f16[1]",
    }
    entries = catalog(keys).entries.values()
    values = layout.resolve(entries, {}, {"layers": "1", "inner": "16"})
    found = list(layout.differences(entries, values))
    assert "gpt_neox.final_layer_norm.weight is [5]; gpt_neox/hf says [4]" in found
    assert "x is no key of gpt_neox/hf" in found
    assert "gpt_neox.final_layer_norm.bias is missing" in found


def test_a_module_with_names_of_its_own_is_open() -> None:
    layout = load_layout("magma/neox")
    entries = catalog({"0.image_prefix.enc.layer1.0.conv1.weight": "f32[4,4,1,1]"}).entries.values()
    found = list(layout.differences(entries, layout.resolve(entries, {}, PYTHIA)))
    assert not any("enc" in line for line in found)
    assert "0.image_prefix.proj.weight is missing" in found, "of a group, all are there or none"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('{key: "a.{i:int}", role: weight}', "each: must count i"),
        ('{key: "a.{x}", role: weight}', "lists its keys"),
        ('{key: "a.**", role: weight}', "lists its keys"),
        ('{key: "a.b", role: weight, optional: h}', "no parameter with the choices absent and present"),
        ('{key: "a", role: weight, shape: [hidden]}', "no parameter is called 'hidden'"),
        ('{key: "a", role: wait}', "line|role"),
        ('{key: "a", role: weight, slots: 1}', "has no 'slots'; did you mean 'slot'"),
    ],
)
def test_a_broken_key(key: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        read_layout(f"remap: 1\nlayout: a/b\ntitle: x\nkeys:\n  - {key}\n".encode(), "l.yaml")


def test_a_size_without_a_value_says_why() -> None:
    layout = load_layout("gpt_neox/hf")
    with pytest.raises(PackError, match="no value: config.json has no"):
        layout.expected(layout.resolve([], {}))


def test_a_layout_like_another_has_its_keys_behind_a_prefix() -> None:
    plain, behind = load_layout("gpt_neox/neox"), load_layout("gpt_neox/sequential")
    keys = plain.expected(plain.resolve([], {}, PYTHIA))
    found = behind.expected(behind.resolve([], {}, PYTHIA))
    assert found.keys() == {f"sequential.{k}" for k in keys}
    assert all(found[f"sequential.{k}"].slot == e.slot for k, e in keys.items())


def test_of_layouts_that_are_alike_the_simplest_is_recognised() -> None:
    keys = ["0.word_embeddings.weight", "2.attention.dense.weight"]
    assert [layout.name for layout in recognised(keys)] == ["gpt_neox/neox"]
    more = [*keys, "0.image_encoder.proj.weight"]
    assert [layout.name for layout in recognised(more)] == ["magma/multimodal"]
    assert recognised([*keys, "2.attention.strange.weight"]) == []


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('key: "a.{i:int}", each: {i: n-5}', "a.{i:int}: (n-5) is -2, with n = 3"),
        ('key: "a", shape: [n-5]', "a: (n-5) is -2, with n = 3"),
        ('key: "a.{n-5}"', "(n-5) is -2, with n = 3"),
        ('key: "a", shape: [3//(n-3)]', "division by 0"),
        ('key: "a.{i:int}.{j:int}", each: {i: n*3000, j: n*3000}', "stands for more than 1000000 keys"),
    ],
)
def test_sizes_that_no_model_has(key: str, said: str) -> None:
    head = "remap: 1\nlayout: t/l\ntitle: t\nparams: {n: {default: 3}}\nkeys:\n"
    layout = read_layout(f"{head}  - {{role: weight, {key}}}\n".encode(), "l.layout.yaml")
    with pytest.raises(PackError) as e:
        layout.expected(layout.resolve([], {}))
    assert said in str(e.value)
