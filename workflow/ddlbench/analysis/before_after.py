"""A new software stage beside the old one: is it faster, which part of a step moved, and on which
hosts.

`ddlbench compare` calls this. Both sides are records of the same runs: of two machine files that
differ in their modules, or in two folders. Runs whose ids differ in nothing but their machine's name
are a pair, and verdicts are those of `significance.ratio`. What differs between the sides is listed,
because a verdict is about all of it together: software, hosts, and settings that an id does not name,
such as the precision of a recipe.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from ddlbench.analysis import significance, times
from ddlbench.analysis.record import Record
from ddlbench.analysis.recorded import variables
from ddlbench.core import layout, registry
from ddlbench.core.columns import Column
from ddlbench.core.files import printable
from ddlbench.core.record import MLLOG
from ddlbench.core.spec import RunSpec, relevant_settings
from ddlbench.core.step_rows import COMPUTE
from ddlbench.settings.config import ConfigError

# A user's program ends when it likes: only its samples are alike.
WHOLE = {"epoch_s": "time of an epoch", "sample_s": "time of a sample"}
# What an epoch is made of, in seconds per step, and what is outside of its steps.
PARTS = ("data_wait_s", "compute_s", "communication_transfer_s", "communication_wait_s")
OUTSIDE_STEPS = ("epoch_start_s", "validation_s")
OF_HOST = {"data_wait_s": ["data_wait_s"], "compute_s": COMPUTE}
SOFTWARE = (
    "python",
    "container",
    "kernel",
    "cpu",
    "commit",
)  # facts beside the versions of packages
MOVED = 0.01  # of a step: what a part has to change by, to be named
LONG = 60  # characters of a setting's value, beyond which it is not shown
ALL = "all"
COLUMNS = (
    Column(
        "runs", "str", f"The run without its machine and repeat; `{ALL}` is all of them together."
    ),
    Column("host", "str", f"The computer, if it is on both sides; `{ALL}` is the whole run."),
    Column(
        "quantity",
        "str",
        "`epoch_s`, of a user's program `sample_s`; or a part as docs/columns.md has it. Parts are"
        " seconds per step.",
    ),
    Column("before_s", "float64", "Median before.", "s"),
    Column("after_s", "float64", "Median after.", "s"),
    Column("ratio", "float64", "After over before, the median over pairs."),
    Column("low", "float64", "Lower bound of its 95 % interval; null for one pair."),
    Column("high", "float64", "Upper bound."),
    Column("pairs", "int64", "Pairs of runs."),
    Column(
        "verdict",
        "str",
        "`faster`, `slower`, `cannot tell`: what came after; whole runs at once, parts alone.",
    ),
    Column(
        "more_pairs",
        "Int64",
        "How many more pairs would probably decide; null if that cannot be estimated.",
    ),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run by its record: seconds by quantity, and by host and quantity; the software it was made
    with, the variables that its ranks were given, and its settings.
    """

    cell: str
    repeat: int
    seconds: Mapping[str, float]
    of_host: Mapping[str, Mapping[str, float]]
    software: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    began_s: float | None = None
    folder: Path = Path()
    settings: Mapping[str, str] = field(default_factory=dict)


def run(record: Record) -> Run | None:
    """Read a run from its record; None if it was not timed, did not end well, or its few steps are
    all warm-up.
    """
    if not record.success or not record.timed:
        return None
    values = times.measures(record)
    seconds = {
        name: float(values[name])
        for name in ("epoch_s", *PARTS, *OUTSIDE_STEPS)
        if isinstance(values.get(name), int | float) and float(values[name]) > 0
    }
    if "epoch_s" not in seconds:
        return None
    if record.spec.program:
        seconds["sample_s"] = seconds.pop("epoch_s") / record.images
    steps = times.after_warm_up(record)
    hosts = [str(rank.get("host")) for rank in record.value("ddlbench_ranks", [])]
    of_host: dict[str, dict[str, float]] = {}
    if len(hosts) == record.spec.workers:
        of_host = {host: {} for host in hosts}
        by_host = steps.groupby(steps["rank"].map(dict(enumerate(hosts))))
        measured = {n: parts for n, parts in OF_HOST.items() if isinstance(values.get(n), float)}
        for name, parts in measured.items():
            for host, value in by_host[parts].mean().sum(axis=1).items():
                of_host[str(host)][name] = float(value)
    cell = replace(record.spec, machine="any", repeat=1).id.removeprefix("any-").removesuffix("-r1")
    facts: dict[str, Any] = record.value("ddlbench_facts", {})
    software = {**(facts.get("versions") or {}), **{name: facts.get(name) for name in SOFTWARE}}
    software = {name: printable(value) for name, value in software.items() if value is not None}
    environment = {
        name: printable(value) for name, value in variables(str(facts.get("command") or "")).items()
    }
    began_s = record.last["run_start"].time_s
    return Run(
        cell,
        record.spec.repeat,
        seconds,
        of_host,
        software,
        environment,
        began_s,
        record.folder,
        _settings(record.spec),
    )


