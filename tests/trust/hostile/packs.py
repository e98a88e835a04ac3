"""Hostile and odd packs: what YAML, templates and regular expressions can do to a reader.

The names are those of the corpus of hostile files, which has the same ideas in a dialect of its own.
"""

from __future__ import annotations

from itertools import pairwise

HEAD = "remap: 1\npack: h/p\nversion: 1.0.0\ntitle: t\n"


def rules(*lines: str) -> str:
    """A pack with one stage of these rules."""
    return HEAD + "stages:\n  - rules:\n" + "".join(f"      - {line}\n" for line in lines)


GOOD = rules('{id: r, from: "layers.{i:int}.{x}", to: "blocks.{i}.{x}"}')


def _bomb() -> str:
    names = "abcdefghi"
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in pairwise(names)]
    return "\n".join([HEAD + lines[0], *lines[1:], "stages: *i\n"])


LONG = "a" * 60 + "!"
"""A key on which ambiguous patterns try every way there is."""

REFUSED: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "y01_alias_bomb": (_bomb(), ("a",)),
    "y02_python_apply": (HEAD + "stages: !!python/object/apply:os.system ['echo hostile> CANARY']\n", ("a",)),
    "y04_custom_tag": (HEAD + "stages: !include /etc/passwd\n", ("a",)),
    "y05_not_utf8": (b"# caf\xe9\n" + GOOD.encode(), ("a",)),
    "y07_duplicate_key": (GOOD + "stages: []\n", ("a",)),
    "y08_duplicate_in_rule": (rules('{id: r, from: "a", to: "b", to: "c"}'), ("a",)),
    "y10_norway": (rules('{id: r, from: "a", to: false}'), ("a",)),
    "y11_number": (rules('{id: r, from: "a", to: 1.10}'), ("a",)),
    "y13_recursive": (HEAD + "stages: &r [*r]\n", ("a",)),
    "y14_two_documents": (f"{GOOD}---\n{GOOD}", ("a",)),
    "y16_empty": ("", ("a",)),
    "y17_scalar": ("hello\n", ("a",)),
    "y19_big_int": (GOOD.replace("remap: 1", "remap: " + "9" * 20_000), ("a",)),
    "y20_include_dotdot": (HEAD + "stages:\n  - use: ../../../../../../etc/passwd\n", ("a",)),
    "y22_include_device": (HEAD + "stages:\n  - use: ./zero.yaml\n", ("a",)),
    "r01_redos_alternation": (rules("{id: r, regex: '(?P<x>(a|aa)+)', to: \"x.{x}\"}"), (LONG,)),
    "r03_redos_dots": (rules("{id: r, regex: '(?P<x>(.|..)*\\d)', to: \"x.{x}\"}"), (LONG,)),
    "r04_pattern_huge": (
        rules("{id: r, regex: '(?P<x>" + "|".join("a" * n for n in range(1, 2000)) + ')\', to: "{x}.b"}'),
        (LONG,),
    ),
    "r06_pattern_invalid": (rules("{id: r, regex: '(a', to: x, inverse: none, because: it}"), ("a",)),
    "r07_group_missing": (rules("{id: r, regex: '(?P<x>a)', to: \"{x}.{y}\"}"), ("a",)),
    "r09_growth": (
        HEAD + "stages:\n" + '  - rules:\n      - {id: r, from: "{x:path}", to: "{x}.{x}.{x}.{x}"}\n' * 12,
        ("a",),
    ),
    "r10_collision": (
        rules('{id: r, from: "{x}", to: "same", inverse: none, because: it}'),
        ("a", "b"),
    ),
    "arithmetic that never ends": (
        rules('{id: r, from: "a.{i:int}", to: "a.{' + "*".join(["9" * 4000] * 2000) + '*i}"}'),
        ("a.9",),
    ),
    "a number of a million digits": (
        rules('{id: r, from: "a.{i:int}", to: "a.{i*i}"}'),
        ("a." + "9" * 1_000_000,),
    ),
    "a thousand captures": (
        rules('{id: r, from: "' + ".".join(f"{{c{n}:path}}" for n in range(40)) + '", to: "x"}'),
        (".".join("a" * 60),),
    ),
    "an op that takes it all": (
        rules('{id: r, from: "a", to: "b", do: {pad: {dim: 0, after: 99999999999999999999}}}'),
        ("a",),
    ),
    "it uses itself": (HEAD + "stages:\n  - use: ./pack.yaml\n", ("a",)),
}
"""Name -> pack, and keys that it is applied to."""

OPENED: dict[str, tuple[str, tuple[str, ...]]] = {
    "r12_valid": (
        (
            "# pack\n"
            + rules(
                "{id: r, from: 'layers.{i:int}.{x}', to: \"blocks.{i}.{x}\"}",
                "{id: e, from: emb, to: tok_emb}",
            )
        ).replace("\n", "\r\n"),
        ("layers.0.w", "emb"),
    ),
    "r13_valid_unicode": (rules('{id: r, from: "层.{x}", to: "blöcke.{x}"}'), ("层.w",)),
}
