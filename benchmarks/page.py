"""The page of the benchmarks: results -> ``docs/benchmarks.md``, with a plot for each table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import table

INTRO = """# Benchmarks

`make bench` makes this page: every command is run several times, in turn with those that it is compared
with; seconds and memory are medians, a ratio is the median of the rounds' ratios. `cpu` is processor time,
which a busy machine changes less. `benchmarks/` has the commands, `docs/benchmarks.json` every single run.

Unlike `cp`, remap takes a digest of every tensor, re-opens what it wrote and checks it; all of them leave
it to the system to write the data out, but for the rows that say `synced`.
"""
BAR, WIDTH, LEFT = 26, 760, 240
COLOURS = {"remap": "#2a7d4f", "base": "#8a8f98", "other": "#b9bec7"}


def write_page(results: Mapping[str, Any], folder: Path) -> None:
    """``benchmarks.md`` and the plots in ``benchmarks/``, in ``folder``."""
    plots = folder / "benchmarks"
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    parts = [INTRO, missed(results["tables"])]
    for number, found in enumerate(results["tables"], 1):
        parts.append(f"## {found['title']}\n")
        if len(found["rows"]) > 1:
            name = f"{number:02}-{found['script']}.svg"
            (plots / name).write_text(plot(found))
            parts.append(f"![{found['title']}: seconds](benchmarks/{name})\n")
        parts.append(f"{table(found)}\n")
    parts.append("## Machine\n\n| | |\n| --- | --- |")
    parts += [f"| {name} | {value} |" for name, value in results["machine"].items()]
    (folder / "benchmarks.md").write_text("\n".join(parts) + "\n")


def missed(tables: list[dict[str, Any]]) -> str:
    """The limits that were set, and which of them were not reached."""
    lines = ["## Limits\n", "| | limit | measured | |", "| --- | ---: | ---: | --- |"]
    units = {"ratio": " x", "seconds": " s", "megabytes": " MB", "cpu": " s"}
    for found in tables:
        for row in found["rows"]:
            for what, limit in row["limit"].items():
                verdict = "reached" if row[what] <= limit else "**missed**"
                name = f"{found['title']}: {row['name']}"
                base = f" {found['base']}" if what == "ratio" else ""
                unit = units[what]
                lines.append(f"| {name} | {limit:.4g}{unit}{base} | {row[what]:.3g}{unit} | {verdict} |")
    return "\n".join(lines) + "\n"


def plot(found: Mapping[str, Any]) -> str:
    """Bars of seconds, as SVG."""
    rows = found["rows"]
    most = max(row["seconds"] for row in rows)
    bars = []
    for i, row in enumerate(rows):
        kind = "base" if row["name"] == found["base"] else "remap" if "remap" in row["name"] else "other"
        width = max(1.0, (WIDTH - LEFT - 80) * row["seconds"] / most)
        y = i * BAR
        bars.append(
            f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{_text(row["name"])}</text>'
            f'<rect x="{LEFT}" y="{y + 4}" width="{width:.1f}" height="{BAR - 8}" fill="{COLOURS[kind]}"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 17}">{row["seconds"]:.2f} s</text>'
        )
    height = BAR * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="13" fill="#333">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(bars) + "\n</svg>\n"
    )


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
