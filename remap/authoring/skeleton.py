"""A name -> a commented pack to start from, which passes lint. ``remap rules new``."""

from __future__ import annotations

import re

from remap.errors import UsageError

_TEXT = """\
# yaml-language-server: $schema=schema.json
# Editors complete and check this file with what `remap rules schema -o schema.json` writes beside it.
# A pack renames, joins and cuts the tensors of one layout into those of another.
# Check it with `remap rules lint FILE --keys KEYS` and `remap rules test FILE`.
remap: 1
pack: {name}
version: 0.1.0
title: One line that says from what to what
evidence:                 # where each fact comes from: code that defines the names, best with its commit
  - project: owner/repository
    path: path/of/the/file.py
    note: what is to be seen there
params:
  layers:
    about: number of layers
    from_config: num_hidden_layers
    or_count: "model.layers.{{i:int}}.norm.weight"
    min: 1
stages:                   # each is applied at once, to a frozen set of keys
  - rules:
      # {{i:int}} is a number, {{p}} one segment, {{rest:path}} one or more, {{a:one|two}} one of several.
      - id: layers
        from: "model.layers.{{i:int}}.{{part:norm|mlp}}.{{p:weight|bias}}"
        to: "blocks.{{i}}.{{part}}.{{p}}"
        # expect: 4*layers   how often it must match
      - id: last-norm
        from: "model.norm.weight"
        to: "blocks.{{layers}}.last_norm.weight"
      - id: buffers
        drop: "model.layers.{{i:int}}.mask"
        because: why nobody misses it
        optional: true    # it may match nothing
examples:                 # every rule needs one; they are run there and back
  - given:
      model.layers.0.mlp.weight: "f16[8,4]"
      model.norm.weight: "f16[4]"
      model.layers.0.mask: "bool[8,8]"
    config: {{num_hidden_layers: 1}}
    expect:
      blocks.0.mlp.weight: "f16[8,4]"
      blocks.1.last_norm.weight: "f16[4]"
    dropped:
      model.layers.0.mask: buffers
"""


def skeleton(name: str) -> str:
    """The pack's text. Raises UsageError for what is no ``family/name``."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", name):
        raise UsageError(f"{name!r} is no name of a pack", remedy="family/name, as in gpt_neox/hf-to-neox")
    return _TEXT.format(name=name)
