"""How long a run will take: from records of this machine if there are any, from published numbers until then.

`bill.py` makes hours, energy and prices of it. Pure but for `read_measured` and `read_published`; without pandas, as
the Snakefile asks it too (`max_gpu_hours`).

The estimate is images / (rate x workers), and what a run needs to begin and end. `rate` is images a second of one
worker, validation included. Of records that are alike (`alike`), counts of workers between two measured ones are
interpolated linearly over log2(workers), which is how efficiency falls. Interval: from the lowest to the highest repeat
of the neighbours, ONE_RUN either side where there is one repeat only; beyond the measured counts each doubling may cost
nothing, or as much as the worst of the published efficiencies. If only records of the same model are alike, with
another framework, loader or batch: ANOTHER times longer or shorter still. Without a record, the machine's
`images_per_s` at its full node; efficiencies as published, the interval from none lost to the worst published, and
GUESS times longer or shorter still.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from ddlbench import registry
from ddlbench.analysis.resources import resources
from ddlbench.columns import Why
from ddlbench.record import MLLOG, Event, events, train_s
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import Machine
from ddlbench.spec import RunSpec

# By how much an interval is wider, as a factor, and why: see above. None of these is a measurement.
ONE_RUN = 1.1
ANOTHER = 1.5
GUESS = 1.5
# Where no record says it: what a run needs beside its epochs, at least, likely, at most [s].
BEGIN_AND_END_S = (0.0, 60.0, 300.0)
UNKNOWN = "unknown"  # how such a basis begins
EVENTS = re.compile(
    r'"key": "(epoch_start|ddlbench_spec|ddlbench_elapsed_s|ddlbench_ranks|train_samples|run_start|run_stop)"'
)


@dataclass(frozen=True)
class Estimate:
    """Wall time of a run [s]: at least, likely, at most; `s` is None if nothing is known. `basis` says from what."""

    low_s: float | None
    s: float | None
    high_s: float | None
    basis: str


@dataclass(frozen=True)
class Measured:
    """What a record says of time. `spec` is as it was written: another version may not know its fields.

    `took_s` is the run's wall time from its first process to its last, without interruptions, of which `beside_s` is no
    training; `epoch_s` an epoch with its validation; `power_w` the mean of a worker, None where it was not measured.
    """

    spec: dict[str, Any]
    images: int
    took_s: float
    beside_s: float
    epoch_s: float
    energy_j: float | None
    power_w: float | None

    @property
    def rate(self) -> float:
        """Images a second of one worker."""
        return self.images / self.epoch_s / int(self.spec["workers"])


@dataclass(frozen=True)
class Published:
    """What a doubling of workers leaves of the efficiency, from one published number."""

    model: str
    framework: str
    loader: str
    left: float


def read_measured(folder: Path) -> Measured | None:
    """A successful run's times from its log; None without a log, an end or what this version writes."""
    last: dict[str, Event] = {}
    epochs: list[float] = []
    first_s: float | None = None
    try:
        lines = (folder / MLLOG).open(encoding="utf-8", errors="replace")
    except OSError:
        return None
    with lines:
        # A log has thousands of lines of which few matter here: only those are parsed.
        kept = [line for line in lines if EVENTS.search(line)]
    for event in events(kept):
        last[event.key] = event
        if event.key == "epoch_start":
            epochs.append(event.time_s)
        if first_s is None:
            first_s = event.time_s
    if not {"ddlbench_spec", "train_samples", "run_start", "run_stop"} <= last.keys() or first_s is None:
        return None
    if last["run_stop"].metadata.get("status") != "success" or not epochs:
        return None
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else []
    began_s = min([first_s, *(rank["started"] for rank in ranks if "started" in rank)])
    trained_s = train_s(last)
    ended_s = max(event.time_s for event in last.values())
    beside_s = max(0.0, last["run_start"].time_s - began_s) + max(0.0, ended_s - last["run_stop"].time_s)
    # The first epoch is warm-up, and of one that was interrupted begin and end lie far apart: the median of the rest.
    lengths = [stop - start for start, stop in zip(epochs, [*epochs[1:], last["run_stop"].time_s], strict=True)]
    epoch_s = median(lengths[1:]) if len(lengths) > 1 else trained_s
    spec: dict[str, Any] = last["ddlbench_spec"].value
    energy_j = resources(ranks, spec["device"], {})["energy_j"] if ranks else None
    energy_j = None if isinstance(energy_j, Why) else energy_j
    if min(epoch_s, trained_s) <= 0:
        return None
    power_w = energy_j / trained_s / spec["workers"] if energy_j is not None else None
    images: int = last["train_samples"].value
    return Measured(spec, images, trained_s + beside_s, beside_s, epoch_s, energy_j, power_w)


def read_all(runs: Path) -> dict[str, Measured]:
    """Every successful record in `results/runs`, by run id."""
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return {folder.name: found for folder in folders if (found := read_measured(folder))}


