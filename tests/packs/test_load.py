"""Packs are found by name or path, and use each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from packs.language import HEAD, catalog, renames

from remap.errors import PackError
from remap.packs import available, load, read
from remap.plan import make_plan

BODY = 'stages: [{rules: [{id: r, from: "a.{x}", to: "b.{x}"}]}]\n'


def write(folder: Path, name: str, body: str) -> None:
    file = folder / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(HEAD.replace("test/pack", name) + body)


def test_the_packs_that_come_with_remap_are_there() -> None:
    assert {"gpt_neox/hf-to-neox", "magma/from-hf", "magma/wrap-adapters"} <= available().keys()
    assert load("magma/from-hf").used[0].name == "gpt_neox/hf-to-neox"


def test_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine/one", BODY)
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    assert "mine/one" in available()
    assert load("mine/one").name == "mine/one"


def test_a_path(tmp_path: Path) -> None:
    write(tmp_path, "mine/one", BODY)
    assert load(str(tmp_path / "mine" / "one.yaml")).name == "mine/one"


def test_an_unknown_name_suggests_what_is_near() -> None:
    with pytest.raises(PackError, match="did you mean 'magma/from-hf'"):
        load("magma/form-hf")


@pytest.mark.parametrize("name", ["../../etc/passwd", "magma", "", "magma/../magma/from-hf", "missing.yaml"])
def test_what_is_no_pack(name: str) -> None:
    with pytest.raises(PackError):
        load(name)


def test_a_pack_is_called_what_its_place_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine/one", BODY)
    (tmp_path / "mine" / "one.yaml").rename(tmp_path / "mine" / "two.yaml")
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    with pytest.raises(PackError, match="calls itself 'mine/one'"):
        load("mine/two")


def test_a_circle_prints_its_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine/one", "stages: [{use: mine/two}]\n")
    write(tmp_path, "mine/two", "stages: [{use: mine/one}]\n")
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    with pytest.raises(PackError, match=r"circle: .*one\.yaml -> .*two\.yaml -> .*one\.yaml"):
        load("mine/one")


def test_a_used_pack_takes_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = "params: {to: {choices: [b, c], default: b}}\n"
    write(tmp_path, "mine/inner", params + 'stages: [{rules: [{id: r, from: "a.{x}", to: "{to}.{x}"}]}]\n')
    write(tmp_path, "mine/outer", "stages: [{use: mine/inner, with: {to: c}}]\n")
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    outer = load("mine/outer")
    assert renames(make_plan(catalog(["a.w"]), [outer])) == {"a.w": "c.w"}
    assert renames(make_plan(catalog(["a.w"]), [outer], params={"to": "b"})) == {"a.w": "b.w"}


def test_the_digest_covers_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine/inner", BODY)
    write(tmp_path, "mine/outer", "stages: [{use: mine/inner}]\n")
    monkeypatch.setenv("REMAP_RULES", str(tmp_path))
    before = load("mine/outer").digest
    assert load("mine/outer").digest == before
    write(tmp_path, "mine/inner", BODY + "# changed\n")
    assert load("mine/outer").digest != before


@pytest.mark.parametrize("ref", ["../cyc/one.yaml", "./../cyc/./one.yaml", "link/one.yaml"])
def test_a_circle_of_paths_ends_however_they_are_spelled(tmp_path: Path, ref: str) -> None:
    folder = tmp_path / "cyc"
    folder.mkdir()
    (folder / "link").symlink_to(folder)
    (folder / "one.yaml").write_text(HEAD + f"stages: [{{use: {ref}}}]\n")
    with pytest.raises(PackError, match="in a circle|use one another in a row"):
        load(str(folder / "one.yaml"))


def test_packs_that_use_one_another_in_a_row(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n}.yaml").write_text(HEAD + (f"stages: [{{use: {n + 1}.yaml}}]\n" if n < 39 else BODY))
    assert load(str(tmp_path / "20.yaml")).all_rules[0].id == "r"
    with pytest.raises(PackError, match="21 packs use one another in a row"):
        load(str(tmp_path / "0.yaml"))


def test_packs_that_double_at_every_step(tmp_path: Path) -> None:
    """Twenty small files would be applied a million times."""
    for n in range(20):
        stages = f"[{{use: {n + 1}.yaml}}, {{use: {n + 1}.yaml}}]" if n < 19 else f"[{BODY[9:-2]}]"
        (tmp_path / f"{n}.yaml").write_text(HEAD + f"stages: {stages}\n")
    assert len(load(str(tmp_path / "17.yaml")).all_used) == 6
    with pytest.raises(PackError, match="it uses 254 packs in all; 200 are allowed"):
        load(str(tmp_path / "0.yaml"))


@pytest.mark.parametrize("name", ['""', "x", '"a b/c"', '"a\\nb/c"', "a/", '"../../a b"'])
def test_a_name_that_nobody_could_ask_for(name: str) -> None:
    with pytest.raises(PackError, match="is no name of a pack") as e:
        read((HEAD.replace("test/pack", name) + BODY).encode(), "test.yaml")
    assert e.value.where == "test.yaml:2"


def test_a_layout_is_no_pack() -> None:
    with pytest.raises(PackError, match="a layout, no pack"):
        read(b"remap: 1\nlayout: a/b\ntitle: t\nkeys: []\n", "a.layout.yaml")
