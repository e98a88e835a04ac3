"""A waiver whose day is past, and that still matches something.

Why: it was for a time. That time is over and the finding is still there.

Remedy: mend the finding, or give the waiver a new day and say why.

Example:

    source: {w.weight: "f32[4]"}
    target: {w.weight: "f32[4]", head.weight: "f32[4]"}
    policy:
      policy: 1
      waivers: [{pattern: "head.**", reason: until the head is trained, until: "2020-01-31"}]
    finds: {"": expired-waiver, head.weight: missing-parameter}
"""

from __future__ import annotations

from remap.audits.category import Category, nothing

CATEGORY = Category("RM407", "expired-waiver", "fail", nothing, claims=False)
