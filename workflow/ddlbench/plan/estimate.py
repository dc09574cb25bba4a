"""How long a run will take: from records of this machine if there are any, from published numbers
until then.

`bill.py` makes hours, energy and prices of it. Without pandas: Snakemake's own process asks too,
for `max_gpu_hours`.

estimate = images / (rate x workers) + what a run needs to begin and to end; `rate` is the images
per second of one worker, validation included. Where the rate and its interval come from:

  - Records that are alike (`matching_keys`) with as many workers: measured. The interval reaches
  from the slowest to the fastest repeat; a single repeat is widened by ONE_RUN. - Records that are
  alike with other numbers of workers: predicted, with its interval, by the members of
  `analysis/prediction/`, the first that can; `snakemake predict` asks the same. - Where that
  refuses (beyond a node from points within one), and from records of the same model with another
  framework, loader or batch, which are widened by ANOTHER: guessed. Between two measured numbers of
  workers the rate is interpolated linearly over log2(workers), which is how efficiency falls.
  Beyond them a doubling of workers costs nothing at best, and at worst what the worst published
  efficiency lost. - No record: the machine's `images_per_s` on a full node, and published
  efficiencies beyond it. The interval reaches from no loss to the worst published loss, widened by
  GUESS. Where nothing is said of the model either, its operations beside those of models of which
  something is known (`first_guess.py`).
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

from ddlbench.analysis import together
from ddlbench.analysis.price import Draw, power_w
from ddlbench.analysis.recorded import resources
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.files import opened_text, read_csv
from ddlbench.core.formatting import count_of
from ddlbench.core.mllog import Event, begin_and_end_s, ended_well, events, train_s
from ddlbench.core.record import MLLOG
from ddlbench.core.roles import AXIS, WATCHED
from ddlbench.core.spec import RunSpec
from ddlbench.plan import first_guess
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import Machine

# Factors that widen an interval; the text above says when. None of them is a measurement.
ONE_RUN = 1.1
ANOTHER = 1.5
GUESS = 1.5
# Where no record says it: what a run needs beside its epochs, at least, likely, at most [s].
BEGIN_AND_END_S = (0.0, 60.0, 300.0)
UNKNOWN = "unknown"  # how such a basis begins
MEASURED, PREDICTED, GUESSED = "measured", "predicted", "guessed"


EVENTS = re.compile(
    r'"key": "(epoch_start|ddlbench_spec|ddlbench_elapsed_s|ddlbench_ranks|train_samples|run_start|run_stop)"'
)


@dataclass(frozen=True)
class RecordedTime:
    """The times in a record. `spec` is as it was written: another version may not know its fields.

    `took_s` is the run's wall time from its first process to its last, without interruptions, of
    which `begin_and_end_s` is not training. `epoch_s` is the time of an epoch with its validation. `draw`
    is its mean power, None where it was not measured.
    """

    spec: dict[str, Any]
    images: int
    took_s: float
    begin_and_end_s: float
    epoch_s: float
    energy_j: float | None
    draw: Draw | None

    @property
    def rate(self) -> float:
        """Return the images per second of one worker."""
        return self.images / self.epoch_s / int(self.spec["workers"])


@dataclass(frozen=True)
class Doubling:
    """The share of the efficiency that is left after a doubling of workers, from one published
    number.
    """

    model: str
    framework: str
    loader: str
    share: float


@dataclass(frozen=True)
class Estimate:
    """The estimated wall time of a run [s]: lowest, likely, highest; `s` is None if nothing is
    known. `basis` describes the source of the estimate. `by` is MEASURED, PREDICTED, GUESSED, or
    None if nothing is known.
    """

    low_s: float | None
    s: float | None
    high_s: float | None
    basis: str
    by: str | None = None


def recorded_time(took_s: float | None) -> Estimate:
    """Return the recorded time of a finished job [s] as an estimate; None where the record has no
    time.
    """
    return (
        Estimate(took_s, took_s, took_s, "its record", MEASURED)
        if took_s
        else Estimate(took_s, took_s, took_s, f"{UNKNOWN}: its record has no times")
    )


def from_times(took: Sequence[float], wider: float, basis: str, by: str) -> Estimate:
    """Estimate from the times of similar jobs [s], with an interval that is `wider` by a factor."""
    return Estimate(min(took) / wider, fmean(took), max(took) * wider, basis, by)


def matching_keys(spec: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the exact and the coarse matching key of a RunSpec's fields, by which similar records
    are found.
    """
    recipe = spec["recipe"]
    least = (
        spec["machine"],
        spec["dataset"],
        spec["model"],
        recipe["image_size"],
        recipe["precision"],
    )
    axes = together.with_roles(AXIS, WATCHED)
    batch = (
        spec["global_batch"] // spec["workers"],
        recipe.get("accumulation"),
        recipe.get("augmentation"),
        spec.get("bandwidth_mbit"),
    )
    return (*least, *(json.dumps(spec.get(key)) for key in axes), *batch), least


