"""docs/audit.md: every category with its code and example, from the docstrings; the shipped policies.

``python -m remap.reports.reference > docs/audit.md``
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from remap.audits import registry
from remap.audits.category import Category
from remap.audits.policy_file import load_policy, shipped

INTRODUCTION = """\
# What an audit says

    remap audit CHECKPOINT --against TARGET [-r PACK...] [--policy POLICY]

An audit compares the names, shapes and types that a checkpoint gives (after the packs, if any) with those
that a target has, and says of every key what becomes of it. TARGET is another checkpoint, a key list, a
Hugging Face index, a folder with nothing but a `config.json`, a layout with its parameters, or
`package.module:function` or `path.py:function` that returns the model. `remap keys TARGET -o keys.json`
writes a key list, which can lie beside the training code, so that CI needs no model.

The exit code is 0 where the policy lets it pass and 1 where it does not.

What a conversion would refuse is told here beside everything else: two tensors that want one name, keys that
no rule owns, rules that don't fit. An audit goes on: the first of two has the name, a key without a rule
keeps its own.

A layout (`--against magma/neox`, or a `.layout.yaml` of your own) is the target with the sizes that the
checkpoint's config and tensors tell; `--target-param layers=24` says one of them. Groups of keys that a
model has all or none of (adapters, an image prefix) are wanted where the checkpoint has one of them, or
with `--target-param mlp_adapter=present`; what is optional and absent is told. A layout knows no types:
`--target-param dtype=bfloat16` says which.

<!-- Made by python -m remap.reports.reference from the categories' docstrings; a test keeps it current. -->
"""

POLICY = """\
## Policies

A policy says which findings fail, warn or pass. It is a YAML file:

```yaml
policy: 1
name: ours
extends: magma                       # strict, if nothing is said
levels:                              # allow, warn or fail, by category
  missing-adapter: allow             # `adapter` would stand for both sides
  missing-buffer: warn
expect:                              # how many findings there must be: 96, 90..96, 1..
  missing-adapter: 96
coverage: {keys: 0.9, elements: 0.99}  # least shares of the model that are loaded
categories:                          # more of them: missing-head and unexpected-head
  head: ["classifier.**", "score.**"]
waivers:
  - pattern: "lm_head.bias"          # a whole key; * is a segment, ** one or more
    category: missing-parameter      # without it: missing and unexpected keys, nothing else
    reason: zero by design
    until: 2027-01-31                # the last day
    expect: 1
```

A pack may name keys of its family, too: `categories: {adapter: "**.bottleneck.**"}` counts them to
missing-adapter and unexpected-adapter wherever that pack is used.

Some things no policy changes: where nothing matched, and where two tensors want one name, the audit fails. A
shape mismatch is only waived by a waiver that names this category. A waiver that matches nothing is reported.

`--baseline known.json --update-baseline` writes down what fails now; with `--baseline known.json` only news
fails.
"""

PARTS = (
    ("RM0", "Loaded"),
    ("RM1", "Missing: the target has it, the checkpoint does not give it"),
    ("RM2", "Unexpected: the checkpoint gives it, the target does not have it"),
    ("RM3", "Both have it, and it does not fit, or may not"),
    ("RM4", "About the whole, and about the policy"),
)


def render() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "| code | category | strict | |"
    yield "| --- | --- | --- | --- |"
    every = sorted(registry.categories(), key=lambda c: c.code)
    for c in every:
        yield f"| [{c.code}](#{_anchor(c)}) | {c.name} | {c.level} | {c.about.what} |"
    yield ""
    yield POLICY
    yield "| policy | |"
    yield "| --- | --- |"
    for name, title in shipped().items():
        changed = ", ".join(f"`{k}: {v}`" for k, v in load_policy(name).levels.items())
        yield f"| `{name}` | {title}{f' ({changed})' if changed else ''} |"
    for prefix, title in PARTS:
        yield ""
        yield f"## {title}"
        for c in every:
            if c.code.startswith(prefix):
                yield from _category(c)


def _category(category: Category) -> Iterator[str]:
    about = category.about
    yield ""
    yield f"### {category.code} {category.name}"
    yield ""
    yield about.what
    yield ""
    yield f"**Why.** {about.why}"
    yield ""
    yield f"**What to do.** {about.remedy}"
    yield ""
    yield "```yaml"
    yield about.example
    yield "```"


def _anchor(category: Category) -> str:
    """As GitHub makes it of the heading."""
    return f"{category.code} {category.name}".lower().replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(render())
