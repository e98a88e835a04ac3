"""The HTML report: one file that fetches nothing, whose tree has every tensor, whatever it is called.

Where a Chromium is installed, it draws the page and the test reads what it drew; where none is, the test
reads the data that the page would draw.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from audits.tables import run
from reports.test_audit_reports import EVIL, POLICY, SOURCE, TARGET

from remap.audits.report import Report
from remap.reports.registry import render

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """Tags with their attributes, ids, and the text of the element that has the id ``data``."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)

    @property
    def tree(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])


@pytest.fixture(scope="module")
def text() -> str:
    return render(run(SOURCE, TARGET, POLICY), "html")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def leaves(
    node: dict[str, Any], path: str = "", numbers: tuple[int, ...] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every tensor, runs unfolded and texts written out, as the page's script does it."""
    if "f" in node:
        own = dict(node)
        if isinstance(node.get("s"), list):
            own["s"] = [written(key, numbers) for key in node["s"]]
        if "d" in node:
            own["d"] = written(node["d"], numbers)
        yield path, own
    for child in node.get("c", ()):
        first, last = child["n"] if isinstance(child["n"], list) else (None, None)
        names = [child["n"]] if first is None else [str(n) for n in range(first, last + 1)]
        for name in names:
            inner = numbers if first is None else (*numbers, int(name))
            yield from leaves(child, f"{path}.{name}" if path else name, inner)


def written(text: str | list[Any], numbers: tuple[int, ...]) -> str:
    if isinstance(text, str):
        return text
    return "".join(p if isinstance(p, str) else str(numbers[p[0]] + p[1]) for p in text)


def test_nothing_is_fetched(page: Page) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert "href" not in attributes
    policies = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


def test_a_key_stays_text(page: Page, text: str) -> None:
    assert [a for t, a in page.tags if "onerror" in a] == []
    assert len(page.scripts) == 2, "a key that ends the script would make more of them"
    assert "<img" not in text


def test_the_tree_has_every_key_of_both_sides_with_its_category(page: Page) -> None:
    found = dict(leaves(page.tree))
    assert found.keys() == {*SOURCE, *TARGET}
    assert {k: v["f"] for k, v in found.items()} == {
        "l.0.w": "matched",
        "l.1.w": "matched",
        "up.weight": "shape-mismatch",
        "head.weight": "missing-parameter",
        "new.weight": "missing-parameter",
        EVIL: "unexpected-parameter",
        "l.0.rotary_emb.inv_freq": "unexpected-buffer",
    }
    assert "transposed" in found["up.weight"]["d"]
    assert found["up.weight"]["t"] == "f32[2,4], target f32[4,2]"
    assert found["head.weight"]["v"] == "allow", "it is waived"


def test_modules_count_what_is_loaded(page: Page) -> None:
    modules = {c["n"]: c for c in page.tree["c"]}
    assert (modules["l"]["l"], modules["l"]["k"]) == (2, 2)
    assert (modules["l"]["m"], modules["l"]["e"]) == (32, 32)
    assert (modules["up"].get("l"), modules["up"]["k"], modules["up"]["w"]) == (0, 1, "fail")
    assert page.tree["x"] == 2


def test_the_picture_is_as_wide_as_the_elements(text: str) -> None:
    page = Page(text)
    gaps = [a for t, a in page.tags if t == "rect" and a["class"] == "gap" and a["y"] == "0"]
    sizes = {"l": 32, "up": 8, "head": 9, "new": 5}
    assert len(gaps) == len(sizes)
    for rect, size in zip(gaps, sizes.values(), strict=True):
        assert float(rect["width"] or 0) == pytest.approx(1000 * size / 54 - 2, abs=0.1)


def test_the_same_tensor_under_another_name_shows_its_source() -> None:
    rules = '- {id: moved, from: "old.{rest:path}", to: "new.{rest}"}'
    page = Page(render(run({"old.w": [2]}, {"new.w": [2]}, rules=rules), "html"))
    ((key, leaf),) = leaves(page.tree)
    assert (key, leaf["f"], leaf["s"]) == ("new.w", "renamed", ["old.w"])


LAYERS = {
    f"layers.{i}.{part}": [4, 2] for i in range(24) for part in ("mlp.up.weight", "mlp.experts.0.w", "norm")
}
"""A model of layers that are alike, each with a number inside that is sometimes the layer's."""
MOVED = '- {id: moved, from: "layers.{i:int}.{rest:path}", to: "{i+2}.{rest}"}'


def moved() -> Report:
    """Layers that a rule moves by two; one of them has another shape in the target, one is not there."""
    wanted = {f"{int(k.split('.')[1]) + 2}.{k.split('.', 2)[2]}": s for k, s in LAYERS.items()}
    source = {k: s for k, s in LAYERS.items() if k != "layers.20.norm"}
    return run(source, {**wanted, "9.norm": [3], "lm.weight": [1]}, rules=MOVED)


def test_layers_that_are_alike_are_in_the_page_once() -> None:
    report = moved()
    page = Page(render(report, "html"))
    found = dict(leaves(page.tree))
    assert len(found) == len(LAYERS) + 1
    for f in report.findings:
        if f.category != "unverified-layout":
            assert found[f.key]["f"] == f.category
            assert found[f.key].get("s", []) == list(f.source), "sources are those of each layer"
            assert found[f.key].get("d", "") == f.detail
    assert [c["n"] for c in page.tree["c"]] == [[2, 8], [9, 9], [10, 21], [22, 22], [23, 25], "lm"]
    assert len(page.scripts[0]) < 6000


def test_a_page_of_tens_of_thousands_of_tensors_is_small() -> None:
    pairs = [(i, e) for i in range(60) for e in range(128)]
    keys = {f"layers.{i}.experts.{e}.{p}.weight": [4, 2] for i, e in pairs for p in "ab"}
    text = render(run({f"model.{k}": s for k, s in keys.items()}, keys), "html")
    assert len(text) < 100_000, "15,360 tensors on each side"


def draw(text: str, folder: Path, script: str = "") -> list[str]:
    """The rows of the tree that a Chromium draws, after ``script``; how many tensors it says are shown,
    last."""
    assert CHROMIUM is not None
    file = folder / "report.html"
    file.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", profile, "--dump-dom", file.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "<img" not in drawn.partition('<script type="application/json"')[0], (
        "a hostile key is shown as text"
    )
    rows = [row.partition("</div>")[0] for row in drawn.split('role="treeitem"')[1:]]
    return [*rows, drawn.partition('id="shown">')[2].partition("<")[0]]


