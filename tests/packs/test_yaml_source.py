"""YAML is read as data with lines; what YAML can do beside is refused."""

from __future__ import annotations

import pytest

from remap.errors import PackError
from remap.packs.language.yaml_source import read_yaml


def test_lines_are_known() -> None:
    node = read_yaml(b"a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "f.yaml")
    assert node.mapping["b"].items[0].line == 3
    assert node.mapping["b"].items[1].key_lines == {"c": 4, "d": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),  # YAML 1.1 says False
        ("on", "on"),
        ("1.0.0", "1.0.0"),
        ("0123456", "0123456"),  # a commit, not octal
        ("1234e56", "1234e56"),  # a commit, not a float
        ("12:30", "12:30"),  # YAML 1.1 says 750
        ("true", True),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e-5", 1e-5),
        ("'12'", "12"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert read_yaml(f"a: {text}\n".encode(), "f.yaml").mapping["a"].value == value


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' stands here twice, first in line 1"),
        ("a: &x 1\nb: *x\n", 1, "anchors"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: [1, 2\n", 2, "not valid YAML"),
        ("a: {x}.weight\n", 1, "quotes"),
        ("? [a, b]\n: 1\n", 1, "where a name is expected"),
        ("a:\n\t- 1\n", 2, "not valid YAML"),
    ],
)
def test_what_is_refused_has_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(PackError, match=message) as e:
        read_yaml(text.encode(), "f.yaml")
    assert e.value.where == f"f.yaml:{line}"


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\xff\xfe", b"a: [" * 200, b"[" * 100000])
def test_what_is_no_document(data: bytes) -> None:
    with pytest.raises(PackError):
        read_yaml(data, "f.yaml")
