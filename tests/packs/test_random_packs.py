"""Packs and keys by chance, against an oracle of Python's ``re``: a plan gives what the templates say,
and its inverse gives every key back; or there is no plan at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from packs.language import catalog, renames, rules

from remap.errors import PackError, RemapError
from remap.plan import make_plan

INT = "(0|[1-9][0-9]*)"
HOLES = {
    "{x}": r"([^.]+)",
    "pre{x}": r"pre([^.]+)",
    "{x}_post": r"([^.]+)_post",
    "{i:int}": INT,
    "h{i:int}": f"h{INT}",
    "{k:u=v|v=u}": "(u|v)",
    "{rest:path}": r"([^.]+(?:\.[^.]+)*)",
}
LITERALS = ["a", "b", "h", "model", "model.model"]
NUMBERS = [("{i}", lambda i: f"{i}"), ("{i+2}", lambda i: f"{i + 2}"), ("{2*i+1}", lambda i: f"{2 * i + 1}")]
NUMBERS += [
    ("{i//2}.{i%2}", lambda i: f"{i // 2}.{i % 2}"),
    ("{i//3}.q.{i%3}", lambda i: f"{i // 3}.q.{i % 3}"),
]
SWAP = {"u": "v", "v": "u"}
TEXTS = ["a", "b", "w", "u", "v", "0", "7", "07", "12", "", "model", "pre", "_post", "prex", "x_post"]


@dataclass(frozen=True)
class Rule:
    """A template, what it writes, and the same as a regex."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __str__(self) -> str:
        return f'from: "{".".join(self.source)}", to: "{".".join(self.target)}"'

    def becomes(self, key: str) -> str | None:
        pattern = r"\.".join(HOLES.get(s, re.escape(s)) for s in self.source)
        match = re.fullmatch(pattern, key)
        if match is None:
            return None
        captured = dict(zip(self.holes, match.groups(), strict=True))
        return ".".join(self._write(t, captured) for t in self.target)

    @property
    def holes(self) -> list[str]:
        return [_name(s) for s in self.source if s in HOLES]

    def _write(self, text: str, captured: dict[str, str]) -> str:
        for template, of in NUMBERS:
            if template == text:
                return of(int(captured["i"]))
        if text == "{k}":
            return SWAP[captured["k"]]
        return re.sub(r"\{(\w+)\}", lambda m: captured[m[1]], text)


def _name(hole: str) -> str:
    return re.search(r"\{(\w+)", hole)[1]  # type: ignore[index]


@st.composite
def a_rule(draw: st.DrawFn) -> Rule:
    holes = draw(st.permutations(["x", "i", "k"]))[: draw(st.integers(0, 3))]
    source: list[str] = []
    target: list[str] = []
    for name in holes:
        source += draw(st.lists(st.sampled_from(LITERALS), max_size=1))
        source.append(draw(st.sampled_from([h for h in HOLES if _name(h) == name])))
    source += draw(st.lists(st.sampled_from(LITERALS), max_size=1))
    for name in draw(st.permutations(holes)):
        target += draw(st.lists(st.sampled_from(LITERALS), max_size=1))
        forms = {"x": ["{x}", "p{x}"], "i": [t for t, _ in NUMBERS], "k": ["{k}"]}[name]
        target.append(draw(st.sampled_from(forms)))
    target += draw(st.lists(st.sampled_from(LITERALS), max_size=2))
    if draw(st.booleans()) or not source or not target:
        source.append("{rest:path}")
        target.append("{rest}")
    return Rule(tuple(source), tuple(target))


@st.composite
def keys_of(draw: st.DrawFn, several: list[Rule]) -> list[str]:
    """Keys that the templates are likely to match: a dozen and more of one, with empty parts among them."""
    found: set[str] = set()
    for rule in several:
        texts = [draw(st.sampled_from(TEXTS)) for _ in rule.source]
        for i in draw(st.lists(st.integers(0, 15), max_size=16, unique=True)):
            found.add(".".join(_fill(s, t, i) for s, t in zip(rule.source, texts, strict=True)))
    segments = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4)
    found |= {".".join(s) for s in draw(st.lists(segments, max_size=3))}
    return sorted(found)


def _fill(segment: str, text: str, number: int) -> str:
    fills = {"x": text, "i": str(number), "k": "uv"[number % 2], "rest": f"{text}.{number}.w"}
    return re.sub(r"\{(\w+)[^}]*\}", lambda m: fills[m[1]], segment)


def expected(several: list[Rule], keys: list[str]) -> Iterator[tuple[str, set[str]]]:
    """Each key with all that the rules would make of it; what none matches is kept."""
    for key in keys:
        made = [t for t in (r.becomes(key) for r in several) if t is not None]
        yield key, set(made) if made else {key}


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_a_plan_is_what_the_templates_say_and_comes_back(data: st.DataObject) -> None:
    several = data.draw(st.lists(a_rule(), min_size=1, max_size=4))
    keys = data.draw(keys_of(several))
    lines = [f"- {{id: r{n}, {rule}, optional: true}}" for n, rule in enumerate(several)]
    again = [f"r{n}" for n in range(len(several))]
    try:
        the = rules("\n".join([*lines, '- {keep: "**", optional: true}']))
        there = make_plan(catalog(keys), [the], again=again)
    except PackError:
        event("no pack")
        return
    except RemapError:
        event("no plan")
        return
    event("a plan")
    found = renames(there)
    assert found.keys() == set(keys)
    for key, several_names in expected(several, keys):
        assert {found[key]} == several_names
    back = make_plan(catalog([o.key for o in there.outputs]), [the], inverse=True, again=again)
    assert renames(back) == {new: old for old, new in found.items()}
