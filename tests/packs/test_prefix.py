"""A prefix that some keys have: what can't be undone is said, or remembered as a parameter."""

from __future__ import annotations

import pytest
from packs.language import catalog, pack, renames, rules

from remap.errors import PlanError
from remap.plan import make_plan

SOME = """
    - {id: prefix, from: "model.{rest:path}", to: "{rest}", optional: true}
    - {keep: "**", optional: true}
"""
LOSSY = SOME.replace("optional: true}", "optional: true, inverse: none, because: some have it}", 1)
ALL_OR_NONE = """
    params:
      prefix: {choices: [absent, present], or_present: {present: "model.**"}, default: absent}
    stages:
      - rules:
          - {id: prefix, from: "model.{rest:path}", to: "{rest}", when: {prefix: present}}
          - {keep: "**", when: {prefix: absent}}
"""


@pytest.mark.parametrize("keys", [["a.w", "b.w"], ["model.a.w", "b.w"]])
def test_a_derived_inverse_would_put_it_on_every_key(keys: list[str]) -> None:
    with pytest.raises(PlanError, match="does not bring back"):
        make_plan(catalog(keys), [rules(SOME)])


@pytest.mark.parametrize("keys", [["a.w", "b.w"], ["model.a.w", "b.w"], ["model.a.w", "model.b.w"]])
def test_where_the_rule_says_that_it_has_no_inverse_the_others_need_none(keys: list[str]) -> None:
    there = make_plan(catalog(keys), [rules(LOSSY)])
    assert renames(there) == {k: k.removeprefix("model.") for k in keys}
    with pytest.raises(PlanError, match="come from rules that have no inverse") as e:
        make_plan(catalog([o.key for o in there.outputs]), [rules(LOSSY)], inverse=True)
    assert "some have it" in str(e.value)


@pytest.mark.parametrize("keys", [["a.w", "b.w"], ["model.a.w", "model.b.w"]])
def test_one_that_all_keys_have_or_none_is_a_parameter_and_comes_back(keys: list[str]) -> None:
    the = pack(ALL_OR_NONE)
    there = make_plan(catalog(keys), [the])
    after = [o.key for o in there.outputs]
    assert after == ["a.w", "b.w"]
    remembered = {s.pack: s.params for s in there.steps}
    back = make_plan(catalog(after), [the], inverse=True, remembered=remembered)
    assert [o.key for o in back.outputs] == keys
