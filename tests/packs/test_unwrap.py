"""Wrappers come off as whole segments, to a fixed point, and go back on where they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packs.language import catalog, pack, renames

from remap.errors import PackError, PlanError
from remap.packs import load
from remap.packs.applying.unwrap import unwrapped
from remap.plan import make_plan

ALL = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@pytest.mark.parametrize(
    ("key", "bare"),
    [
        ("module.a.w", "a.w"),
        ("module.module.a.w", "a.w"),
        ("_orig_mod.module.a.w", "a.w"),
        ("module._orig_mod.module.a.w", "a.w"),
        ("a.module.w", "a.module.w"),  # a module that is called module
        ("a._orig_mod.b._fsdp_wrapped_module.w", "a.b.w"),
        ("a.my_orig_mod.w", "a.my_orig_mod.w"),
        ("module", "module"),
        ("a._orig_mod", "a._orig_mod"),  # the last segment is the tensor's name
    ],
)
def test_what_comes_off(key: str, bare: str) -> None:
    assert unwrapped(key, ALL) == bare
    assert unwrapped(bare, ALL) == bare


SEGMENTS = st.sampled_from([*ALL, "a", "b", "0", "11", "a b", "{b}", "*", "a>b", "%20", "a\u2003b", "層"])


@given(st.lists(st.lists(SEGMENTS, min_size=1, max_size=5), min_size=1, max_size=8))
def test_there_and_back(segments: list[list[str]]) -> None:
    keys = sorted({".".join([*s, "w"]) for s in segments})
    bare = [unwrapped(k, ALL) for k in keys]
    the = load("wrappers/unwrap")
    if len(set(bare)) < len(bare):
        with pytest.raises(PlanError, match="more than one key would get"):
            make_plan(catalog(keys), [the])
        return
    there = make_plan(catalog(keys), [the])
    assert renames(there) == dict(zip(keys, bare, strict=True))
    remembered = {s.pack: s.params for s in there.steps}
    back = make_plan(catalog(bare), [the], inverse=True, remembered=remembered)
    assert renames(back) == dict(zip(bare, keys, strict=True))


def test_one_prefix_everywhere_is_remembered_as_one() -> None:
    plan = make_plan(catalog([f"_orig_mod.h.{i}.w" for i in range(12)]), [load("wrappers/unwrap")])
    assert plan.steps[0].params == {"unwrap": "_orig_mod.{rest:path}>{rest}"}


def test_without_a_memory_nothing_is_put_back() -> None:
    back = make_plan(catalog(["a.w"]), [load("wrappers/unwrap")], inverse=True)
    assert renames(back) == {"a.w": "a.w"}


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[{unwrap: []}]", "no wrappers"),
        ("[{unwrap: [a.b]}]", "no segment"),
        ("[{unwrap: [module]}, {unwrap: [module]}]", "a second unwrap"),
        ("[{unwrap: [module], use: a/b}]", "one of rules, use, unwrap"),
    ],
)
def test_a_broken_unwrap(stages: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        pack(f"stages: {stages}\n")
