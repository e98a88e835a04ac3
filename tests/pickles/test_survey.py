"""What a walked pickle may hold: tensors within their storages, no doubles, no circles, no bombs."""

from __future__ import annotations

import pickle

import pytest

from remap.errors import Damaged, Hostile
from remap.pickles.emit import Writer
from remap.pickles.nodes import Call, Dict, Global, List, Persistent, Text
from remap.pickles.survey import survey
from remap.pickles.tensors import StorageRef
from remap.pickles.walk import walk

HOOKS = Call("reduce", Global("collections", "OrderedDict"), ())


def storage(key="0", cls="FloatStorage", numel=6):
    return Persistent((Text("storage"), Global("torch", cls), Text(key), Text("cpu"), numel))


def tensor(*, of=None, offset=0, size=(2, 3), strides=(3, 1), name="_rebuild_tensor_v2", rest=(False, HOOKS)):
    return Call("reduce", Global("torch._utils", name), (of or storage(), offset, size, strides, *rest))


def look(root):
    """The survey of ``root``, after it went through a stream."""
    return survey(walk(Writer().write(root), where="x").root, "x")


def test_reads_a_tensor():
    found = look(Dict([(Text("w"), tensor(offset=0))]))
    (ref,) = found.tensors.values()
    assert (ref.shape, ref.strides, ref.offset) == ((2, 3), (3, 1), 0)
    assert ref.dtype.name == "float32"
    assert found.storages == {"0": StorageRef("0", "FloatStorage", 6)}


def test_a_parameter_is_its_tensor():
    parameter = Call("reduce", Global("torch._utils", "_rebuild_parameter"), (tensor(), True, HOOKS))
    found = look(Dict([(Text("w"), parameter)]))
    assert found.count == 1
    assert [r.shape for r in found.tensors.values()] == [(2, 3), (2, 3)]


def test_a_type_without_storage_class_is_named_by_the_call():
    bytes6 = storage(cls="UntypedStorage", numel=6)
    of8 = tensor(of=bytes6, name="_rebuild_tensor_v3", rest=(False, HOOKS, Global("torch", "float8_e5m2")))
    (ref,) = look(List([of8])).tensors.values()
    assert ref.dtype.name == "float8_e5m2"


@pytest.mark.parametrize(
    "options",
    [
        {"offset": 1},
        {"offset": -1},
        {"size": (2, -3)},
        {"size": (2, 4)},
        {"size": (1 << 61, 2), "strides": (8, 1)},
        {"strides": (3, -1)},
        {"strides": (4, 1)},
        {"strides": (1,)},
        {"size": (Text("2"), 3)},
        {"size": (True, 3)},
        {"of": Text("0")},
        {"name": "_rebuild_qtensor", "strides": (9, 1), "rest": (None, False, HOOKS)},
    ],
    ids=lambda options: ",".join(options),
)
def test_a_tensor_that_leaves_its_storage_is_hostile(options):
    with pytest.raises(Hostile):
        look(List([tensor(**options)]))


def test_an_empty_tensor_has_no_bounds():
    assert look(List([tensor(size=(0, 3), offset=99)])).count == 1


def test_missing_arguments_are_damage():
    with pytest.raises(Damaged, match="4 arguments, it takes 6"):
        look(List([tensor(rest=())]))


@pytest.mark.parametrize(
    "pid",
    [
        (Text("module"),),
        (Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), -1),
        (Text("storage"), Global("os", "FloatStorage"), Text("0"), Text("cpu"), 1),
        (Text("storage"), Global("torch", "Tensor"), Text("0"), Text("cpu"), 1),
        (Text("storage"), Global("torch", "FloatStorage"), 0, Text("cpu"), 1),
        (Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), 1 << 60),
        Text("storage"),
    ],
    ids=["module", "negative", "class of os", "no storage class", "key is a number", "too many", "no tuple"],
)
def test_other_persistent_ids_are_refused(pid):
    with pytest.raises((Hostile, Damaged, Exception)) as e:
        survey(List([Persistent(pid)]), "x")
    assert e.value.exit_code == 3


def test_one_storage_has_one_size():
    with pytest.raises(Damaged, match="6 elements of FloatStorage in one place and 7 of"):
        look(List([tensor(), tensor(of=storage(numel=7))]))


def test_a_key_that_is_there_twice_is_hostile():
    with pytest.raises(Hostile, match=r"(?s)twice.*'w'"):
        look(Dict([(Text("w"), 1), (Text("v"), 1), (Text("w"), 2)]))


def test_a_dict_that_contains_itself_is_hostile():
    value = {"a": 1}
    value["self"] = value
    with pytest.raises(Hostile, match="contains itself"):
        survey(walk(pickle.dumps(value), where="x").root, "x")


def test_objects_may_refer_to_each_other():
    made = Call("reduce", Global("a", "Parent"), ())
    child = Call("reduce", Global("a", "Child"), (), [("build", [Dict([(Text("parent"), made)])])])
    made.steps = [("build", [Dict([(Text("children"), List([child]))])])]
    assert look(made).count == 0


def test_deep_nesting_is_hostile():
    lists = b"\x80\x02" + b"]" * 600 + b"a" * 599 + b"."
    with pytest.raises(Hostile, match="500 levels"):
        survey(walk(lists, where="x").root, "x")


def test_sharing_that_doubles_at_each_level_is_hostile():
    value = {}
    for _ in range(40):
        value = {"a": value, "b": value}
    with pytest.raises(Hostile, match="more ways"):
        survey(walk(pickle.dumps(value), where="x").root, "x")


def test_tensors_in_hooks_and_odd_arguments_are_looked_at():
    sly = tensor(rest=(Dict([(Text("x"), tensor(of=storage("9")))]), HOOKS))
    assert set(look(List([sly])).storages) == {"0", "9"}
