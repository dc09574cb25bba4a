"""Each host beside the others, over all records of a machine: whose steps take longer, and what
that says of the host.

`ddlbench nodes` calls this. Within an epoch of a run all ranks do the same steps, so a host whose
ranks compute or wait for data longer than those of the other hosts is slower. A host that is slow
in most of its epochs says hardware. Epochs in which now one host is slow and now another say loader
or file system.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, mode
from typing import NamedTuple

import pandas as pd

from ddlbench.analysis import times
from ddlbench.analysis.intervals import Interval, over_repeats
from ddlbench.analysis.outliers import DEVIATIONS, SHARE, deviation, is_slow
from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.core.columns import Column
from ddlbench.core.mllog import read_log
from ddlbench.core.record import MLLOG
from ddlbench.core.step_rows import COMPUTE

PARTS = {"compute": COMPUTE, "data_wait": ["data_wait_s"]}
HARDWARE, WANDERS, LIKE, UNKNOWN = (
    "hardware",
    "loader or file system",
    "as the others",
    "cannot tell",
)
MOST = 0.5  # of its epochs in which slow hardware is slow
WANDERING = (
    0.2  # of all epochs in which some other host is slow, at the least, for the loader to be blamed
)
COLUMNS = (
    Column("host", "str", "The computer."),
    Column("part", "str", "compute: forward, backward, optimizer. data_wait: waiting for images."),
    Column("verdict", "str", f"`{HARDWARE}`, `{WANDERS}`, `{LIKE}` or `{UNKNOWN}`."),
    Column("runs", "int64", "Runs on this and other hosts that the verdict rests on."),
    Column("epochs", "int64", "Their epochs after warm-up."),
    Column(
        "slow_epochs",
        "int64",
        "Epochs in which the host was slow compared with the others (`analysis/outliers.py`).",
    ),
    Column("local_rank", "Int64", "The rank on the host that took longest in most epochs."),
    Column(
        "excess_s",
        "float64",
        "What a step takes longer than on the others: median over epochs.",
        "s",
    ),
    Column(
        "ratio",
        "float64",
        "A step's time without communication over the others', if only this part differs.",
    ),
    Column(
        "low",
        "float64",
        "Lower bound of the ratio's 95 % interval; null if there is one value only.",
    ),
    Column("high", "float64", "Upper bound."),
    Column(
        "over",
        "str",
        "What the interval is over: runs, or epochs if there are fewer than three runs.",
    ),
    Column(
        "over_own_best",
        "float64",
        "The latest run's time over the host's own best, in runs of the same kind.",
    ),
)


class HostComparison(NamedTuple):
    """One part of the steps of an epoch on one host, compared with the other hosts: means over
    steps, of its slowest rank.
    """

    host: str
    part: str
    excess_s: float  # a step's, beyond the median of the other hosts [s]
    # a step without communication, if all but this part took what it takes on the median host [s]
    time_s: float
    ratio: float  # of that time to the median of the other hosts'
    slow: bool  # by analysis/outliers.py


class HostEpoch(NamedTuple):
    """One epoch of one run on one host, one part of its steps."""

    run: str
    setting: str  # the run without its repeat
    began_s: float
    epoch: int
    means: HostComparison
    local_rank: int | None = None  # the host's rank that took longest


def compare_hosts(
    seconds: Mapping[str, Mapping[str, float]], parts: Iterable[str] = PARTS
) -> list[HostComparison]:
    """Compare hosts with each other.

    `seconds` has, by part of PARTS and by host, what a step took [s]; two hosts or more.
    """
    hosts = list(seconds["compute"])
    total_s = median(sum(by_host[host] for by_host in seconds.values()) for host in hosts)
    compared = []
    for part in parts:
        times = seconds[part]
        rest = max(total_s - median(times.values()), 0.0)
        took = {host: max(rest + times[host], 1e-9) for host in hosts}
        for host in hosts:
            others = [other for other in hosts if other != host]
            excess_s = times[host] - median(times[other] for other in others)
            slow = is_slow(1 / took[host], [1 / took[other] for other in others])
            ratio = took[host] / median(took[other] for other in others)
            compared.append(HostComparison(host, part, excess_s, took[host], ratio, slow))
    return compared


def host_epochs(record: Record) -> Iterator[HostEpoch]:
    """Yield the epochs of a record by host and part; nothing if all ranks ran on one host, or if it
    was not timed.
    """
    ranks, spec = record.value("ddlbench_ranks", []), record.spec
    hosts = [rank.get("host") for rank in ranks]
    if not record.success or not record.timed or len(hosts) != spec.workers or len(set(hosts)) < 2:
        return
    steps = times.after_warm_up(record)
    images = steps.groupby("step")["images"]
    steps = steps[
        images.transform("min") == images.transform("max")
    ]  # of an uneven last batch ranks get less work
    if steps.empty:
        return
    # What a program does not say has zeros in its rows, as if all hosts took equally long. Where
    # waiting for other ranks is not measured apart, it is in the passes: all ranks then compute
    # equally long.
    unknown = times.why_unknown(record)
    parts = [part for part, names in PARTS.items() if not unknown.keys() & {*names}]
    if steps["communication_s"].isna().any():
        parts = [part for part in parts if part != "compute"]
    seconds = pd.DataFrame({part: steps[names].sum(axis=1) for part, names in PARTS.items()})
    # A host is as slow as its slowest rank, for which all others wait: one bad device of four is
    # not averaged away.
    of_rank = seconds.groupby([steps["epoch"], steps["rank"]]).mean()
    host_of = of_rank.index.get_level_values("rank").map(dict(enumerate(hosts)))
    by_host = of_rank.groupby([of_rank.index.get_level_values("epoch"), host_of.rename("host")])
    of_host, slowest = by_host.max(), {part: by_host[part].idxmax().to_dict() for part in PARTS}
    setting, began_s = replace(spec, repeat=1).id, record.last["run_start"].time_s
    for epoch, here in of_host.groupby(level="epoch"):
        of_part = here.droplevel("epoch").to_dict()
        for comparison in compare_hosts({part: of_part[part] for part in PARTS}, parts):
            _, rank = slowest[comparison.part][epoch, comparison.host]
            local = ranks[int(rank)].get("local_rank")
            yield HostEpoch(spec.id, setting, began_s, int(str(epoch)), comparison, local)


def rows(entries: Iterable[HostEpoch]) -> list[dict[str, object]]:
    """Return one row (COLUMNS) per host and part; those with a problem first."""
    of_part: dict[str, list[HostEpoch]] = defaultdict(list)
    for entry in entries:
        of_part[entry.means.part].append(entry)
    table: list[dict[str, object]] = []
    for part, some in of_part.items():
        of_host: dict[str, list[HostEpoch]] = defaultdict(list)
        for entry in some:
            of_host[entry.means.host].append(entry)
        by_host = {host: _row(host, part, mine) for host, mine in of_host.items()}
        hard = {host for host, row in by_host.items() if row["verdict"] == HARDWARE}
        # Epochs with a slow host that is not known to be slow: does it change?
        epochs = {(entry.run, entry.epoch) for entry in some}
        sound = [entry for entry in some if entry.means.host not in hard]
        usual = deviation([math.log(entry.means.ratio) for entry in sound]) if sound else 0.0
        other = [
            entry
            for entry in sound
            if entry.means.slow and math.log(entry.means.ratio) > DEVIATIONS * usual
        ]
        wanders = len({(entry.run, entry.epoch) for entry in other}) >= WANDERING * len(epochs)
        if wanders and len({entry.means.host for entry in other}) > 1:
            for host in {entry.means.host for entry in other}:
                by_host[host]["verdict"] = WANDERS
        table += by_host.values()
    order = [HARDWARE, WANDERS, UNKNOWN, LIKE]
    return sorted(
        table,
        key=lambda row: (order.index(str(row["verdict"])), str(row["host"]), str(row["part"])),
    )


def _row(host: str, part: str, entries: Sequence[HostEpoch]) -> dict[str, object]:
    of_run: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        of_run[entry.run].append(entry.means.ratio)
    enough = len(of_run) > 2
    interval = over_repeats(
        [*map(median, of_run.values())] if enough else [entry.means.ratio for entry in entries]
    )
    slow = sum(entry.means.slow for entry in entries)
    return {
        "host": host,
        "part": part,
        "verdict": _verdict(
            interval, sum(entry.means.ratio > 1 + SHARE for entry in entries) / len(entries)
        ),
        "runs": len(of_run),
        "epochs": len(entries),
        "slow_epochs": slow,
        "local_rank": mode(entry.local_rank for entry in entries),
        "excess_s": median(entry.means.excess_s for entry in entries),
        "ratio": interval.middle,
        "low": interval.low,
        "high": interval.high,
        "over": "runs" if enough else "epochs",
        "over_own_best": _over_own_best(entries),
    }


def _verdict(interval: Interval, slow: float) -> str:
    if interval.low is None or interval.high is None:
        return UNKNOWN
    if interval.low > 1 and interval.middle > 1 + SHARE and slow > MOST:
        return HARDWARE
    return UNKNOWN if interval.middle > 1 + SHARE else LIKE


def _over_own_best(entries: Sequence[HostEpoch]) -> float | None:
    """Return the latest run's time over the shortest of the same kind, the median over kinds; None
    where no kind has two.
    """
    of_kind: dict[str, dict[tuple[float, str], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in entries:
        of_kind[entry.setting][entry.began_s, entry.run].append(entry.means.time_s)
    ratios = []
    for of_run in of_kind.values():
        took = [median(of_run[run]) for run in sorted(of_run)]
        if len(took) > 1:
            ratios.append(took[-1] / min(took))
    return median(ratios) if ratios else None


def records(machine: str, folder: Path) -> tuple[list[HostEpoch], int, list[str]]:
    """Return the host epochs of this machine from the records in a folder of runs, the number of
    these records, and lines about refused ones.

    Only records whose log names two hosts are read whole.
    """
    entries: list[HostEpoch] = []
    count, refused = 0, list[str]()
    logs = [log for log in sorted(folder.glob(f"{machine}-*/{MLLOG}")) if _tells(log)]
    for record in registry.member("records", "ours").records(logs, refused):
        of_run = list(host_epochs(record)) if record.spec.machine == machine else []
        entries += of_run
        count += bool(of_run)
    return entries, count, refused


def _tells(log: Path) -> bool:
    """Return whether a log names two hosts, or cannot be understood: `read` then reports the
    reason.
    """
    try:
        last = {event.key: event.value for event in read_log(log)}
        return len({rank["host"] for rank in last.get("ddlbench_ranks", ())}) > 1
    except Exception:
        return True


def lines(table: Sequence[dict[str, object]]) -> list[str]:
    """Format for people: one line per host and part."""
    wide = max((len(str(row["host"])) for row in table), default=0)
    text = []
    for row in table:
        between, device = "", ""
        if row["verdict"] == HARDWARE and row["local_rank"] is not None:
            device = f", mostly by rank {row['local_rank']} there"
        if isinstance(row["low"], float) and isinstance(row["high"], float):
            between = f" ({row['low'] - 1:+.1%} to {row['high'] - 1:+.1%} over {row['over']})"
        text.append(
            f"{row['host']!s:{wide}} {row['part']!s:9}  {row['ratio'] - 1:+7.1%}{between}, "  # type: ignore[operator]
            f"slow in {row['slow_epochs']} of {row['epochs']} epochs of {row['runs']} runs{device}:"
            f" {row['verdict']}"
        )
    return text
