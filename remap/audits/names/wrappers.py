"""Segments that a wrapper adds: they say how the model was run, not what it is.

Sources: torch ``nn/parallel/distributed.py`` (module), ``_dynamo/eval_frame.py`` (_orig_mod),
``distributed/fsdp`` (_fsdp_wrapped_module), ``distributed/algorithms/_checkpoint``
(_checkpoint_wrapped_module), ``optim/swa_utils.py`` (module); fairscale (_fpw_module,
_fsdp_wrapped_module); Lightning Fabric (_forward_module, _original_module); Opacus (_module).
"""

from __future__ import annotations

ANYWHERE = frozenset(
    {
        "_orig_mod",
        "_fsdp_wrapped_module",
        "_fpw_module",
        "_checkpoint_wrapped_module",
        "_forward_module",
        "_original_module",
    }
)
"""Never a name that somebody gives: taken out wherever they stand."""
LEADING = frozenset({"module", "_module"})
"""Also names that people give (MAGMA's parallel adapters): taken out at the front only."""


def is_wrapped(key: str) -> bool:
    """Is there a wrapper in it? All of them but one begin with an underscore."""
    return (key.startswith(("_", "module.")) or "._" in key) and bool(wrappers(key))


def unwrap(key: str) -> str:
    """The key without wrappers; the same however often it is asked."""
    segments = key.split(".")
    start = 0
    while start < len(segments) - 1 and (segments[start] in LEADING or segments[start] in ANYWHERE):
        start += 1
    rest = [s for s in segments[start:-1] if s not in ANYWHERE]
    return ".".join((*rest, segments[-1]))


def wrappers(key: str) -> tuple[str, ...]:
    """The wrapper segments in a key, in order."""
    segments = key.split(".")
    found: list[str] = []
    leading = True
    for s in segments[:-1]:
        if s in ANYWHERE or (leading and s in LEADING):
            found.append(s)
        else:
            leading = False
    return tuple(found)
