"""lines: steps from lines that the program prints, by patterns with named groups.

Times are those at which the supervisor read the lines. What else stands in the same lines, such as
other counters, a rate or the time of a step, is compared with what was read, and contradicts or
confirms it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddlbench.core.program import COUNTS, Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text, trained_together
from ddlbench.run.readings import (
    Line,
    Output,
    Reading,
    UnreadError,
    _evidence,
    _matches,
    _printed,
    _proof,
    _step_numbers,
    as_fractions,
    reading,
)
from ddlbench.run.readings._matches import Match

EVERY_LINE = re.compile("")


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return what every line matches: another pattern may be tried on them later."""
    return [EVERY_LINE]


def patterns_of(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return the program's own patterns."""
    return [re.compile(pattern) for pattern in spec.program.patterns] if spec.program else []


def read(source: Output) -> Reading:
    """Return the steps. Raises UnreadError, which names a pattern that did not match and a line
    that it did not match, or the numbers that contradict each other.
    """
    program, patterns = source.spec.program, patterns_of(source.spec)
    assert program is not None
    found = _matches.found_in(source.lines, patterns)
    _check_workers(found, source.spec)
    of_steps = _matches.of_steps(found, program)
    told = _told(of_steps, source.spec)
    says = (
        source.spec.workers if any(match.value("workers") is not None for match in found) else None
    )
    first = min((match.line.rank for match in of_steps), default=None)
    found = [match for match in found if first is None or match.line.rank == first]
    of_steps, others_s = _matches.of_training(_matches.of_steps(found, program))
    _check_units(of_steps, source.spec, program)
    _evidence.check_validation(source.lines, of_steps)
    points = _step_numbers.points_of(of_steps, found, source.spec, program)
    if not points:
        raise UnreadError(_unmatched(source, patterns, program))
    points = _printed.with_step_times(points, of_steps, source.spec)
    evaluations, percent = _printed.evaluations_of(found)
    counted = {id(match) for match in of_steps}
    paused_s = [m.line.time_s for m in found if _matches.is_of_else(m) and id(m) not in counted]
    run = reading(
        source,
        points,
        as_fractions(evaluations, program.top1_in, percent),
        paused_s=sorted([*paused_s, *others_s]),
        hinted_s=_hints(source.lines, of_steps),
        step_s=_printed.step_time(of_steps, points),
        **_evidence.evidence_of(of_steps, points, source.spec),
        printed_rates=_printed.as_one_rate([match.value("samples_per_s") for match in found]),
        rate_rounding=_printed.rate_rounding(found),
        rate_of=_printed.rate_of(found, program),
        counts_samples=source.spec.workers > 1
        and all(_matches.counter_of(m) in ("seen", "seen_all") for m in of_steps),
    )
    run.told, run.says = told, says
    return run


def _check_workers(found: Sequence[Match], spec: RunSpec) -> None:
    """Raise UnreadError if a rank printed another number of ranks than the run has."""
    for match in found:
        if (workers := match.value("workers")) not in (None, spec.workers):
            alone = (
                f"rank {match.line.rank} printed {match.line.text.strip()[:200]!r}: {workers:g}"
                " workers instead of"
            )
            raise UnreadError(
                f"{alone} {spec.workers}; start its process group from RANK and WORLD_SIZE"
            )


def _told(of_steps: Sequence[Match], spec: RunSpec) -> dict[int, list[trained_together.Told]]:
    """Return the steps that each rank reported."""
    each = _step_numbers.steps_per_number(spec.program) if spec.program else 1.0
    told: dict[int, list[trained_together.Told]] = {}
    for match in of_steps:
        name = _matches.counter_of(match)
        count = match.value(name) if name else float(len(told.get(match.line.rank, [])))
        if name in ("seen", "seen_all") and count is not None:
            count /= _matches.batch_of(name, spec)
        if name == "step" and count is not None:  # within a step ranks need not wait for each other
            count *= each
        step = (match.value("epoch"), count)
        of_rank = told.setdefault(match.line.rank, [])
        of_rank.append(trained_together.Told(step, match.line.time_s, match.found.said.get("loss")))
    return told


def _check_units(of_steps: Sequence[Match], spec: RunSpec, program: Program) -> None:
    """Raise UnreadError where other numbers of the lines show that a group is of another unit."""
    for pattern in dict.fromkeys(match.pattern for match in of_steps):
        matches = [match for match in of_steps if match.pattern == pattern]
        name = _matches.counter_of(matches[0])
        if name is None:
            continue
        of_name = [match for match in matches if match.value(name) is not None]
        values = [match.value(name) or 0.0 for match in of_name]
        said = [match.found.said[name] for match in of_name]
        wrong = None
        if program.steps_per_line or name != "epoch":
            wrong = _proof.wrong_unit(
                name,
                values,
                [match.found.text for match in of_name],
                [match.found.spans[name] for match in of_name],
                spec.global_batch,
                spec.batch_per_worker,
                parts=program.parts_per_step,
                steps_per_epoch=program.steps_per_epoch,
                rounded=any(_matches.is_rounded(match, name) for match in of_name),
            )
        of_one = _step_numbers.steps_of_one(name, values, said[0], spec, program)
        wrong = wrong or _matches.too_coarse(values, said, of_one)
        if wrong:
            raise UnreadError(f"pattern {pattern.pattern!r}: {wrong}")


def _hints(lines: Sequence[Line], of_steps: Sequence[Match]) -> list[float]:
    """Return when the rank that tells the steps printed words of something else than training, in
    lines of their own.
    """
    if not of_steps:
        return []
    rank, counted = of_steps[0].line.rank, {id(match.line) for match in of_steps}
    return sorted(
        line.time_s
        for line in lines
        if line.rank == rank
        and id(line) not in counted
        and _matches.ELSE.search(log_text.plain(line.text))
    )


def _unmatched(source: Output, patterns: list[re.Pattern[str]], program: Program) -> str:
    steps = next((p.pattern for p in patterns if {*COUNTS} & {*p.groupindex}), "")
    last = next((text for text in reversed(source.last) if text.strip()), None)
    if last is None:
        return f"it printed nothing that pattern {steps!r} (key lines) could match"
    return f"pattern {steps!r} (key lines) did not match its last line: {last[:200]!r}"
