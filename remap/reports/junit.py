"""The report as JUnit XML: a test suite a category, a test case for findings that fail, warn or were waived.

Layers that are alike are one test case. What is loaded is one passing case with its count, so that a report
of nothing but failures is not the picture. Source: the schema of the Jenkins xUnit plugin (junit-10.xsd).
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from remap.audits.report import Report
from remap.reports.parts.groups import Group, groups, suppressed
from remap.reports.parts.xml_text import clean
from remap.reports.text import coverage, verdict


def render(report: Report) -> str:
    """The document as text."""
    every = groups(report)
    root = Element("testsuites", name="remap audit")
    tests = failures = 0
    for group in every:
        suite = _suite(root, group)
        tests += int(suite.get("tests", "0"))
        failures += int(suite.get("failures", "0"))
    root.set("tests", str(tests))
    root.set("failures", str(failures))
    root.set("errors", "0")
    summary = SubElement(root, "testsuite", name="coverage", tests="1", failures="0", errors="0")
    case = SubElement(summary, "testcase", classname="remap.coverage", name=clean(verdict(report)))
    SubElement(case, "system-out").text = clean(
        f"{report.source} against {report.target}: {coverage(report.coverage)}"
    )
    root.set("tests", str(tests + 1))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: Element, group: Group) -> Element:
    told = group.only(suppressed) if group.level == "allow" else group
    suite = SubElement(root, "testsuite", name=f"{group.code} {group.category} ({group.level})")
    for line, first in told.alike():
        key, spec, detail = line.cells
        case = SubElement(suite, "testcase", classname=f"remap.{group.category}", name=clean(key))
        many = f"{line.count} tensors" if line.count > 1 else ""
        because = "" if suppressed(first) else first.because
        text = clean("; ".join(filter(None, (many, spec, detail, because))))
        if group.level == "fail":
            SubElement(case, "failure", message=text, type=group.code).text = text
        elif group.level == "allow":
            SubElement(case, "skipped", message=text)
        else:
            SubElement(case, "system-out").text = f"warning: {text}"
    if not told.lines:
        SubElement(
            suite, "testcase", classname=f"remap.{group.category}", name=f"{len(group.judged)} tensors"
        )
    count = len(told.lines)
    suite.set("tests", str(count or 1))
    suite.set("failures", str(count if group.level == "fail" else 0))
    suite.set("errors", "0")
    suite.set("skipped", str(count if group.level == "allow" else 0))
    return suite
