"""Short ways to say a pack and a key list in a test."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from remap.packs import Pack, read
from remap.plan import Plan, make_plan
from remap.types import Catalog, Entry, TensorSpec

HEAD = "remap: 1\npack: test/pack\nversion: 1.0.0\ntitle: a test\n"
"""Four lines, so that a body's first line is line 5."""


def pack(body: str, file: str = "test.yaml") -> Pack:
    """A pack with ``body`` below the head."""
    return read((HEAD + textwrap.dedent(body).lstrip("\n")).encode(), file)


def rules(text: str, params: str = "") -> Pack:
    """A pack of one stage with these rules, one a line: ``- {...}``."""
    head = f"params:\n{textwrap.indent(textwrap.dedent(params).strip(), '  ')}\n" if params else ""
    return pack(f"{head}stages:\n  - rules:\n{textwrap.indent(textwrap.dedent(text).strip(), '      ')}\n")


def catalog(keys: Iterable[str] | Mapping[str, str], config: Mapping[str, object] | None = None) -> Catalog:
    """A key list; without specs every tensor is f16[4,4]."""
    specs = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys, "f16[4,4]")
    entries = {k: Entry(k, TensorSpec.parse(s)) for k, s in specs.items()}
    return Catalog("keylist", Path("keys.json"), (), entries, config=config or {})


def renames(plan: Plan) -> dict[str, str]:
    """Source key -> output key, of a plan that only renames."""
    return {o.sources[0]: o.key for o in plan.outputs}


def renamed(the: Pack, keys: Iterable[str], *, inverse: bool = False, **options: object) -> dict[str, str]:
    """What a pack makes of keys, which need not make all of its rules fire."""
    plan = make_plan(catalog(keys), [the], inverse=inverse, partial=True, **options)  # type: ignore[arg-type]
    return renames(plan)
