"""Names for adapter_config.json: short, and matched by PEFT with the right modules only."""

from __future__ import annotations

import peft
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from remap.adapters.placing.naming import by_pattern, by_segments, by_text, layer, names

PATHS = st.lists(
    st.lists(
        st.sampled_from(["layers", "0", "1", "11", "attn", "q", "eq", "mlp", "head"]), min_size=1, max_size=4
    ).map(".".join),
    unique=True,
    min_size=1,
    max_size=12,
)


def test_the_shortest_end_that_fits() -> None:
    modules = {"h.0.attn.dense", "h.1.attn.dense", "h.0.mlp.dense", "h.0.attn", "h.0.mlp"}
    assert names(["h.0.attn.dense", "h.1.attn.dense"], modules, by_segments) == ["attn.dense"]
    assert names(["h.0.mlp.dense", "h.0.attn.dense", "h.1.attn.dense"], modules, by_segments) == ["dense"]
    assert names(["h.1.attn.dense"], modules, by_segments) == ["1.attn.dense"]


def test_text_at_the_end_is_no_segment() -> None:
    assert names(["m.head"], {"m.lm_head"}, by_text) == ["m.head"]
    assert names(["m.head"], {"m.lm_head"}, by_segments) == ["head"]


@given(PATHS, st.data())
def test_peft_targets_these_and_no_other(paths: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(paths), min_size=1))
    found = names(sorted(chosen), paths, by_segments)
    config = peft.LoraConfig(target_modules=list(found))
    matched = {p for p in paths if check_target_module_exists(config, p)}
    assert matched >= chosen
    if all(m == n or not m.endswith(f".{n}") for n in chosen for m in set(paths) - chosen):
        assert matched == chosen


@given(PATHS, st.data())
def test_patterns_are_found_by_peft(paths: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(paths), min_size=1))
    found = names(sorted(chosen), paths, by_pattern)
    hit = {p for p in paths if get_pattern_key(found, p) in found}
    assert hit >= chosen


@pytest.mark.parametrize(
    ("module", "number"), [("model.layers.3.mlp.experts.0.w1", 3), ("lm_head", None), ("a.b.c", None)]
)
def test_the_layer_is_the_first_number(module: str, number: int | None) -> None:
    assert layer(module) == number
