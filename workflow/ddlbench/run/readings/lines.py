"""lines: steps from lines that the program prints, by patterns with named groups.

Times are those at which the supervisor read the lines. A rate that the program prints is compared with them, and never
believed where it says something else.
"""

import math
import re
import statistics

from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Output, Reading, StepEnd, UnreadError, reading

UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "%": 0.01}
NUMBER = re.compile(r"([-+]?[\d.,_' ]*\d\.?(?:[eE][-+]?\d+)?|[-+]?(?:[nN]a[nN]|inf))\s*([kKMGB%]?)(?:[^\d.,].*)?")
THOUSANDS = re.compile(r"(?<=\d)[,_' ](?=\d{3})")
FAR = 0.2  # a printed rate that differs by more from the clock's is not believed


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """The program's own patterns."""
    return [re.compile(pattern) for pattern in spec.program.patterns] if spec.program else []


def number(text: str | None) -> float | None:
    """A number as people print it: with thousands separators, and a unit such as k, M or %. None for anything else."""
    found = NUMBER.fullmatch(text.strip()) if text else None
    if not found:
        return None
    try:
        return float(THOUSANDS.sub("", found[1])) * UNITS[found[2]]
    except (ValueError, KeyError):
        return None


def read(source: Output) -> Reading:
    """The steps. Raises UnreadError, which names a pattern that did not match and a line that it did not match."""
    points: list[StepEnd] = []
    evaluations: list[Evaluation] = []
    rates: list[float] = []
    patterns = wanted(source.spec)
    of_steps = [pattern for pattern in patterns if {"step", "seen"} & {*pattern.groupindex}]
    ranks = {line.rank for line in source.lines if any(pattern.search(line.text) for pattern in of_steps)}
    for line in source.lines:
        for match in filter(None, (pattern.search(line.text) for pattern in patterns)):
            values = {name: number(text) for name, text in match.groupdict().items()}
            if (workers := values.get("workers")) not in (None, source.spec.workers):
                alone = f"rank {line.rank} printed {line.text.strip()[:200]!r}: {workers:g} workers, and not"
                raise UnreadError(f"{alone} {source.spec.workers}; it must join the ranks of RANK and WORLD_SIZE")
            if ranks and line.rank != min(ranks):  # all ranks say the same, at moments of their own
                continue
            if values.get("seen") is not None:
                values["step"] = values["seen"] * source.spec.workers / source.spec.global_batch  # type: ignore[operator]
            if (step := values.get("step")) is not None and math.isfinite(step):
                rest = {name: values.get(name) for name in ("loss", "lr", "samples")}
                points.append(StepEnd(line.time_s, round(step), **rest))
            elif points and values.get("loss") is not None:  # of a line of its own
                points[-1] = points[-1]._replace(loss=values["loss"])
            if values.get("samples_per_s") is not None:
                rates.append(values["samples_per_s"])  # type: ignore[arg-type]
            if values.get("top1") is not None or values.get("eval_loss") is not None:
                evaluations.append(Evaluation(line.time_s, values.get("top1"), values.get("eval_loss")))
    if any(e.top1 is not None and e.top1 > 1 for e in evaluations):  # in percent, without its sign
        evaluations = [e._replace(top1=None if e.top1 is None else e.top1 / 100) for e in evaluations]
    if not points:
        raise UnreadError(_unmatched(source, patterns))
    run = reading(source, points, evaluations)
    if rates:
        _compare(run, statistics.median(rates))
    return run


def _compare(run: Reading, printed: float) -> None:
    """Keep what a printed rate says, and whether the clock says the same."""
    took = max(row.end_s for row in run.rows)
    clock = sum(row.images for row in run.rows) / took if took else math.nan
    believed = abs(printed - clock) <= FAR * clock
    run.remarks["printed_rate"] = {"printed_per_s": printed, "by_clock_per_s": clock, "agrees": believed}
    if not believed:
        text = f"prints a rate of {printed:g} per s, its clock says {clock:g}: that of the clock counts"
        print(f"{text}; it may be one rank's, or of parts of samples: `sample` is what a batch holds", flush=True)


def _unmatched(source: Output, patterns: list[re.Pattern[str]]) -> str:
    steps = next((p.pattern for p in patterns if {"step", "seen"} & {*p.groupindex}), "")
    last = next((text for text in reversed(source.last) if text.strip()), None)
    if last is None:
        return f"it printed nothing that pattern {steps!r} (key lines) could match"
    return f"pattern {steps!r} (key lines) did not match its last line: {last[:200]!r}"
