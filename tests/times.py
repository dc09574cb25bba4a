"""How long the tests took: seconds of each tier and the slowest tests, printed at the end of a run
of several tiers.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

SLOWEST = 25  # tests that are named
SHORT_S = 1.0  # tests below are not named


def by_tier(durations: Iterable[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """Return the number of tests and their seconds, by tier. `durations`: node id and seconds of
    each phase.
    """
    seconds: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for nodeid, duration in durations:
        tier = nodeid.removeprefix("tests/").split("/")[0]
        seconds[tier] += duration
        tests.setdefault(tier, set()).add(nodeid)
    return {tier: (len(tests[tier]), seconds[tier]) for tier, _ in seconds.most_common()}


def slowest(
    durations: Iterable[tuple[str, float]], count: int = SLOWEST
) -> list[tuple[str, float]]:
    """Return the tests that took longest, set-up and tear-down included, the longest first."""
    seconds: Counter[str] = Counter()
    for nodeid, duration in durations:
        seconds[nodeid] += duration
    return [(nodeid, s) for nodeid, s in seconds.most_common(count) if s >= SHORT_S]


def summary(terminalreporter: Any) -> None:
    """Print both. Nothing of a run of one tier that takes seconds: there pytest's own lines are
    enough.
    """
    durations = [
        (report.nodeid, report.duration)
        for reports in terminalreporter.stats.values()
        for report in reports
        if hasattr(report, "duration") and hasattr(report, "nodeid")
    ]
    tiers = by_tier(durations)
    if sum(seconds for _, seconds in tiers.values()) < 60:
        return
    terminalreporter.section("seconds by tier, and the slowest tests (several run at once)")
    for tier, (tests, seconds) in tiers.items():
        terminalreporter.write_line(f"{seconds:8.0f} s  {tier} ({tests} tests)")
    for nodeid, seconds in slowest(durations):
        terminalreporter.write_line(f"{seconds:8.1f} s  {nodeid}")
