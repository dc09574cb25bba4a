"""How long a run will take: from records of this machine if there are any, from published numbers until then.

`row.py` makes hours, energy and prices of it. Everything here is pure: `measured.py` reads records and published
numbers.

estimate = images / (rate x workers) + what a run needs to begin and to end; `rate` is the images per second of one
worker, validation included. Where the rate and its interval come from:

- Records that are alike (`alike`) with as many workers: measured. The interval reaches from the slowest to the fastest
  repeat; a single repeat is widened by ONE_RUN.
- Records that are alike with other numbers of workers: predicted, with its interval, by the default model of
  `prediction/`, which `snakemake predict` asks too.
- Where that refuses (beyond a node from points within one), and from records of the same model with another framework,
  loader or batch, which are widened by ANOTHER: guessed. Between two measured numbers of workers the rate is
  interpolated linearly over log2(workers), which is how efficiency falls. Beyond them a doubling of workers costs
  nothing at best, and at worst what the worst published efficiency lost.
- No record: the machine's `images_per_s` on a full node, and published efficiencies beyond it. The interval reaches
  from no loss to the worst published loss, widened by GUESS. Where nothing is said of the model either, its operations
  beside those of models of which something is known (`first_guess.py`).
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any

from ddlbench.analysis import prediction, together
from ddlbench.analysis.prediction import _priors, last_rate
from ddlbench.core import registry
from ddlbench.core.plural import count_of
from ddlbench.core.roles import AXIS, WATCHED
from ddlbench.core.spec import RunSpec
from ddlbench.plan import first_guess
from ddlbench.plan.measured import Measured, Published
from ddlbench.settings.machine import Machine

# Factors that widen an interval; the text above says when. None of them is a measurement.
ONE_RUN = 1.1
ANOTHER = 1.5
GUESS = 1.5
# Where no record says it: what a run needs beside its epochs, at least, likely, at most [s].
BEGIN_AND_END_S = (0.0, 60.0, 300.0)
UNKNOWN = "unknown"  # how such a basis begins
MEASURED, PREDICTED, GUESSED = "measured", "predicted", "guessed"


@dataclass(frozen=True)
class Estimate:
    """Wall time of a run [s]: at least, likely, at most; `s` is None if nothing is known. `basis` says from what; `by`
    is MEASURED, PREDICTED, GUESSED, or None if nothing is known."""

    low_s: float | None
    s: float | None
    high_s: float | None
    basis: str
    by: str | None = None


def taken(s: float | None) -> Estimate:
    """What a job that is done took by its record [s]; None where that does not say it."""
    return (
        Estimate(s, s, s, "its record", MEASURED) if s else Estimate(s, s, s, f"{UNKNOWN}: its record does not say it")
    )


def alike(spec: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(what records must share to be of the same kind, what they must at least share) of a RunSpec's fields."""
    recipe = spec["recipe"]
    least = (spec["machine"], spec["dataset"], spec["model"], recipe["image_size"], recipe["precision"])
    own = together.settings(AXIS, WATCHED)
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
    """Estimates from one or more records."""
    by_workers = defaultdict(list)
    for one in records:
        by_workers[int(one.spec["workers"])].append(one.rate)
    rates = {}
    for workers, measured in sorted(by_workers.items()):
        spread = ONE_RUN if len(measured) == 1 else 1.0
        rates[workers] = Rate(min(measured) / spread, fmean(measured), max(measured) * spread)
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
        # Of each model and size of pictures, with the fewest workers: what `first_guess` begins with.
        self._others = {
            (str(least[2]), int(least[3])): of.rates[min(of.rates)].mean for least, of in self._near.items()
        }

    def like(self, spec: RunSpec) -> tuple[Kind | None, bool]:
        """(what records tell about this run, whether they are of the same kind)."""
        own, least = alike({**vars(spec), "recipe": vars(spec.recipe)})
        return (self._same[own], True) if own in self._same else (self._near.get(least), False)

    def estimate(self, spec: RunSpec, images: int, limit_minutes: int | None = None) -> Estimate:
        """How long this run takes if it is made (again), with so many images an epoch; the limit is the queue's."""
        like, same = self.like(spec)
        if like:
            rate, where, by = self._at(spec, like, same)
            begin_and_end = like.beside_s
            basis = f"{count_of(like.runs, 'measured run')}{where}"
            basis += "" if same else ", of other frameworks, loaders or batches"
        else:
            first = self._first(spec)
            if first is None:
                return _unknown(spec, limit_minutes)
            near, basis = first
            nodes = max(0.0, math.log2(spec.workers / self.machine.workers_per_node))
            rate = Rate(near.low * self.worst**nodes, near.mean * self._typical(spec) ** nodes, near.high)
            basis, begin_and_end, by = f"{basis} and published efficiencies", BEGIN_AND_END_S, GUESSED
        work = spec.epochs * images / spec.workers
        low, likely, high = begin_and_end
        return Estimate(low + work / rate.high, likely + work / rate.mean, high + work / rate.low, basis, by)

    def _first(self, spec: RunSpec) -> tuple[Rate, str] | None:
        """(rate on a full node, from what) where no record tells; None if nobody knows anything of the model."""
        size = spec.recipe.image_size
        said = self.machine.rate(spec.model, size)
        if said is not None:
            return Rate(said / GUESS, said, said * GUESS), "the machine's images_per_s"
        guess = first_guess.rate((spec.model, size), self.machine, self._others)
        return (Rate(*guess[:3]), guess[3]) if guess else None

    def power_w(self, spec: RunSpec) -> float | None:
        """Mean power of a worker and its share of the node in like records [W]; None if none was measured."""
        like = self.like(spec)[0]
        return like.power_w if like else None

    def _at(self, spec: RunSpec, like: Kind, same: bool) -> tuple[Rate, str, str]:
        """(rate at the run's number of workers, how it comes from those that were measured, MEASURED or the others)."""
        wider = 1.0 if same else ANOTHER
        if same and spec.workers in like.rates:
            return like.rates[spec.workers], "", MEASURED
        if same:
            predicted = self._predicted(spec, like)
            if predicted:
                counts = " ".join(map(str, like.rates))
                return predicted, f", predicted from {counts} worker{'s' * (counts != '1')}", PREDICTED
        below = [count for count in like.rates if count <= spec.workers]
        above = [count for count in like.rates if count >= spec.workers]
        if below and above:
            first, second = like.rates[below[-1]], like.rates[above[0]]
            span = math.log2(above[0] / below[-1])
            share = math.log2(spec.workers / below[-1]) / span if span else 0.0
            mean = (1 - share) * first.mean + share * second.mean
            where = f", between {below[-1]} and {above[0]} workers" if span else ""
            return Rate(min(first.low, second.low) / wider, mean, max(first.high, second.high) * wider), where, GUESSED
        nearest = below[-1] if below else above[0]
        known, doublings = like.rates[nearest], math.log2(spec.workers / nearest)
        lost = max(0.0, doublings)
        gained = max(0.0, -doublings)
        return (
            Rate(
                known.low * self.worst**lost / wider,
                known.mean * self._typical(spec) ** lost,
                known.high / self.worst**gained * wider,
            ),
            f", extrapolated from {nearest} workers",
            GUESSED,
        )

    def _predicted(self, spec: RunSpec, like: Kind) -> Rate | None:
        """Predicts by the model that `snakemake predict` asks; None where it refuses, or where there is no numpy."""
        counts, batch = tuple(like.rates), spec.global_batch / spec.workers
        rates = tuple(count * rate.mean for count, rate in like.rates.items())
        measured = prediction.Measured(counts, rates, (batch,) * len(counts), self.machine.workers_per_node)
        try:
            made = last_rate.predict(measured, [spec.workers], [batch], _priors.read())
        except (prediction.TooLittleError, ImportError):
            return None
        low, mean, high = (float(value[0]) / spec.workers for value in (made.low, made.images_per_s, made.high))
        return Rate(low, mean, high)

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
    """The queue's limit is the most that it can take, and says nothing of what it is likely to take."""
    nothing = f"{UNKNOWN}: no record, no images_per_s, no operations of {spec.model} at {spec.recipe.image_size} pixels"
    if limit_minutes is None:
        return Estimate(None, None, None, nothing)
    return Estimate(0.0, None, 60.0 * limit_minutes, f"{nothing}; at most the queue's limit")
