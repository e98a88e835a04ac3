"""The shortest names that PEFT matches with the right modules and with no other.

PEFT matches in its own way in every field of its configuration. Sources: peft 0.21
``tuners/tuners_utils.py`` (``check_target_module_exists``), ``utils/other.py`` (``get_pattern_key``,
``_set_trainable``), ``tuners/ia3/model.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from remap.adapters.scaling import matches

Match = Callable[[str, str], bool]
"""Does a name of the configuration match a module's path?"""


def by_segments(name: str, module: str) -> bool:
    """``target_modules``, ``target_parameters``: the path, or the segments at its end."""
    return module == name or module.endswith(f".{name}")


def by_text(name: str, module: str) -> bool:
    """``modules_to_save``, ``feedforward_modules``, ``trainable_token_indices``: any text at its end."""
    return module.endswith(name)


def by_pattern(name: str, module: str) -> bool:
    """``rank_pattern``, ``alpha_pattern``: a regular expression, for the path or the segments at its end."""
    return matches(rf"(.*\.)?({name})$", module) is not None


LAYER = re.compile(r".*?\.[^.]*\.(?P<number>\d+)\.")
"""Where ``layers_to_transform`` finds a layer's number, with no ``layers_pattern``."""


def layer(module: str) -> int | None:
    """The number of a module's layer, as PEFT finds it; None for a module in none."""
    found = LAYER.match(module)
    return int(found["number"]) if found else None


def names(chosen: Iterable[str], others: Iterable[str], match: Match, least: int = 1) -> Sequence[str]:
    """Names that together match all of ``chosen`` and none of ``others``: of each path the shortest end of
    ``least`` segments or more that does, else the whole path. Sorted."""
    wanted = list(dict.fromkeys(chosen))
    foreign = list(set(others) - set(wanted))
    found: list[str] = []
    for module in wanted:
        if not any(match(n, module) for n in found):
            found.append(_shortest(module, foreign, match, least))
    return sorted(found)


def strays(found: Iterable[str], chosen: Iterable[str], others: Iterable[str], match: Match) -> Sequence[str]:
    """Modules that are matched and were not chosen: a whole path may be the end of another."""
    given = list(found)
    return sorted(m for m in set(others) - set(chosen) if any(match(n, m) for n in given))


def _shortest(module: str, foreign: Sequence[str], match: Match, least: int) -> str:
    segments = module.split(".")
    ends = (".".join(segments[-n:]) for n in range(least, len(segments) + 1))
    fits = (e for e in ends if not e.isdigit() and not any(match(e, m) for m in foreign))
    return next(fits, module)
