"""Where a torch file names its tensors a second time, and how those names follow a rename.

``_metadata``, an attribute of a state dict, maps modules to their version; a module follows where
all its tensors, and they alone, move from one prefix to another. DeepSpeed lists parameters by
key beside the state dict (``param_shapes`` and the like, engine.py ``_save_checkpoint``); they
follow key by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from remap.formats.torch.state import Contents
from remap.pickles.graph import attributes, items_of, key_of, mapping_pairs
from remap.pickles.nodes import Text, Value

NAMING = (
    "param_shapes",
    "buffer_names",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "param_slice_mappings",
    "shared_params",
)
"""Entries at the top level of DeepSpeed's files that name parameters by their key."""


def names_elsewhere(contents: Contents, renames: Mapping[str, str]) -> dict[int, str]:
    """Sites outside the state dict that name its tensors -> the name that belongs there.

    renames  old key -> new key of every tensor, also of those that keep theirs
    """
    wanted: dict[int, str] = {}
    for key, value in attributes(contents.node):
        if key_of(key) == "_metadata":
            modules = [k for k, _ in mapping_pairs(value) or () if type(k) is Text]
            new = follow_modules([k.text for k in modules], renames)
            wanted.update({id(k): new[k.text] for k in modules if k.text in new})
    for key, value in mapping_pairs(contents.walked.root) or ():
        if key_of(key) in NAMING and value is not contents.node:
            wanted.update({id(t): renames[t.text] for t in _texts(value) if t.text in renames})
    return wanted


def _texts(node: Value) -> Iterator[Text]:
    """Every string in lists and dicts: keys, items, and values that are strings themselves."""
    todo = [node]
    while todo:
        value = todo.pop()
        if type(value) is Text:
            yield value
        for key, held in mapping_pairs(value) or ():
            todo += [key, held]
        todo.extend(items_of(value) or ())


def follow_modules(modules: Iterable[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Module -> its new name, for the modules whose tensors move as one.

    A module stays where its tensors part, where other tensors join them, and where two modules
    would get one name: so that the way back is the way here.
    """
    modules = list(modules)
    forward = _prefixes(renames.items())
    back = _prefixes((new, old) for old, new in renames.items())
    moved = {}
    for module in modules:
        new = forward.get(module)
        if module and new and new != module and back.get(new) == module:
            moved[module] = new
    while True:
        names = [moved.get(m, m) for m in modules]
        clashing = {n for n in names if names.count(n) > 1} if len(set(names)) < len(names) else set()
        if not clashing:
            return moved
        moved = {old: new for old, new in moved.items() if new not in clashing}


def _prefixes(renames: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Prefix of old keys -> the one prefix that takes its place in all of them, None if there is none."""
    found: dict[str, str | None] = {}
    for old, new in renames:
        rest = ""
        prefix = old
        while prefix:
            prefix, dot, part = prefix.rpartition(".")
            rest = f"{dot}{part}{rest}" if dot else f".{part}{rest}"
            if not dot:
                break
            target = new[: -len(rest)] if new.endswith(rest) and len(new) > len(rest) else None
            if found.setdefault(prefix, target) != target:
                found[prefix] = None
    return found