def _settings(spec: RunSpec) -> dict[str, str]:
    """Return the settings that a run uses, those of its recipe and program each by itself."""
    settings: dict[str, str] = {}
    for name, value in relevant_settings(json.loads(spec.to_json())).items():
        if isinstance(value, dict):
            settings |= {f"{name}.{key}": json.dumps(one) for key, one in value.items()}
        elif name not in ("machine", "repeat"):
            settings[name] = json.dumps(value)
    return settings


def _logs(name: str, results: Path) -> tuple[list[Path], str]:
    """Return (the logs that one side may have, the machine that they must be of, "" where any will
    do).
    """
    whole, _, machine = name.rpartition("/")
    for named, only in ((name, ""), (whole, machine)):
        for folder in (Path(named), Path(layout.kept(named, results=results))) if named else ():
            if found := sorted(folder.glob(f"*/{MLLOG}")) or sorted(folder.glob(f"runs/*/{MLLOG}")):
                return found, only
    return sorted(results.glob(f"runs/{name}-*/{MLLOG}")), name


def side(name: str, results: Path) -> tuple[list[Run], list[str]]:
    """Return the runs of one side, and lines about records that are refused.

    A side is a folder of runs, a kept state (`ddlbench keep`) or a machine; `<folder or
    state>/<machine>` is one machine's part of it.

    Raises ConfigError if a side has runs of several machines: which of them is meant?
    """
    refused: list[str] = []
    logs, only = _logs(name, results)
    believed = [*registry.member("records", "ours").records(logs, refused)]
    found = sorted(
        {record.spec.machine for record in believed if only in ("", record.spec.machine)}
    )
    if len(found) > 1:
        allowed = " or ".join(f"{name.rstrip('/')}/{machine}" for machine in found)
        raise ConfigError(f"{name}: has runs of machines {', '.join(found)}; allowed: {allowed}")
    runs = [run(record) for record in believed if record.spec.machine in found]
    return [of_record for of_record in runs if of_record], refused


def rows(before: Sequence[Run], after: Sequence[Run]) -> list[Row]:
    """Return COLUMNS: all pairs together, then each run's own, each as a whole, by part, and by
    host and part.
    """
    sides = [{(run.cell, run.repeat): run for run in runs} for runs in (before, after)]
    pairs = [(sides[0][key], sides[1][key]) for key in sorted(set(sides[0]) & set(sides[1]))]
    cells: dict[str, list[tuple[Run, Run]]] = {ALL: pairs} if pairs else {}
    for pair in pairs:
        cells.setdefault(pair[0].cell, []).append(pair)
    if len(cells) == 2:  # one run only: all is the same
        del cells[ALL]
    table: list[tuple[Row, significance.Comparison]] = []
    for cell, some in cells.items():
        for name in (*WHOLE, *PARTS, *OUTSIDE_STEPS):
            table += _row(
                cell, ALL, name, [(a.seconds.get(name), b.seconds.get(name)) for a, b in some]
            )
        hosts = sorted({host for a, b in some for host in set(a.of_host) & set(b.of_host)})
        for host in hosts:
            there = [
                (a.of_host[host], b.of_host[host])
                for a, b in some
                if host in a.of_host and host in b.of_host
            ]
            for name in OF_HOST:
                table += _row(cell, host, name, [(a.get(name), b.get(name)) for a, b in there])
    epochs = [(row, ratio) for row, ratio in table if row["quantity"] in WHOLE]
    adjusted = significance.control_false_discoveries(
        [ratio for _, ratio in epochs], more_is_better=False
    )
    judged = dict(zip((id(row) for row, _ in epochs), adjusted, strict=True))
    for row, unadjusted in table:
        ratio = judged.get(id(row), unadjusted)
        row |= {"ratio": ratio.middle, "low": ratio.low, "high": ratio.high, "pairs": ratio.n}
        row |= {"verdict": ratio.verdict, "more_pairs": ratio.more}
    return [row for row, _ in table]


def _row(
    cell: str, host: str, name: str, values: Iterable[tuple[float | None, float | None]]
) -> list[tuple[Row, significance.Comparison]]:
    """Return one row, or none where no pair has the quantity on both sides."""
    pairs = [(old, new) for old, new in values if old and new]
    if not pairs:
        return []
    old, new = (
        dict(enumerate(pair[0] for pair in pairs)),
        dict(enumerate(pair[1] for pair in pairs)),
    )
    row: Row = {"runs": cell, "host": host, "quantity": name}
    row |= {"before_s": median(old.values()), "after_s": median(new.values())}
    return [(row, significance.ratio(new, old, more_is_better=False))]


