"""How layouts and rules name partition classes, and which class a key has."""

from __future__ import annotations

import pytest
from packs.language import rules

from remap.errors import PackError, UsageError
from remap.expr import Constant
from remap.packs.applying.params import Given
from remap.packs.division import divide
from remap.packs.layout import Layout, read_layout
from remap.partitions.replicated import Replicated
from remap.partitions.stretches import Stretches
from remap.partitions.undecided import Undecided
from remap.types import TensorSpec

HEAD = "remap: 1\nlayout: a/b\ntitle: x\n"


def layout(params: str, *keys: str) -> Layout:
    listed = "".join(f"  - {{{k}, role: weight}}\n" for k in keys)
    return read_layout(f"{HEAD}params: {{{params}}}\nkeys:\n{listed}".encode(), "l.yaml")


def specs(**found: str) -> dict[str, TensorSpec]:
    return {k.replace("_", "."): TensorSpec.parse(s) for k, s in found.items()}


def test_sizes_are_those_of_the_whole_tensors() -> None:
    # two ranks with two rows each are four, and four units can be divided by four
    the = layout("n: {or_shape: {key: 'a.w'}}", "key: a.w, partition: rows(n)")
    table = specs(a_w="f16[2,3]")
    (cls,) = divide(the, [table, table], Given()).classes.values()
    assert isinstance(cls, Stretches)
    assert cls.units is not None
    assert cls.units.value == 4


def test_a_parameter_decides() -> None:
    the = layout("how: {choices: {summed: addends, copied: replicated}}", 'key: a.w, partition: "{how}"')
    table = specs(a_w="f16[2]")
    found = divide(the, [table], Given({"how": "copied"})).classes["a.w"]
    assert isinstance(found, Replicated)
    open_ = divide(the, [table], Given()).classes["a.w"]
    assert isinstance(open_, Undecided)
    with pytest.raises(
        UsageError, match=r"how is summed \(addends\) or copied \(replicated\): it has no"
    ) as e:
        open_.split(Constant(table["a.w"]), 2)
    assert e.value.remedy == "say which: -p how=summed"


def test_a_condition_decides() -> None:
    the = layout(
        "n: {or_shape: {key: 'a.w'}}",
        "key: a.w, partition: rows, when: {n: 4}",
        "key: a.w, partition: fused(2), when: {n: 8}",
    )
    table = specs(a_w="f16[4]")
    assert divide(the, [table], Given()).classes["a.w"] == Stretches(0)
    assert divide(the, [table, table], Given()).classes["a.w"] != Stretches(0)


def test_a_key_that_is_not_known_has_no_class() -> None:
    the = layout("", "key: a.w, partition: rows")
    assert list(divide(the, [specs(a_w="f16[4]", b_w="f16[4]")], Given()).classes) == ["a.w"]


@pytest.mark.parametrize(
    ("params", "partition", "message"),
    [
        ("", "row", "no partition is called 'row'; did you mean 'rows'"),
        ("", "rows(n)", "no parameter is called 'n'"),
        ("", '"{how}"', "no parameter with choices is called 'how'"),
        ("how: {choices: {a: rows, b: columns}}", '"{how}"', "divide along different dimensions"),
        ("how: {choices: {a: {x: rows}, b: {x: columns}}}", '"{how}"', "carries several names"),
        ("", "fused(n)", "no parameter is called 'n'|how many blocks is a number"),
    ],
)
def test_a_broken_partition(params: str, partition: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        layout(params, f"key: a.w, partition: {partition}")


def test_a_rules_partition_is_checked() -> None:
    with pytest.raises(PackError, match="partition: no parameter is called 'heads'"):
        rules('- {id: a, from: "{x}", to: "b.{x}", partition: rows(heads)}')
