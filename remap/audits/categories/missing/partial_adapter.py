"""A tensor of an adapter that the checkpoint does not give, though it gives others of the same kind.

Why: an adapter that was trained is there whole. Where a part of it is missing, it was misnamed, truncated,
or saved by one pipeline stage only; the model runs, and does something else.

Remedy: find the missing part under another name, or save the adapter again. A policy that lets adapters be
absent does not let this pass.

Example:

    source: {l.0.q.lora_A.weight: "f32[2,4]", l.0.q.lora_B.weight: "f32[4,2]"}
    target:
      l.0.q.lora_A.weight: "f32[2,4]"
      l.0.q.lora_B.weight: "f32[4,2]"
      l.1.q.lora_A.weight: "f32[2,4]"
      l.1.q.lora_B.weight: "f32[4,2]"
    finds: {l.1.q.lora_A.weight: partial-adapter, l.1.q.lora_B.weight: partial-adapter}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.clues.nearest import Nearest
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.adapters import family


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """Missing tensors of adapters where others of the family are offered, matched or under strange names."""
    missing = {k: family(k) for k in table.named("missing", family)}
    if not missing:
        return
    given = Counter(name for k in table.offered if (name := family(k)))
    near = Nearest(table)
    for key, name in missing.items():
        if given[name]:
            others = f"the source has {given[name]} other tensors of this kind ({name})"
            yield self.missing(table, key, near.detail(key) or others)


CATEGORY = Category("RM109", "partial-adapter", "fail", find)
