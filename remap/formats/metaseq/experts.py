"""The experts of a mixture: a file a rank, beside the shards of the weights that all ranks share.

    checkpoint_1_100-shard0.pt, -shard1.pt, ...          shared by all ranks, flat and cut as ever
    checkpoint_1_100-rank-0-shard0.pt, -rank-1-..., ...   the experts of rank 0, of rank 1, ...: whole

Names in a rank's file count the experts of that rank (``experts.0`` on every one), and no file says which of
the model's experts these are. So metaseq merges the shared weights, and each rank's file by itself, and so
does remap. Where no two files have a name in common, as in files whose experts were numbered through, they
are one model, and are joined. Source: metaseq ``distributed/stitch_fsdp_ckpt.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from remap.formats.absent import absent
from remap.formats.metaseq.files.names import parse
from remap.types import Entry


@dataclass(frozen=True)
class Experts:
    """The experts beside a checkpoint.

    files    in the order of ranks
    entries  their tensors, where these can be joined with the rest
    warning  why they can't, None where they can
    """

    files: tuple[Path, ...]
    entries: Mapping[str, Entry]
    warning: str | None


def rank_files(path: Path) -> list[Path]:
    """The files of experts that lie beside a file of shared weights, by rank; [] beside one of experts."""
    own = parse(path.name)
    if own is None or own.expert is not None or own.part is not None:
        return []
    stem = own.stem.removesuffix("-shared")
    named = [(p, n) for p in path.parent.iterdir() if (n := parse(p.name)) and n.expert is not None]
    return [p for p, n in sorted(named, key=lambda f: f[1].expert or 0) if n.stem == stem]


def join(shared: Iterable[str], files: Mapping[Path, Mapping[str, Entry]]) -> Experts:
    """The experts in ``files``, beside tensors that are called ``shared``."""
    ranks = {n.expert for p in files if (n := parse(p.name)) and n.expert is not None}
    number, missing = absent(ranks, max(ranks))
    if number:
        lacking = ", ".join(map(str, missing)) + (", ..." if number > len(missing) else "")
        what = f"the experts of ranks {lacking} are missing; those that lie beside it are not in it"
        return Experts(tuple(files), {}, what)
    counts = Counter(key for entries in files.values() for key in entries)
    counts.update(list(shared))
    twice = [key for key, number in counts.items() if number > 1]
    if not twice:
        return Experts(tuple(files), {k: e for entries in files.values() for k, e in entries.items()}, None)
    first, *_, last = (p.name for p in (*files, *files))
    return Experts(
        tuple(files),
        {},
        f"the experts of {len(files)} ranks lie beside it, and are not in it: {twice[0]} is in more than one "
        "file, and which of the model's experts each one is no file says. Each opens by itself, "
        f"{first} to {last}; a pack gives them other names",
    )