@dataclass(frozen=True)
class Rates:
    """The lowest, likely and highest images a second of one worker."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class RecordGroup:
    """A group of similar records: rates by number of workers, time beside training [s], power."""

    runs: int
    rates: dict[int, Rates]
    begin_and_end_s: tuple[float, float, float]
    draws: tuple[Draw, ...]


def record_group(records: Sequence[RecordedTime]) -> RecordGroup:
    by_workers = defaultdict(list)
    for record in records:
        by_workers[int(record.spec["workers"])].append(record.rate)
    rates = {}
    for workers, measured in sorted(by_workers.items()):
        spread = ONE_RUN if len(measured) == 1 else 1.0
        rates[workers] = Rates(min(measured) / spread, fmean(measured), max(measured) * spread)
    outside_s = [record.begin_and_end_s for record in records]
    draws = tuple(record.draw for record in records if record.draw is not None)
    begin_and_end_s = (min(outside_s), fmean(outside_s), max(outside_s))
    return RecordGroup(len(records), rates, begin_and_end_s, draws)


def spread(records: Iterable[RecordedTime], machine: str) -> tuple[float, int] | None:
    """Return how much runs of a machine vary: the standard deviation of the logarithm of their rate
    over repeats, and the number of settings with several repeats; None without such.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.spec["machine"] == machine and record.spec.get("timed", True):
            setting = {name: value for name, value in record.spec.items() if name != "repeat"}
            groups[json.dumps(setting, sort_keys=True)].append(math.log(record.rate))
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return None
    squares = sum((value - fmean(group)) ** 2 for group in several for value in group)
    return math.sqrt(squares / sum(len(group) - 1 for group in several)), len(several)


