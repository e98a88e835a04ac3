"""Less of the model is loaded than the policy asks for.

Why: a load that matches a tenth of the model is no load, even if each missing tensor is allowed by itself.

Remedy: see what is missing; lower coverage: in the policy only with a reason.

Example:

    source: {a.weight: "f32[4]"}
    target: {a.weight: "f32[4]", b.weight: "f32[12]"}
    policy: {policy: 1, levels: {missing-parameter: allow}, coverage: {keys: 0.5, elements: 0.5}}
    finds: {"": coverage, b.weight: missing-parameter}
"""

from __future__ import annotations

from remap.audits.category import Category, nothing

CATEGORY = Category("RM404", "coverage", "fail", nothing, claims=False)