def test_what_is_wrong_is_open_at_first(text: str, page: Page, tmp_path: Path) -> None:
    if CHROMIUM is None:
        assert {p for p, leaf in leaves(page.tree) if leaf["v"] == "fail"} >= {"up.weight", "new.weight"}
        return
    *rows, shown = draw(text, tmp_path)
    assert shown == "7 tensors"
    assert any("shape-mismatch" in r and "transposed" in r for r in rows)
    assert any('aria-expanded="true"' in r and "<b>up</b>" in r for r in rows)
    assert any("&lt;/script&gt;" in r for r in rows)


def test_a_run_of_layers_is_unfolded_by_the_page(tmp_path: Path) -> None:
    text = render(moved(), "html")
    if CHROMIUM is None:
        assert '"n":[2,8]' in Page(text).scripts[0]
        return
    script = 'words.value = "13.mlp"; words.dispatchEvent(new Event("input"))'
    *rows, shown = draw(text, tmp_path, script)
    assert shown == "4 tensors", "of 13, and of 15, whose source is layers.13"
    assert any("layers.11.mlp.up.weight" in r and "up" in r for r in rows)
    script = 'words.value = "layers.11."; words.dispatchEvent(new Event("input"))'
    *_, shown = draw(text, tmp_path, script)
    assert shown == "3 tensors", "the source's names are found, too"


@pytest.mark.parametrize(
    ("script", "shown", "keys"),
    [
        ('words.value = "L.1"; words.dispatchEvent(new Event("input"))', "1 tensor", {"l.1.w"}),
        (
            'category.value = "missing-parameter"; category.dispatchEvent(new Event("change"))',
            "2 tensors",
            {"head.weight", "new.weight"},
        ),
        (
            'document.getElementById("wrong").click()',
            "5 tensors",
            {"up.weight", "head.weight", "new.weight", EVIL, "l.0.rotary_emb.inv_freq"},
        ),
    ],
)
def test_the_tree_is_filtered(
    text: str, page: Page, tmp_path: Path, script: str, shown: str, keys: set[str]
) -> None:
    if CHROMIUM is None:
        assert keys <= dict(leaves(page.tree)).keys()
        return
    *rows, said = draw(text, tmp_path, script)
    assert said == shown
    assert sum('class="said"' in r for r in rows) == len(keys)


def test_a_key_of_a_thousand_dots_and_one_that_begins_with_one() -> None:
    deep = ".".join(["m"] * 3000)
    report = run({deep: [1], ".a": [1], "a": [1], "b.": [1], "b": [1]}, {"a": [1]})
    for form in ("html", "text", "sarif", "junit", "json"):
        assert render(report, form)
    tree = Page(render(report, "html")).tree
    assert (tree["k"], tree["x"]) == (1, 4)