def read_published(folder: Path = CONFIG / "references") -> list[Published]:
    """Efficiencies of all reference files; a file's base is its smallest number of workers. Bounds count as values."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("quantity") and row.get("workers")]
        if not rows:
            continue
        base = min(int(row["workers"]) for row in rows)
        for row in rows:
            if row["quantity"] == "efficiency" and int(row["workers"]) > base:
                left = float(row["value"]) ** (1 / math.log2(int(row["workers"]) / base))
                found.append(Published(row["model"], row["framework"], row["loader"], left))
    return found


def alike(spec: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(what records must share to be of the same kind, what they must at least share) of a RunSpec's fields."""
    recipe = spec["recipe"]
    least = (spec["machine"], spec["dataset"], spec["model"], recipe["image_size"], recipe["precision"])
    own = ("framework", "options", "loader", "form", "timed", "profiled")
    batch = (spec["global_batch"] // spec["workers"], recipe.get("accumulation"), recipe.get("augmentation"))
    return (*least, *(json.dumps(spec.get(key)) for key in own), *batch), least


@dataclass(frozen=True)
class Rate:
    """Images a second of one worker: lowest, likely, highest."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Kind:
    """What records that are alike say together: rates by number of workers, time beside training [s], power [W]."""

    runs: int
    rates: dict[int, Rate]
    beside_s: tuple[float, float, float]
    power_w: float | None


def kind(records: Sequence[Measured]) -> Kind:
    """Of at least one record."""
    by_workers = defaultdict(list)
    for one in records:
        by_workers[int(one.spec["workers"])].append(one.rate)
    rates = {}
    for workers, found in sorted(by_workers.items()):
        spread = ONE_RUN if len(found) == 1 else 1.0
        rates[workers] = Rate(min(found) / spread, fmean(found), max(found) * spread)
    beside = [one.beside_s for one in records]
    power = [one.power_w for one in records if one.power_w is not None]
    beside_s = (min(beside), fmean(beside), max(beside))
    return Kind(len(records), rates, beside_s, fmean(power) if power else None)


class Estimator:
    """Estimates for runs of one machine from its records and from what was published."""

    def __init__(self, machine: Machine, measured: Iterable[Measured], published: Sequence[Published]) -> None:
        self.machine, self.published = machine, published
        self.worst = min((p.left for p in published), default=1.0)
        same, near = defaultdict(list), defaultdict(list)
        for one in measured:
            if one.spec["machine"] == machine.name:
                own, least = alike(one.spec)
                same[own].append(one)
                near[least].append(one)
        self._same = {key: kind(records) for key, records in same.items()}
        self._near = {key: kind(records) for key, records in near.items()}

    def like(self, spec: RunSpec) -> tuple[Kind | None, bool]:
        """(what records tell about this run, whether they are of the same kind)."""
        own, least = alike({**vars(spec), "recipe": vars(spec.recipe)})
        return (self._same[own], True) if own in self._same else (self._near.get(least), False)

    def estimate(self, spec: RunSpec, images: int, limit_minutes: int | None = None) -> Estimate:
        """How long this run takes if it is made (again), with so many images an epoch; the limit is the queue's."""
        found, same = self.like(spec)
        if found:
            rate, where = self._at(spec, found, 1.0 if same else ANOTHER)
            begin_and_end = found.beside_s
            basis = f"{found.runs} measured run{'s' * (found.runs > 1)}{where}"
            basis += "" if same else ", of other frameworks, loaders or batches"
        else:
            guess = dict(self.machine.images_per_s).get(spec.model)
            if guess is None:
                return _unknown(spec, limit_minutes)
            nodes = max(0.0, math.log2(spec.workers / self.machine.workers_per_node))
            rate = Rate(guess * self.worst**nodes / GUESS, guess * self._typical(spec) ** nodes, guess * GUESS)
            basis, begin_and_end = "the machine's images_per_s and published efficiencies", BEGIN_AND_END_S
        work = spec.epochs * images / spec.workers
        low, likely, high = begin_and_end
        return Estimate(low + work / rate.high, likely + work / rate.mean, high + work / rate.low, basis)

    def power_w(self, spec: RunSpec) -> float | None:
        """Mean power of a worker and its share of the node in like records [W]; None if none was measured."""
        found = self.like(spec)[0]
        return found.power_w if found else None

    def _at(self, spec: RunSpec, found: Kind, wider: float) -> tuple[Rate, str]:
        """The rate at the run's number of workers, and how it comes from those that were measured."""
        below = [count for count in found.rates if count <= spec.workers]
        above = [count for count in found.rates if count >= spec.workers]
        if below and above:
            first, second = found.rates[below[-1]], found.rates[above[0]]
            span = math.log2(above[0] / below[-1])
            share = math.log2(spec.workers / below[-1]) / span if span else 0.0
            mean = (1 - share) * first.mean + share * second.mean
            where = f", between {below[-1]} and {above[0]} workers" if span else ""
            return Rate(min(first.low, second.low) / wider, mean, max(first.high, second.high) * wider), where
        nearest = below[-1] if below else above[0]
        known, doublings = found.rates[nearest], math.log2(spec.workers / nearest)
        lost = max(0.0, doublings)
        gained = max(0.0, -doublings)
        return (
            Rate(
                known.low * self.worst**lost / wider,
                known.mean * self._typical(spec) ** lost,
                known.high / self.worst**gained * wider,
            ),
            f", extrapolated from {nearest} workers",
        )

    def _typical(self, spec: RunSpec) -> float:
        """What a doubling leaves: the geometric mean of the published numbers that are nearest to the run."""
        chosen = list(self.published)
        called = {
            "loader": {spec.loader, registry.family(spec.loader)},
            "framework": {spec.adapter},
            "model": {spec.model},
        }
        for column, names in called.items():
            fits = [p for p in chosen if getattr(p, column) in {"", "any", *names}]
            chosen = fits or chosen
        return geometric_mean(p.left for p in chosen) if chosen else 1.0


def _unknown(spec: RunSpec, limit_minutes: int | None) -> Estimate:
    nothing = f"{UNKNOWN}: no record, no images_per_s of {spec.model}"
    if limit_minutes is None:
        return Estimate(None, None, None, nothing)
    return Estimate(0.0, 60.0 * limit_minutes, 60.0 * limit_minutes, f"{nothing}; the queue's limit")
