"""What README and docs tell people to type exists: commands, options, packs; so do the pages they name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from remap.cli.main import cli
from remap.packs import available

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^\s{4}\$? ?|`|^)(remap [a-z][^`#\n]*)", re.MULTILINE)

LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")
NAMED = re.compile(r"`((?:docs|notebooks|rules)/[\w./-]+\.\w+)`")


def told(page: Path) -> list[str]:
    """The command lines of a page; placeholders in capitals and ellipses are part of them."""
    return [line.strip() for line in COMMAND.findall(page.read_text()) if "|" not in line]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    assert command is not None, words[0]
    if isinstance(command, click.Group) and len(words) > 1 and words[1].isalpha() and words[1].islower():
        inner = command.get_command(click.Context(command), words[1])
        assert inner is not None, words[1]
        return inner, words[2:]
    return command, words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_options_exist(page):
    for line in told(page):
        command, rest = resolve([w.rstrip(",.;:") for w in shlex.split(line, posix=False)[1:]])
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "--version"}
        for word in rest:
            if re.fullmatch(r"--?[a-z][a-z-]*", word):
                assert word in known, f"{line}: {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_packs_that_are_named_exist(page):
    there = set(available())
    families = {name.partition("/")[0] for name in there}
    for name in re.findall(r"-r ([a-z0-9_]+/[a-z0-9_-]+)\b(?!\.yaml)", page.read_text()):
        if name.partition("/")[0] in families:
            assert name in there, name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_that_are_named_exist(page):
    text = page.read_text()
    for name, part in LINK.findall(text):
        there = (page.parent / name) if name else page
        assert there.exists(), name
        if part:
            assert part in anchors(there), f"{name}#{part}"
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_index():
    text = (ROOT / "docs" / "README.md").read_text()
    assert [p.name for p in PAGES[1:] if p.name != "README.md" and f"]({p.name})" not in text] == []


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links call them on GitHub."""
    heads = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}


def test_the_readme_names_every_command():
    text = (ROOT / "README.md").read_text()
    assert [c for c in cli.list_commands(click.Context(cli)) if f"`remap {c} " not in text] == []
