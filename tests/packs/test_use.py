"""Packs that use packs, also the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest
from packs.language import HEAD, catalog, pack, renamed, renames

from remap.authoring.page import page
from remap.errors import PackError
from remap.packs import load
from remap.plan import make_plan

SHIFT = 'params: {by: {default: 2}}\nstages: [{rules: [{id: shift, from: "a.{i:int}", to: "b.{i+by}"}]}]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shift.yaml").write_text(HEAD + SHIFT)
    return tmp_path


def user(folder: Path, stages: str, name: str = "user.yaml") -> str:
    (folder / name).write_text(f"{HEAD.replace('test/pack', 'test/user')}stages: {stages}\n")
    return str(folder / name)


def test_a_pack_is_used_inversely_and_then_its_inverse_is_the_pack(folder: Path) -> None:
    the = load(user(folder, "[{use: shift.yaml, inverse: true}]"))
    assert renamed(the, ["b.5"]) == {"b.5": "a.3"}
    assert renamed(the, ["a.3"], inverse=True) == {"a.3": "b.5"}
    assert "the inverse of `test/pack`" in page(the)


def test_parameters_are_set_for_what_is_used_inversely(folder: Path) -> None:
    the = load(user(folder, "[{use: shift.yaml, inverse: true, with: {by: 3}}]"))
    assert renamed(the, ["b.5"]) == {"b.5": "a.2"}


def test_parameters_are_set_for_what_a_used_pack_uses(folder: Path) -> None:
    user(folder, "[{use: shift.yaml}]")
    the = load(user(folder, "[{use: user.yaml, with: {by: 5}}]", "outer.yaml"))
    assert renamed(the, ["a.3"]) == {"a.3": "b.8"}


def test_an_inverse_of_an_inverse_is_the_pack(folder: Path) -> None:
    user(folder, "[{use: shift.yaml, inverse: true}]")
    the = load(user(folder, "[{use: user.yaml, inverse: true}]", "twice.yaml"))
    assert renamed(the, ["a.3"]) == {"a.3": "b.5"}


def test_there_and_back_in_one_pack_is_the_identity(folder: Path) -> None:
    the = load(user(folder, "[{use: shift.yaml}, {use: shift.yaml, inverse: true}]"))
    assert renamed(the, ["a.0", "a.11"]) == {"a.0": "a.0", "a.11": "a.11"}


def test_what_the_receipt_remembers_of_a_pack_its_inverse_knows() -> None:
    there = make_plan(catalog(["module.a.w", "module.b.w"]), [load("wrappers/unwrap")])
    back = make_plan(
        catalog(["a.w", "b.w"]),
        [pack("stages: [{use: wrappers/unwrap, inverse: true}]\n")],
        remembered={s.pack: s.params for s in there.steps},
    )
    assert renames(back) == {"a.w": "module.a.w", "b.w": "module.b.w"}


@pytest.mark.parametrize("stage", ['rules: [{keep: "**"}]', "unwrap: [module]"])
def test_only_a_used_pack_can_be_inverse(stage: str) -> None:
    with pytest.raises(PackError, match="belong to a pack that is used"):
        pack(f"stages: [{{{stage}, inverse: true}}]\n")
