"""A category has more findings, or fewer, than the policy expects.

Why: a policy that lets adapters be missing should know how many there are. One that is not among them is
news.

Remedy: look at the findings of this category; if the new number is right, write it into the policy.

Example:

    source: {w.weight: "f32[4]"}
    target: {w.weight: "f32[4]", adapter.0.weight: "f32[4]"}
    policy: {policy: 1, levels: {missing-adapter: allow}, expect: {missing-adapter: 2}}
    finds: {"": expectation, adapter.0.weight: missing-adapter}
"""

from __future__ import annotations

from remap.audits.category import Category, nothing

CATEGORY = Category("RM405", "expectation", "fail", nothing, claims=False)
