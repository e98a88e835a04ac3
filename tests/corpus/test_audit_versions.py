"""Every model under two versions of transformers: what the audit says of its keys, and what transformers
makes of them.

The oracle is ``keymaps``: old key -> key in transformers 5.24, computed by transformers itself. What two
older versions make of one tensor is the key that leads to the same new one. Without ``--data``, the sample
in ``tests/data``.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from remap.api import catalog
from remap.audit import audit
from remap.audits.report import LOADED
from remap.audits.target import open_target

SAMPLE = Path(__file__).parent.parent / "data"
NEW = "t5.24.0"


@dataclass(frozen=True)
class Pair:
    """A model under two versions, and old key -> new key."""

    model: str
    old: Path
    new: Path
    oracle: dict[str, str]

    def __str__(self) -> str:
        return f"{self.model}-{self.old.parent.name}-{self.new.parent.name}"


def read(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def pairs(folder: Path) -> list[Pair]:
    maps: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("keymaps/*_to_5.24.json.gz")):
        name, _, version = path.name.removesuffix("_to_5.24.json.gz").rpartition("__")
        if (folder / "keys" / version / f"{name}.json.gz").exists():
            maps.setdefault(name, {})[version] = path
    found = []
    for name, versions in maps.items():
        lists = {v: folder / "keys" / v / f"{name}.json.gz" for v in (*versions, NEW)}
        if not lists[NEW].exists():
            continue
        for version, path in versions.items():
            oracle = read(path)
            found.append(Pair(name, lists[version], lists[NEW], oracle))
            for other, later in versions.items():
                if version < other:
                    found.append(Pair(name, lists[version], lists[other], through(oracle, read(later))))
    return found


def through(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Old key -> the other version's key for the same tensor, where it is one tensor in both."""
    many = Counter(other.values())
    back = {new: old for old, new in other.items() if many[new] == 1}
    return {
        old: old if other.get(old) == new else back[new]
        for old, new in one.items()
        if other.get(old) == new or new in back
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.config.getoption("--data") or SAMPLE
    found = pairs(folder)
    assert found, f"no key maps in {folder}"
    metafunc.parametrize("pair", found, ids=str)


def test_the_audit_agrees_with_transformers(pair: Pair) -> None:
    source, target = catalog(pair.old), open_target(pair.new)
    report = audit(source, target)
    loaded = {f.key for f in report.findings if f.category in LOADED}
    differing = {f.key for f in report.of("shape-mismatch")}
    stays = {k for k, n in pair.oracle.items() if k == n and k in source.entries and k in target.specs}
    assert loaded | differing == stays | (loaded - pair.oracle.keys())
    if pair.new.parent.name == NEW:
        assert loaded <= pair.oracle.keys()
    assert all(pair.oracle.get(k, k) == k for k in loaded)
    for key in differing:
        assert source.entries[key].spec.shape != target.specs[key].shape

    made = set(pair.oracle.values())
    for f in report.findings:
        if f.category.startswith("unexpected-") and f.key not in pair.oracle:
            assert f.category == "unexpected-buffer", f"transformers drops {f.key}"
        if f.category.startswith("missing-") and f.key not in made:
            assert f.category in ("missing-buffer", "missing-tied"), f"nothing gives {f.key}"


def test_what_is_suggested_is_what_transformers_does(pair: Pair) -> None:
    report = audit(catalog(pair.old), open_target(pair.new))
    for suggestion in report.suggestions:
        wrong = {k: n for k, n in suggestion.names.items() if pair.oracle.get(k, n) != n}
        assert not wrong, suggestion.what
    renamed = {k for k, n in pair.oracle.items() if n != k}
    if renamed:
        assert report.suggestions
        best = report.suggestions[0]
        assert best.after + len(report.of("shape-mismatch")) == best.of - len(report.of("missing-buffer"))
