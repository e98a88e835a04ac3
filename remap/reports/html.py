"""The report as one HTML file that needs nothing else: no script, font or image is fetched.

The tree of the target's modules is in the page as JSON, layers that are alike once; the page's own script
draws a node when it is opened, so that a model of tens of thousands of tensors opens at once. Without scripts
the tables of findings are still there. jinja2 puts it together (``pip install 'remap[html]'``).
"""

from __future__ import annotations

from importlib.resources import files

import msgspec

from remap.audits import registry
from remap.audits.report import Report
from remap.errors import UsageError
from remap.reports.parts.groups import groups, told
from remap.reports.parts.packed import packed
from remap.reports.parts.picture import boxes as picture
from remap.reports.parts.picture import height
from remap.reports.parts.tree import REMARKS, build
from remap.reports.text import coverage, verdict
from remap.version import __version__

LINES = 200
"""Lines of one category in the tables; the tree has every key."""


def render(report: Report) -> str:
    """The page. Raises UsageError where jinja2 is not installed."""
    try:
        import jinja2
    except ImportError:
        raise UsageError(
            "the HTML report needs jinja2", remedy="pip install 'remap[html]', or --format markdown"
        ) from None
    folder = files("remap.reports").joinpath("templates")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(folder.joinpath("audit.html").read_text(encoding="utf-8"))
    root = build(report)
    boxes = picture(root)
    categories = {c.name: c.about for c in registry.categories()}
    return template.render(
        report=report,
        verdict=verdict(report),
        coverage=coverage(report.coverage),
        groups=groups(report),
        told=list(told(report)),
        lines=LINES,
        about=categories,
        remarks=REMARKS,
        style=folder.joinpath("audit.css").read_text(encoding="utf-8"),
        script=folder.joinpath("audit.js").read_text(encoding="utf-8"),
        data=embedded(packed(root)),
        boxes=boxes,
        height=height(boxes),
        version=__version__,
    )


def embedded(value: object) -> str:
    """JSON that may stand in a ``<script>``: no ``</``, no ``<!--``, whatever a key is called."""
    text = msgspec.json.encode(value).decode()
    return (
        text.replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("\u2028", "\\u2028")
    )
