"""Key lists as catalogs and targets, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remap.audit import audit
from remap.audits.policy import Policy
from remap.audits.policy_file import load_policy, read_policy
from remap.audits.report import Report
from remap.audits.target import Target
from remap.formats.keylist import UNKNOWN
from remap.packs import read
from remap.plan import make_plan
from remap.types import Catalog, Entry, Location, TensorSpec

Specs = Mapping[str, Any]


def specs(keys: Specs | Iterable[str]) -> dict[str, TensorSpec]:
    """``{key: "f32[4]"}``, ``{key: [4]}`` (f32), or names alone."""
    if not isinstance(keys, Mapping):
        return dict.fromkeys(keys, UNKNOWN)
    return {
        k: TensorSpec.parse(v if isinstance(v, str) else f"f32{list(v)}".replace(" ", ""))
        for k, v in keys.items()
    }


def catalog(keys: Specs | Iterable[str], ties: Mapping[str, str] | None = None, **more: Any) -> Catalog:
    """A source; ``ties`` puts keys at one place in a file."""
    entries: dict[str, Entry] = {}
    for n, (key, spec) in enumerate(specs(keys).items()):
        entries[key] = Entry(key, spec, Location(Path("source.pt"), n) if ties else None)
    for key, first in (ties or {}).items():
        entries[key] = Entry(key, entries[key].spec, entries[first].location)
    return Catalog("keys", Path("source"), (), entries, **more)


def target(keys: Specs | Iterable[str], **more: Any) -> Target:
    """A target."""
    found = specs(keys)
    return Target("target", found, names_only=not isinstance(keys, Mapping), **more)


def run(
    source: Specs | Iterable[str],
    wanted: Specs | Iterable[str],
    policy: str | Policy | None = None,
    rules: str | None = None,
) -> Report:
    """An audit of two key lists. ``policy``: a name or a YAML text; ``rules``: the rules of a pack, as
    YAML."""
    if isinstance(policy, str) and "\n" in policy:
        policy = read_policy(policy.encode(), "policy.yaml")
    made = plan(catalog(source), rules) if rules else None
    return audit(catalog(source), target(wanted), made, load_policy(policy))


def plan(source: Catalog, rules: str) -> Any:
    """The plan of one stage of ``rules``: YAML, a list. Tolerant, as an audit's is."""
    indented = "".join(f"      {line}\n" for line in rules.strip().splitlines())
    text = f"remap: 1\npack: test/pack\nversion: 1.0.0\ntitle: test\nstages:\n  - rules:\n{indented}"
    return make_plan(source, [read(text.encode(), "test.yaml")], tolerant=True)


def by_key(report: Report) -> dict[str, set[str]]:
    """Key -> categories of its findings."""
    found: dict[str, set[str]] = {}
    for f in report.findings:
        found.setdefault(f.key, set()).add(f.category)
    return found
