"""Weights of a base whose modules are wrapped: the wrapper's segments taken out, or put in.

``around`` is module -> what stands between it and its own weights, ``{"2.mlp": ("attn_block",)}``; that of
the module ``""`` stands before every key: ``("base_model", "model")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Around = Mapping[str, tuple[str, ...]]
ALSO_NAMES = frozenset({"0", "module", "model"})
"""Segments of wrappers that are also names of modules."""


def bare(key: str, around: Around) -> str:
    """``2.mlp.attn_block.dense.weight`` -> ``2.mlp.dense.weight``: once, whatever comes behind it."""
    front = around.get("", ())
    segments = key.split(".")
    if tuple(segments[: len(front)]) == front:
        segments = segments[len(front) :]
    for at in range(1, len(segments)):
        wrap = around.get(".".join(segments[:at]), ())
        if wrap and tuple(segments[at : at + len(wrap)]) == wrap:
            return ".".join((*segments[:at], *segments[at + len(wrap) :]))
    return ".".join(segments)


def wrapped(key: str, around: Around) -> str:
    """The way back."""
    segments = key.split(".")
    for at in range(1, len(segments)):
        wrap = around.get(".".join(segments[:at]), ())
        if wrap:
            segments[at:at] = wrap
            break
    return ".".join((*around.get("", ()), *segments))


def strangers(keys: Iterable[str], around: Around) -> list[str]:
    """Keys in a module whose own weights its wrapper has, that are not among those."""
    front = around.get("", ())
    beside: list[tuple[str, str]] = []
    wrapping: set[str] = set()
    for key in keys:
        segments = key.split(".")
        if tuple(segments[: len(front)]) == front:
            segments = segments[len(front) :]
        modules = ((n, ".".join(segments[:n])) for n in range(1, len(segments)))
        at, module = next(((n, m) for n, m in modules if m in around), (0, ""))
        if module and tuple(segments[at : at + len(around[module])]) == around[module]:
            wrapping.add(module)
        elif module:
            beside.append((key, module))
    return [key for key, module in beside if module in wrapping]


def present(around: Around, keys: Iterable[str]) -> Around:
    """The wrappers that are in these keys already: those that all keys of their module have. A module of
    which one child is called as the wrapper is, is not wrapped by it."""
    found: dict[str, bool] = {}
    for key in keys:
        segments = key.split(".")
        for at in range(len(segments)):
            module = ".".join(segments[:at])
            wrap = around.get(module, ())
            if wrap:
                here = tuple(segments[at : at + len(wrap)]) == wrap
                found[module] = found.get(module, True) and here
    return {module: around[module] for module, here in found.items() if here}
