"""Inference from the key lists of real models alone: the sources of every key are those of the family's pack.

Without ``--data``, the sample in ``tests/data``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus.keymaps_table import Map, maps
from corpus.test_keymaps import SAMPLE

from remap.authoring.inference import infer
from remap.packs import available, load, read
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = maps(metafunc.config.getoption("--data") or SAMPLE)
    some = [m for m in found if m.pack in available() and m.source().root.exists()]
    assert some
    metafunc.parametrize("one", some, ids=lambda m: m.name)


def sources(plan: Plan) -> dict[str, frozenset[str]]:
    return {o.key: frozenset(o.sources) for o in plan.outputs}


def test_names_alone_are_enough(one: Map) -> None:
    source = one.source()
    plan = make_plan(source, [load(one.pack)])
    made = {o.key: Entry(o.key, o.expr.spec) for o in plan.outputs}
    found = infer(source, Catalog("keylist", Path("new"), (), made))
    assert found.problem is None
    assert sources(make_plan(source, [read(found.text.encode(), "inferred.yaml")])) == sources(plan)
