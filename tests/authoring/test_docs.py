"""docs/rules.md: every example is run there and back, ops are all listed, the table of pairs is computed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from authoring.infer_table import table

from remap.authoring.examples import run_examples
from remap.ops.registry import OPS
from remap.packs import read
from remap.packs.language import schema
from remap.partitions.registry import PARTITIONS

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
BLOCK = re.compile(r"```yaml\n(.*?)```\n```text\n(.*?)```", re.DOTALL)
BLOCKS = [(m[1], m[2]) for m in BLOCK.finditer(PAGE)]


def examples(text: str) -> Iterator[str]:
    """``key spec, ... -> key spec, ...`` a line, as examples of a pack."""
    for line in text.splitlines():
        given, _, after = line.partition(" -> ")
        entry = f"  - given: {_tensors(given)}\n"
        if after.startswith("fails: "):
            yield f"{entry}    {after}\n"
        elif after.startswith("dropped by "):
            rule = after.removeprefix("dropped by ")
            yield f"{entry}    expect: {{}}\n    dropped: {{{given.split()[0]}: {rule}}}\n"
        else:
            yield f"{entry}    expect: {_tensors(after)}\n"


def _tensors(text: str) -> str:
    found = [t.partition(" ") for t in text.split(", ")]
    return "{" + ", ".join(f'{key}: "{spec}"' for key, _, spec in found) + "}"


@pytest.mark.parametrize(("rules", "lines"), BLOCKS, ids=[b[0].split("\n")[0] for b in BLOCKS])
def test_an_example_is_true(rules: str, lines: str) -> None:
    body = f"stages:\n  - rules:\n{textwrap.indent(rules, '      ')}" if rules.startswith("- ") else rules
    head = "remap: 1\npack: docs/rules\nversion: 1.0.0\ntitle: an example\n"
    pack = read(f"{head}{body}examples:\n{''.join(examples(lines))}".encode(), "docs.yaml")
    assert [str(f) for f in run_examples(pack)] == []


def test_every_yaml_block_is_run() -> None:
    assert PAGE.count("```yaml") == len(BLOCKS) >= 15


def test_every_op_has_a_line() -> None:
    section = PAGE.partition("## Ops")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(OPS)


STRUCTS = (schema.RawPack, schema.RawStage, schema.RawRule, schema.RawParam, schema.RawExample, schema.RawKey)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: s.__name__)
def test_every_entry_is_described(struct: type[msgspec.Struct]) -> None:
    names = [f.encode_name for f in msgspec.structs.fields(struct)]
    assert [n for n in names if not re.search(rf"[`|{{ ,]{n}[`:,]", PAGE)] == []


def test_every_partition_class_is_described() -> None:
    section = PAGE.partition("Partition classes:")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)", section)) >= set(PARTITIONS)


def test_the_table_of_inference_is_what_it_does_and_by_names_says_what_to_confirm() -> None:
    lines = list(table())
    assert "\n".join(lines) in PAGE
    rows = [line.split("|")[3:6] for line in lines[2:]]
    assert all(int(sources) - int(right) <= int(confirm) for sources, confirm, right in rows)