class Estimator:
    """Estimates for runs of one machine from its records and from what was published."""

    def __init__(
        self, machine: Machine, measured: Iterable[RecordedTime], published: Sequence[Doubling]
    ) -> None:
        self.machine, self.published = machine, published
        self.worst = min((p.share for p in published), default=1.0)
        same, near = defaultdict(list), defaultdict(list)
        for record in measured:
            if record.spec["machine"] == machine.name:
                same_kind, least = matching_keys(record.spec)
                same[same_kind].append(record)
                near[least].append(record)
        self._same = {key: record_group(records) for key, records in same.items()}
        self._near = {key: record_group(records) for key, records in near.items()}
        # Of each model and size of pictures, with the fewest workers: what `first_guess` begins
        # with.
        self._others = {
            (str(least[2]), int(least[3])): kind.rates[min(kind.rates)].mean
            for least, kind in self._near.items()
        }

    def like(self, spec: RunSpec) -> tuple[RecordGroup | None, bool]:
        """Return (the records like this run, whether they match exactly)."""
        same_kind, least = matching_keys({**vars(spec), "recipe": vars(spec.recipe)})
        return (
            (self._same[same_kind], True)
            if same_kind in self._same
            else (self._near.get(least), False)
        )

    def estimate(self, spec: RunSpec, images: int, limit_minutes: int | None = None) -> Estimate:
        """Estimate how long this run takes if it is made (again), with so many images an epoch; the
        limit is the queue's.
        """
        like, same = self.like(spec)
        if like:
            rate, where, by = self._at(spec, like, same)
            begin_and_end = like.begin_and_end_s
            basis = f"{count_of(like.runs, 'measured run')}{where}"
            basis += "" if same else ", of other frameworks, loaders or batches"
        else:
            first = self._first(spec)
            if first is None:
                return _unknown(spec, limit_minutes)
            near, basis = first
            nodes = max(0.0, math.log2(spec.workers / self.machine.workers_per_node))
            rate = Rates(
                near.low * self.worst**nodes, near.mean * self._typical(spec) ** nodes, near.high
            )
            basis, begin_and_end, by = (
                f"{basis} and published efficiencies",
                BEGIN_AND_END_S,
                GUESSED,
            )
        work = spec.epochs * images / spec.workers
        low, likely, high = begin_and_end
        return Estimate(
            low + work / rate.high, likely + work / rate.mean, high + work / rate.low, basis, by
        )

    def _first(self, spec: RunSpec) -> tuple[Rates, str] | None:
        """Guess (rate on a full node, its basis) where there is no record; None if nothing is known
        about the model.
        """
        size = spec.recipe.image_size
        given = self.machine.rate(spec.model, size)
        if given is not None:
            return Rates(given / GUESS, given, given * GUESS), "the machine's images_per_s"
        guess = first_guess.rate((spec.model, size), self.machine, self._others)
        return (Rates(*guess[:3]), guess[3]) if guess else None

    def power_w(self, spec: RunSpec) -> float | None:
        """Return the power of a run by that of like records [W]; None if none was measured."""
        like = self.like(spec)[0]
        design = (self.machine.power_per_worker_w, self.machine.power_per_node_w)
        return power_w(like.draws, spec.workers, spec.nodes, design) if like else None

    def _at(self, spec: RunSpec, like: RecordGroup, same: bool) -> tuple[Rates, str, str]:
        """Return (rate at the run's number of workers, how it follows from the measured ones,
        MEASURED, PREDICTED or GUESSED).
        """
        wider = 1.0 if same else ANOTHER
        if same and spec.workers in like.rates:
            return like.rates[spec.workers], "", MEASURED
        if same:
            predicted = self._predicted(spec, like)
            if predicted:
                counts = " ".join(map(str, like.rates))
                return (
                    predicted,
                    f", predicted from {counts} worker{'s' * (counts != '1')}",
                    PREDICTED,
                )
        below = [count for count in like.rates if count <= spec.workers]
        above = [count for count in like.rates if count >= spec.workers]
        if below and above:
            first, second = like.rates[below[-1]], like.rates[above[0]]
            span = math.log2(above[0] / below[-1])
            share = math.log2(spec.workers / below[-1]) / span if span else 0.0
            mean = (1 - share) * first.mean + share * second.mean
            where = f", between {below[-1]} and {above[0]} workers" if span else ""
            return (
                Rates(
                    min(first.low, second.low) / wider, mean, max(first.high, second.high) * wider
                ),
                where,
                GUESSED,
            )
        nearest = below[-1] if below else above[0]
        rate, doublings = like.rates[nearest], math.log2(spec.workers / nearest)
        lost = max(0.0, doublings)
        gained = max(0.0, -doublings)
        low, high = rate.low * self.worst**lost / wider, rate.high / self.worst**gained * wider
        rate = Rates(low, rate.mean * self._typical(spec) ** lost, high)
        return rate, f", extrapolated from {nearest} workers", GUESSED

    def _predicted(self, spec: RunSpec, like: RecordGroup) -> Rates | None:
        """Return the rates predicted by the first member of `analysis/prediction/` that can; None
        where none can.
        """
        means, batch = (
            {count: rate.mean for count, rate in like.rates.items()},
            spec.global_batch / spec.workers,
        )
        for name in registry.members("prediction"):
            member = registry.member("prediction", name)
            rates = member.of_worker(means, spec.workers, batch, self.machine.workers_per_node)
            if rates:
                return Rates(*rates)
        return None

    def _typical(self, spec: RunSpec) -> float:
        """Return the share of the efficiency that a doubling leaves: the geometric mean of the
        published numbers that are nearest to the run.
        """
        chosen = list(self.published)
        called = {
            "loader": {spec.loader, registry.family(spec.loader)},
            "framework": {spec.adapter},
            "model": {spec.model},
        }
        for column, names in called.items():
            fits = [p for p in chosen if getattr(p, column) in {"", "any", *names}]
            chosen = fits or chosen
        return geometric_mean(p.share for p in chosen) if chosen else 1.0


