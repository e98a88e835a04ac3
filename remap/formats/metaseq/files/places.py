"""Does every file lie under the name that it was saved under?

In: the files of a checkpoint, their headers read. What a shard holds shows its place only where it has
padding, so two in the middle can change places unseen; its configuration says which process saved it.
metaseq's scripts leave that stale, but not like this: they copy one file's configuration into all. Where most
files say their own place, or all of them those of each other, one that says another's is another. Source:
metaseq ``distributed/utils.py`` (``checkpoint_suffix``), ``modules/megatron/mpu/initialize.py`` (ranks).
"""

from __future__ import annotations

from collections.abc import Iterable

from remap.errors import Damaged
from remap.formats.metaseq.files.config import Config
from remap.formats.metaseq.files.names import Family
from remap.formats.metaseq.files.shards import Shard

Place = tuple[int, int]
"""(part, shard)"""


def check_places(family: Family, shards: Iterable[Shard], parts: int) -> None:
    """Raise Damaged naming the files that say that they are others of the checkpoint of ``parts`` parts."""
    if family.name.expert is not None or not family.name.numbered:
        return
    configs = {s.path: s.config for s in shards}
    said: dict[Place, Place] = {}
    for place, path in family.files.items():
        found = _said(configs[path], place, parts, len(family.files))
        if found is not None:
            said[place] = found
    odd = {place: other for place, other in said.items() if place != other}
    changed = len(said) == len(family.files) and set(said) == set(said.values())
    if odd and (changed or len(odd) * 2 < len(said)):
        raise Damaged(
            "files are not where they say that they belong",
            where=family.first.parent,
            problems=[
                f"{family.files[p].name}: it is {family.name.numbers(*other)}" for p, other in odd.items()
            ],
            remedy="give them their own names, or fetch them again: who saved them their configuration says",
        )


def _said(config: Config, held: Place, parts: int, world: int) -> Place | None:
    """The place that a file says it has; None where it says nothing, or what does not go together."""
    if config.rank is None or config.world != world:
        return None if config.part is None or config.part >= parts else (config.part, held[1])
    shard, part = divmod(config.rank, parts)
    if config.part not in (None, part) or not 0 <= config.rank < world:
        return None
    return part, shard
