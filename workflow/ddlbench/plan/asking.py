"""How long jobs of inference take, and which are done: from their records, and without them a guess.

`row.py` makes rows of the plan of it. What each of them is guessed to take is `infer.work_s`, by the rate at which the
model trains, and what its trainings took to begin and to end: by records, else by the machine's `images_per_s` and a
minute. Records say what their job took, from its first process to its last.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ddlbench.core.plural import count_of
from ddlbench.plan.estimate import (
    ANOTHER,
    BEGIN_AND_END_S,
    GUESS,
    GUESSED,
    MEASURED,
    ONE_RUN,
    UNKNOWN,
    Estimate,
    Estimator,
)
from ddlbench.plan.infer import work_s
from ddlbench.plan.stale import DONE, FAILED, MISSING, STALE, STOPPED, changes
from ddlbench.train.inference import InferSpec
from ddlbench.train.inference._measure import SECONDS
from ddlbench.train.inference._record import FAILED as FAILED_FOLDER
from ddlbench.train.inference._record import PARTIAL, RECORD

FILES = 3  # of a record: the folder, inference.json, infer.log
RECORD_BYTES = 8000  # of a batch size: up to 300 times of 20 digits, and its share of the rest
MOST_S = 3600.0  # where nobody knows how fast a model answers


@dataclass(frozen=True)
class Asked:
    """What a record of inference says of its job; `took_s` is None in older ones. `bytes` is its size."""

    spec: Mapping[str, Any]
    took_s: float | None
    bytes: int


def read_all(inference: Path) -> dict[str, Asked]:
    """Every record in `results/inference`, by job; what cannot be read is left out, and its table refuses it."""
    records = {}
    for path in sorted(inference.glob(f"*/{RECORD}")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            took_s = record.get("took_s")
            took_s = float(took_s) if isinstance(took_s, int | float) and 0 < took_s < math.inf else None
            _alike(record["spec"])
            records[path.parent.name] = Asked(record["spec"], took_s, path.stat().st_size)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return records


def _alike(spec: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(what jobs must share to take as long, what they must at least share) of an InferSpec's fields."""
    run = spec["run"]
    least = (run["machine"], run["dataset"], run["model"], run["recipe"]["image_size"], tuple(spec["batches"]))
    return (*least, spec["member"], spec["workers"]), least


def state(folder: Path, spec: InferSpec, record: Asked | None, run_is_done: bool) -> tuple[str, str]:
    """(DONE, STALE, FAILED, STOPPED or MISSING; why) of a job's folder, as `stale.state` says it of a run's."""
    if record is None:
        if (folder / PARTIAL).is_dir():
            return STOPPED, "is running, or was stopped"
        if (folder / FAILED_FOLDER).is_dir():
            return FAILED, "its last try failed"
        return MISSING, ""
    if reasons := changes(record.spec, json.loads(spec.to_json())):
        return STALE, "; ".join(reasons)
    return (DONE, "") if run_is_done or not spec.trained else (STALE, "the run that it asks is to be made")


class Asking:
    """Estimates for jobs of inference, from records of others and from how fast models train."""

    def __init__(self, asked: Iterable[Asked], trains: Estimator) -> None:
        self.trains = trains
        self._same: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._near: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for one in asked:
            if one.took_s is not None:
                own, least = _alike(one.spec)
                self._same[own].append(one.took_s)
                self._near[least].append(one.took_s)

    def took(self, record: Asked) -> Estimate:
        """What a job that is done took."""
        if record.took_s is None:
            return Estimate(None, None, None, f"{UNKNOWN}: its record does not say it")
        return Estimate(record.took_s, record.took_s, record.took_s, "its record", MEASURED)

    def estimate(self, spec: InferSpec) -> Estimate:
        """How long this job takes if it is made (again)."""
        own, least = _alike(json.loads(spec.to_json()))
        if own in self._same:
            return _measured(self._same[own], 1.0 if len(self._same[own]) > 1 else ONE_RUN, "", MEASURED)
        if least in self._near:
            return _measured(self._near[least], ANOTHER, ", in other ways", GUESSED)
        like = self.trains.like(spec.run)[0]
        low, likely, high = like.beside_s if like else BEGIN_AND_END_S
        high = max(high, BEGIN_AND_END_S[2])  # a model may be compiled first
        rate, whose = self.trains.machine.rate(spec.run.model, spec.run.recipe.image_size), "the machine's images_per_s"
        if like:
            rate, whose = like.rates[min(like.rates)].mean, "records"
        if rate is None:
            work = SECONDS * len(spec.batches)
            basis = f"{SECONDS:g} s for each batch size: nobody knows how fast {spec.run.model} answers"
            return Estimate(low, likely + work, MOST_S, basis, GUESSED)
        work = work_s(spec, rate)
        basis = f"a third of a training step by {whose} for each answer"
        return Estimate(low + work / GUESS, likely + work, high + work * GUESS, basis, GUESSED)


def _measured(took: list[float], wider: float, which: str, by: str) -> Estimate:
    basis = f"{count_of(len(took), 'measured job')}{which}"
    return Estimate(min(took) / wider, fmean(took), max(took) * wider, basis, by)
