"""A rule of the packs that matched nothing, matched another number of keys than it expects, or lacks some of
its parts.

Why: the checkpoint is not what the pack is for: layers or experts are missing, or it is another model. A
conversion refuses.

Remedy: see what is missing; a rule that may match nothing says optional: true.

Example:

    source: {l.0.experts.0.w: "f32[4]", l.0.experts.2.w: "f32[4]"}
    target: {l.0.experts.w: "f32[3,4]"}
    rules:
      id: experts
      from: "l.{i:int}.experts.{e:int}.w"
      to: "l.{i}.experts.w"
      do: {stack: {over: e}}
    finds: {"": unfit-rule, l.0.experts.w: missing-parameter}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """What the plan says, one a rule."""
    for trouble in table.troubles("unfit"):
        yield Finding(self.code, self.name, "", trouble.detail)


CATEGORY = Category("RM409", "unfit-rule", "fail", find, claims=False)
