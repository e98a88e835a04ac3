"""Two tensors of the checkpoint want one name: a pack gives it to both, or wrappers alone tell them apart.

Why: a loader keeps one of them, and which one is chance: main weights and their average, or two pipeline
stages that count their layers alike. A conversion refuses.

Remedy: choose one: --at says where its state dict lies; a pack drops the other with a reason.

Example:

    source: {module.a.weight: "f32[4]", a.weight: "f32[4]"}
    target: {a.weight: "f32[4]"}
    finds: {a.weight: collision}
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding
from remap.audits.names.wrappers import is_wrapped, unwrap


def find(self: Category, table: Comparison) -> Iterable[Finding]:
    """What the plan says, then offered keys that a wrapper alone tells apart, where the target doesn't have
    both."""
    for trouble in table.troubles("collision"):
        yield Finding(
            self.code,
            self.name,
            trouble.key,
            trouble.detail,
            table.sources(trouble.key),
            table.offered.get(trouble.key),
            table.target.specs.get(trouble.key),
        )
    for key in table.offered:
        if not is_wrapped(key):
            continue
        plain = unwrap(key)
        if plain in table.offered and not (key in table.target.specs and plain in table.target.specs):
            yield Finding(
                self.code,
                self.name,
                plain,
                f"{plain} and {key} are both in the source",
                (*table.sources(plain), *table.sources(key)),
                table.offered[key],
                table.target.specs.get(plain),
            )


CATEGORY = Category("RM402", "collision", "fail", find, claims=False)