def shared_records(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Return a line about records that are on both sides: such a pair has no information."""
    before_of = {(run.cell, run.repeat): (run.began_s, run.seconds) for run in before}
    count = sum(
        before_of.get((run.cell, run.repeat)) == (run.began_s, run.seconds) for run in after
    )
    line = (
        f"{count} of {len(after)} records are the same on both sides: their ratio is 1 and carries"
        " no information"
    )
    return [line] if count else []


def differences(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Return what the sides were made with, where it is not the same, a line each.

    Hosts are listed too, because a faster host is not faster software.

    Values of variables that might be secrets are hidden in records, so that two of them cannot
    differ.
    """
    text = []
    sides = (before, after)
    software = [name for runs in sides for run in runs for name in run.software]
    given = [name for runs in sides for run in runs for name in run.environment]
    for name in sorted({*software, *given}):
        by_side = [
            {
                (
                    run.environment.get(name, "unset")
                    if name in given
                    else run.software.get(name, "unknown")
                )
                for run in runs
            }
            for runs in sides
        ]
        if by_side[0] != by_side[1]:
            text.append(f"{name}: {' -> '.join(', '.join(sorted(values)) for values in by_side)}")
    text += _changed_settings(before, after)
    hosts = [{host for run in runs for host in run.of_host} for runs in sides]
    if hosts[0] != hosts[1]:
        text.append(
            f"hosts: {' -> '.join(', '.join(sorted(of_side)) or 'unknown' for of_side in hosts)}"
        )
    if _began_before(before, after) or _began_before(after, before):
        text.append(
            "order: all runs of one side were made before the other's; a drift of the machine would"
            " look like a difference"
        )
    return text


def _changed_settings(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Return a line for each setting that differs within a pair: old and new value."""
    changes: dict[str, set[str]] = defaultdict(set)
    former = {(run.cell, run.repeat): run.settings for run in before}
    for run in after:
        old = former.get((run.cell, run.repeat), run.settings)
        for name in old.keys() | run.settings.keys():
            values = [side.get(name, "null") for side in (old, run.settings)]
            if values[0] != values[1]:
                long = max(map(len, values)) > LONG
                changes[name].add("is not the same" if long else " -> ".join(values))
    return [
        f"setting {name}: {printable(', '.join(sorted(changes[name])))}" for name in sorted(changes)
    ]


def _began_before(first: Sequence[Run], second: Sequence[Run]) -> bool:
    """Tell whether all runs of the first side began before any of the second; False with one run
    each, which allows no other order.
    """
    times = [[run.began_s for run in runs if run.began_s is not None] for runs in (first, second)]
    return min(map(len, times)) > 1 and max(times[0]) < min(times[1])


def lines(table: Sequence[Row]) -> list[str]:
    """Format for people: the verdict on each run, the parts that changed, and the hosts on which
    they changed.

    Parts are named only where the run as a whole moved: each verdict is wrong at times, and of
    parts there are many.
    """
    text = []
    moved_runs = {
        row["runs"]
        for row in table
        if row["quantity"] in WHOLE and row["verdict"] != significance.CANNOT_TELL
    }
    steps: dict[tuple[object, object], float] = defaultdict(float)
    for row in table:
        if row["quantity"] in PARTS:
            steps[row["runs"], row["host"]] += row["before_s"]
    for row in table:
        if row["quantity"] in WHOLE:
            more = (
                f"; more pairs probably needed to decide: {row['more_pairs']}"
                if row["more_pairs"]
                else ""
            )
            what = WHOLE[row["quantity"]]
            text.append(f"{row['runs']}: {row['verdict']}, {what} {_change(row)}{more}")
            continue
        change_s = row["after_s"] - row["before_s"]
        moved = (
            row["verdict"] != significance.CANNOT_TELL
            and abs(change_s) > MOVED * steps[row["runs"], row["host"]]
        )
        if row["quantity"] in PARTS and row["runs"] in moved_runs and moved:
            where = "" if row["host"] == ALL else f" on {row['host']}"
            text.append(
                f"    {row['quantity']}{where}: {change_s * 1e3:+.2f} ms per step, {_change(row)}"
            )
    return text


def _change(row: Row) -> str:
    shown = f"{row['ratio'] - 1:+.1%}"
    if row["low"] is None:
        return f"{shown} (1 pair)"
    return f"{shown} ({row['low'] - 1:+.1%} to {row['high'] - 1:+.1%}, {row['pairs']} pairs)"
