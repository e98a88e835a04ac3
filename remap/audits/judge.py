"""Findings and a policy -> the report: levels, waivers, baseline, expected counts, coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from remap.audits import registry
from remap.audits.baseline import Baseline, is_pardonable
from remap.audits.category import Category
from remap.audits.comparison import Comparison
from remap.audits.finding import Finding, Judged, Level
from remap.audits.policy import Policy, Waiver
from remap.audits.report import LOADED, Report, Share
from remap.audits.target import Target


def judge(
    table: Comparison,
    findings: Sequence[Finding],
    policy: Policy,
    baseline: Baseline | None = None,
    today: date | None = None,
) -> Report:
    """The report. ``today`` is what waivers are held against."""
    today = today or date.today()
    bench = _Bench(policy, baseline, today)
    judged = [bench.judge(f) for f in findings]
    share = coverage(table, findings)
    about = [*_expectations(policy, findings), *_thresholds(policy, share), *bench.about_waivers()]
    judged += [bench.judge(f) for f in about]
    order = {k: n for n, k in enumerate(dict.fromkeys([*table.target.specs, *table.offered]))}
    judged.sort(key=lambda j: order.get(j.finding.key, -1))
    return Report(
        source=str(table.source.root),
        target=table.target.name,
        policy=policy,
        judged=tuple(judged),
        coverage=share,
        drops=tuple((d.key, d.because) for d in table.plan.drops) if table.plan else (),
        gone=bench.gone(findings),
        notes=(*table.source.warnings, *_warnings(table.target)),
    )


def _warnings(target: Target) -> Iterator[str]:
    for warning in target.catalog.warnings if target.catalog else ():
        yield f"{target.name}: {warning}"


def coverage(table: Comparison, findings: Iterable[Finding]) -> Share:
    """How much of the target the source gives."""
    specs = table.target.specs
    loaded = [f.key for f in findings if f.category in LOADED]
    if table.unshaped:
        return Share(len(loaded), len(specs), 0, 0)
    elements = sum(specs[k].numel for k in loaded)
    return Share(len(loaded), len(specs), elements, sum(s.numel for s in specs.values()))


class _Bench:
    """Gives each finding its level, and keeps count of the waivers that were used."""

    def __init__(self, policy: Policy, baseline: Baseline | None, today: date) -> None:
        self.policy = policy
        self.known = baseline.fingerprints if baseline else frozenset()
        self.today = today
        self.used: Counter[int] = Counter()
        self.plain: dict[str, str] = {}
        self.levels: Mapping[str, Level] = {c.name: c.level for c in registry.categories()} | dict(
            policy.levels
        )

    def judge(self, finding: Finding) -> Judged:
        level: Level = self.levels.get(finding.category, "fail")
        because = self.plain.setdefault(finding.category, f"{finding.category}: {level}")
        if level != "allow" and is_pardonable(finding.category):
            waiver = self._waiver(finding)
            if waiver is not None:
                return Judged(finding, "allow", f"waived: {waiver.reason}")
            if finding.fingerprint in self.known:
                return Judged(finding, "allow", "known: it is in the baseline")
        return Judged(finding, level, because)

    def _waiver(self, finding: Finding) -> Waiver | None:
        for n, waiver in enumerate(self.policy.waivers):
            if waiver.covers(finding.category, finding.key):
                self.used[n] += 1
                if waiver.until is None or self.today <= waiver.until:
                    return waiver
        return None

    def about_waivers(self) -> Iterator[Finding]:
        """What is to be said of the waivers themselves."""
        unused, expired = registry.get("unused-waiver"), registry.get("expired-waiver")
        for n, waiver in enumerate(self.policy.waivers):
            text, used = waiver.pattern.text, self.used[n]
            if not used:
                yield _whole(unused, f"{waiver.place}: {text} matches no finding")
            elif waiver.until is not None and self.today > waiver.until:
                yield _whole(expired, f"{waiver.place}: {text} held until {waiver.until}: {waiver.reason}")
            elif waiver.expect is not None and used not in waiver.expect:
                yield _whole(
                    registry.get("expectation"),
                    f"{waiver.place}: {text} matches {used} findings; {waiver.expect} are expected",
                )

    def gone(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        return tuple(sorted(self.known - {f.fingerprint for f in findings})) if self.known else ()


def _whole(category: Category, detail: str) -> Finding:
    return Finding(category.code, category.name, "", detail)


def _expectations(policy: Policy, findings: Iterable[Finding]) -> Iterator[Finding]:
    if not policy.expect:
        return
    counts = Counter(f.category for f in findings)
    for name, count in policy.expect.items():
        if counts[name] not in count:
            yield _whole(registry.get("expectation"), f"{name}: {counts[name]} found; {count} expected")


def _thresholds(policy: Policy, share: Share) -> Iterator[Finding]:
    for what, got, least in (
        ("keys", share.of_keys, policy.keys),
        ("elements", share.of_elements, policy.elements),
    ):
        if got < least:
            told = f"{_percent(got)} of the {what} are loaded; {_percent(least)} must be"
            yield _whole(registry.get("coverage"), told)


def _percent(share: float) -> str:
    """As many digits as it takes to tell a share from one that is a little more."""
    return f"{share * 100:.6f}".rstrip("0").rstrip(".") + " %"
