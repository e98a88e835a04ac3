"""transformers' ``PreTrainedModel.from_pretrained``: never strict, by design.

It renames, joins and fills in on its own, so what it loaded is what it says it did
(``output_loading_info=True``): missing, unexpected and mismatched keys. What it hides from everybody
(``_keys_to_ignore_on_load_missing`` and ``_unexpected``) is hidden here, too.
Source: transformers src/transformers/modeling_utils.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remap.audits.target import Target
from remap.errors import RemapError
from remap.formats import registry
from remap.formats.keylist import UNKNOWN
from remap.integrations.watching.patches import Patch
from remap.integrations.watching.watch import Load, seen, watching
from remap.types import TensorSpec

ASKED = "output_loading_info"


def _wrap(original: Any) -> Any:
    function = original.__func__

    @functools.wraps(function)
    def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        if not watching():
            return function(cls, name, *args, **kwargs)
        wanted = kwargs.pop(ASKED, False)
        model, info = function(cls, name, *args, **{**kwargs, ASKED: True})
        _seen(model, info, name, kwargs)
        return (model, info) if wanted else model

    return classmethod(from_pretrained)


def _seen(model: Any, info: Mapping[str, Any], name: Any, kwargs: Mapping[str, Any]) -> None:
    from remap.integrations.torch_model import target_of

    target = target_of(model)
    place = Path(str(name)) / str(kwargs.get("subfolder") or "")
    seen(Load(str(name), _offered(target, info, place), target))


def _offered(target: Target, info: Mapping[str, Any], place: Path) -> dict[str, TensorSpec]:
    mismatched = {m[0]: m[1] for m in info["mismatched_keys"]}
    absent = {*info["missing_keys"], *mismatched}
    offered = {k: s for k, s in target.specs.items() if k not in absent}
    for key, shape in mismatched.items():
        offered[key] = TensorSpec(target.specs[key].dtype, tuple(shape))
    there = _specs(place) if info["unexpected_keys"] else {}
    # One UNKNOWN makes it a comparison of names: not where shapes are known to be wrong.
    unknown = replace(UNKNOWN) if mismatched else UNKNOWN
    return offered | {k: there.get(k, unknown) for k in sorted(info["unexpected_keys"])}


def _specs(place: Path) -> dict[str, TensorSpec]:
    """What the folder holds, where it is one of this machine; {} where it can't be known."""
    if not place.is_dir():
        return {}
    try:
        return {k: e.spec for k, e in registry.open_catalog(place).entries.items()}
    except RemapError:
        return {}


PATCHES = [Patch("transformers.modeling_utils", "PreTrainedModel", "from_pretrained", _wrap)]