def _unknown(spec: RunSpec, limit_minutes: int | None) -> Estimate:
    """Return an estimate without a likely time.

    The queue's limit is the most that the run can take, and says nothing about the likely time.
    """
    nothing = f"{UNKNOWN}: no record, no images_per_s, no operations of {spec.model} at {spec.recipe.image_size} pixels"
    if limit_minutes is None:
        return Estimate(None, None, None, nothing)
    return Estimate(0.0, None, 60.0 * limit_minutes, f"{nothing}; at most the queue's limit")


def read_measured(folder: Path) -> RecordedTime | None:
    """Read a successful run's times from its log; None without a log, an end or what this version
    writes.
    """
    try:
        # A log has thousands of lines of which few matter here: only those are parsed.
        with opened_text(folder / MLLOG) as lines:
            found = [*events(line for line in lines if EVENTS.search(line))]
        epochs = [event.time_s for event in found if event.key == "epoch_start"]
        return _measured({event.key: event for event in found}, epochs, found[0].time_s)
    # No log, an empty one, or what another program, or another version, wrote.
    except (OSError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _measured(last: dict[str, Event], epochs: list[float], first_s: float) -> RecordedTime | None:
    """Compute a run's times from the last event of each key, the beginnings of epochs and the time
    of the first event [s since 1970].
    """
    if not ended_well(last) or not epochs:
        return None
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else []
    trained_s, rest_s = train_s(last), begin_and_end_s(last, first_s)
    # The first epoch is warm-up, and of one that was interrupted begin and end lie far apart: the
    # median of the rest.
    lengths = [
        stop - start
        for start, stop in zip(epochs, [*epochs[1:], last["run_stop"].time_s], strict=True)
    ]
    epoch_s = median(lengths[1:]) if len(lengths) > 1 else trained_s
    spec: dict[str, Any] = last["ddlbench_spec"].value
    energies = resources(ranks, spec["device"], {}, "energy_j") if ranks else {}
    energy_j, devices_j = (_known(energies.get(name)) for name in ("energy_j", "device_energy_j"))
    if min(epoch_s, trained_s) <= 0:
        return None
    draw = None
    if energy_j is not None:
        nodes = -(-spec["workers"] // spec["workers_per_node"])
        devices_w = None if devices_j is None else devices_j / trained_s
        draw = Draw(spec["workers"], nodes, energy_j / trained_s, devices_w)
    images: int = last["train_samples"].value
    return RecordedTime(spec, images, trained_s + rest_s, rest_s, epoch_s, energy_j, draw)


def _known(value: Any) -> float | None:
    return None if value is None or isinstance(value, Why) else float(value)


def read_all(runs: Path) -> dict[str, RecordedTime]:
    """Read every successful record in `results/runs`, by run id."""
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return {folder.name: record for folder in folders if (record := read_measured(folder))}


def read_published() -> list[Doubling]:
    """Read the efficiencies of all reference files; a file's base is its smallest number of
    workers. Bounds count as values.
    """
    numbers = []
    for path in sorted((CONFIG / "references").glob("*.csv")):
        rows = [row for row in read_csv(path) if row.get("quantity") and row.get("workers")]
        if not rows:
            continue
        base = min(int(row["workers"]) for row in rows)
        for row in rows:
            if row["quantity"] == "efficiency" and int(row["workers"]) > base:
                share = float(row["value"]) ** (1 / math.log2(int(row["workers"]) / base))
                numbers.append(Doubling(row["model"], row["framework"], row["loader"], share))
    return numbers
