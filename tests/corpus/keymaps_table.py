"""Every key map of the corpus against the pack of its family -> a table, family by family.

    python tests/corpus/keymaps_table.py DATA

A map is what transformers itself makes of a model's old names. Maps that change no name need no pack.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remap.authoring.keymaps import Judged, judge
from remap.packs import available, load
from remap.types import Catalog, Entry, TensorSpec

UNKNOWN = TensorSpec.parse("f16[4,4]")
"""The spec of a key whose map comes without one (an index file)."""


@dataclass(frozen=True)
class Map:
    """One key map: {old name: new name}."""

    file: Path

    @property
    def name(self) -> str:
        return self.file.name.removesuffix(".json.gz")

    @property
    def family(self) -> str:
        return self.name.split("__")[0]

    @property
    def pack(self) -> str:
        return f"transformers/{self.family}-4-to-5"

    @property
    def wanted(self) -> dict[str, str]:
        """Old name -> new name."""
        found: dict[str, str] = json.loads(gzip.decompress(self.file.read_bytes()))
        return found

    def judged(self) -> Judged | None:
        """How the family's pack does; None where no name changes, and there is no pack."""
        wanted = self.wanted
        if self.pack not in available():
            problems = () if all(a == b for a, b in wanted.items()) else ("no pack",)
            return Judged(self.name, "", len(wanted), problems) if problems else None
        return judge(self.name, load(self.pack), self.source(), wanted)

    def source(self) -> Catalog:
        """The old names as a key list; its file is that of their shapes, which an index does not have."""
        family, model, versions = self.name.split("__")
        version = versions.removesuffix("_to_5.24")
        folder = self.file.parent.parent / "keys" / (version if version != "index" else "t4.57.6")
        listed = folder / f"{family}__{model}.json.gz"
        known = json.loads(gzip.decompress(listed.read_bytes())) if listed.exists() else {}
        specs = {
            key: TensorSpec.parse(f"{kind}[{','.join(map(str, shape))}]")
            for key, (shape, kind) in known.items()
        }
        return Catalog("keylist", listed, (), {k: Entry(k, specs.get(k, UNKNOWN)) for k in self.wanted})


def maps(data: Path) -> list[Map]:
    """The maps of a corpus. ``t4.28.1`` of the sample is empty: that version had no names to change."""
    return [Map(f) for f in sorted(data.glob("keymaps/*.json.gz")) if f.stat().st_size]


def table(data: Path) -> Iterator[str]:
    """The table, one line at a time."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    problems: list[str] = []
    for one in maps(data):
        found = one.judged()
        if found is None:
            what = "same"
        elif found.problems == ("no pack",):
            what = "no pack"
        else:
            what = "wrong" if found.problems else "right"
            problems += [f"{found.name}: {p}" for p in found.problems[:3]]
        counts[one.family][what] += 1
    kinds = ("right", "wrong", "no pack", "same")
    yield "| family | right | wrong | no pack | no name changes |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for family, found in counts.items():
        yield f"| {family} | {' | '.join(str(found[k]) for k in kinds)} |"
    total = sum(counts.values(), Counter[str]())
    yield f"| all | {' | '.join(str(total[k]) for k in kinds)} |"
    yield from problems


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
