"""A waiver that matches no finding.

Why: what it was for is mended, or its pattern is wrong. It would hide the next finding that it happens to
match.

Remedy: remove it from the policy.

Example:

    source: {w.weight: "f32[4]"}
    target: {w.weight: "f32[4]"}
    policy: {policy: 1, waivers: [{pattern: "head.**", reason: trained anew}]}
    finds: {"": unused-waiver}
"""

from __future__ import annotations

from remap.audits.category import Category, nothing

CATEGORY = Category("RM406", "unused-waiver", "warn", nothing, claims=False)
