"""Templates match whole keys by whole segments, and write what they matched."""

from __future__ import annotations

import pytest
from packs.language import renamed, rules

from remap.errors import PackError
from remap.packs.language.template import parse_template


@pytest.mark.parametrize(
    ("source", "target", "key", "wanted"),
    [
        # one segment, never more
        ("a.{x}.w", "b.{x}.w", "a.one.w", "b.one.w"),
        # digits are numbers, written as they are
        ("layers.{i:int}.w", "h.{i}.w", "layers.12.w", "h.12.w"),
        # one or more segments
        ("a.{rest:path}", "b.{rest}", "a.x.y.z", "b.x.y.z"),
        ("{pre:path}.old.{x}", "{pre}.new.{x}", "a.b.old.w", "a.b.new.w"),
        # an alternation, and a table that is read left and written right
        ("a.{p:weight|bias}", "b.{p}", "a.bias", "b.bias"),
        ("n.{p:gamma=weight|beta=bias}", "n.{p}", "n.gamma", "n.weight"),
        # the longest alternative that fits, whatever the order
        ("{p:fc|fc1}.w", "x.{p}.w", "fc1.w", "x.fc1.w"),
        # inside a segment
        ("layer_{i:int}.{x}_proj.w", "l.{i}.{x}.w", "layer_3.q_proj.w", "l.3.q.w"),
        # arithmetic
        ("layers.{i:int}.w", "{i+2}.w", "layers.0.w", "2.w"),
        ("b.{i:int}.w", "s.{i//2}.{i%2}.w", "b.7.w", "s.3.1.w"),
        # two numbers of one name must agree
        ("a.{i:int}.b.{i:int}", "c.{i}", "a.3.b.3", "c.3"),
        # percent signs are text
        ("a%s.{x}", "b%d.{x}", "a%s.w", "b%d.w"),
    ],
)
def test_there_and_back(source: str, target: str, key: str, wanted: str) -> None:
    the = rules(f'- {{id: r, from: "{source}", to: "{target}"}}')
    assert renamed(the, [key]) == {key: wanted}
    assert renamed(the, [wanted], inverse=True) == {wanted: key}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("a.{x}", "a.b.c"),
        ("a.{x}", "xa.b"),
        ("attn.bias", "h.0.attn.bias"),  # never a substring: h.0.attn.c_attn.bias is a trained bias
        ("attn.bias", "attn.biases"),
        ("a.{i:int}", "a.007"),  # zeros in front would not come back
        ("a.{i:int}", "a.b1"),
        ("a.{p:weight|bias}", "a.weights"),
        ("a.{rest:path}", "a"),
        ("a.{i:int}.b.{i:int}", "a.3.b.4"),
        ("{i+2}.w", "1.w"),  # no index is -1
        ("{2*i}.w", "3.w"),
    ],
)
def test_what_does_not_match(source: str, key: str) -> None:
    the = rules(f"""
        - {{id: r, drop: "{source}", because: test}}
        - {{keep: "**"}}
    """)
    assert renamed(the, [key]) == {key: key}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a.{x", "without its partner"),
        ("a.x}", "without its partner"),
        ("{x}{y}", "two captures touch"),
        ("{x:digits}", "no kind of capture"),
        ("{x:}", "no kind of capture|empty name"),
        ("{x:a|}", "empty name"),
        ("{x:a|a}", "twice"),
        ("a{rest:path}", "whole segments"),
        ("{a:path}.{b:path}.{c:path}.{d:path}", "4 paths"),
        ("{x:@parts}", "no table"),
        ("{mlp.up}", "no parameter"),
        ("{layers:int}", "is a parameter"),
        ("{1x:int}", "no name"),
        ("a" * 2000, "characters"),
    ],
)
def test_what_is_no_template(text: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        parse_template(text, {"layers": None}, {})


def test_a_table_of_the_pack() -> None:
    from packs.language import pack

    the = pack("""
        tables:
          parts: {self_attn.q_proj: attention.wq, mlp.gate_proj: feed_forward.w1}
        stages:
          - rules:
              - {id: r, from: "layers.{i:int}.{part:@parts}.weight", to: "l.{i}.{part}.weight"}
    """)
    keys = ["layers.0.self_attn.q_proj.weight", "layers.11.mlp.gate_proj.weight"]
    there = renamed(the, keys)
    assert list(there.values()) == ["l.0.attention.wq.weight", "l.11.feed_forward.w1.weight"]
    assert renamed(the, there.values(), inverse=True) == {v: k for k, v in there.items()}
