"""Settings in which several sides were tried: the blocks that frameworks, loaders and forms are
judged by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from ddlbench.analysis import comparisons, together
from ddlbench.analysis.over_settings import Block
from ddlbench.answers import Candidate, Given, loads_nothing
from ddlbench.core.registry import OWN

RATE = "throughput_images_per_s"
AXES = ("framework", "loader", "form")
READ = (
    *("run", *AXES, "model", "dataset", "schedule", "workers", "global_batch", "nodes", "repeat"),
    *(RATE, "final_top1", "run_s", "records"),
)
Run = Mapping[Any, Any]  # a row of table `runs`


@dataclass(frozen=True)
class Setting:
    """A setting with its runs, which share everything except their side and repeat: rates
    (logarithms) and top-1 by side and repeat.
    """

    where: Candidate
    rates: Block
    top1: Block
    runs: Mapping[Candidate, Mapping[int | str, str]]
    once_s: Mapping[Candidate, float]  # what one run takes
    workers: int
    nodes: int

    def shared(self, axis: str) -> str | None:
        """Return the member of the room `axis` that all of its sides share."""
        value: str | None = getattr(self.where, axis)
        return value


def with_several_sides(given: Given, axis: str) -> list[Setting]:
    """Return the settings in which several sides of this axis were tried."""
    found: list[Setting] = given.cached(f"settings of {axis}", lambda: [*_settings(given, axis)])
    return found


def _settings(given: Given, axis: str) -> Iterator[Setting]:
    runs = together.timed(given.runs)
    if runs.empty:
        return
    several = runs.groupby("loader")["form"].nunique()
    with_several_forms = {
        str(name) for name in several.index[several > 1]
    }  # loaders that read several forms
    number = comparisons.group_numbers(
        runs, {"framework"} if axis == "framework" else {"loader", "form"}
    )
    varying = [
        name for name in comparisons.varying_settings(runs) if name not in ("model", "schedule")
    ]
    # As dictionaries: to cut a table of two hundred columns into groups takes seconds.
    columns = list(dict.fromkeys(name for name in (*READ, *varying) if name in runs))
    groups: dict[Any, list[Run]] = {}
    for key, run in zip(number, runs[columns].to_dict("records"), strict=True):
        groups.setdefault((key, run["loader"] if axis == "form" else None), []).append(run)
    parts = [part for part in groups.values() if len(_sides(part, axis, with_several_forms)) > 1]
    if axis == "framework":
        parts = [part for part in parts if not loads_nothing(part[0]["loader"])] or parts
    firsts = pd.DataFrame([part[0] for part in parts])
    varying = (
        [name for name in comparisons.varying_settings(firsts) if name in varying] if parts else []
    )
    for part in parts:
        yield _make_setting(part, axis, with_several_forms, varying)


def _sides(
    part: Sequence[Run], axis: str, with_several_forms: set[str]
) -> dict[Candidate, list[Run]]:
    """Return the runs of each side; a loader that reads several forms is a side with each of
    them.
    """
    sides: dict[Candidate, list[Run]] = {}
    for run in part:
        if axis == "framework":
            side = Candidate(framework=str(run["framework"]))
        elif axis == "form":
            side = Candidate(form=str(run["form"]))
        else:
            form = (
                str(run["form"])
                if str(run["loader"]) in with_several_forms and not pd.isna(run["form"])
                else None
            )
            side = Candidate(loader=str(run["loader"]), form=form)
        sides.setdefault(side, []).append(run)
    return dict(sorted(sides.items(), key=lambda one: str(one[0])))


def _make_setting(
    part: Sequence[Run], axis: str, with_several_forms: set[str], varying: Sequence[str]
) -> Setting:
    first, sides = part[0], _sides(part, axis, with_several_forms)
    own = first["loader"] == OWN
    shared = {
        name: str(first[name]) for name in ("framework", "loader") if name != axis and not own
    }
    if axis == "framework" and not own and str(first["loader"]) in with_several_forms:
        shared["form"] = str(first["form"])
    where = Candidate(
        **shared,
        workers=int(first["workers"]),
        batch=None if pd.isna(first["global_batch"]) else int(first["global_batch"]),
        schedule=None if first["schedule"] == OWN else str(first["schedule"]),
        model=str(first["model"]),
        more=tuple((name, first[name]) for name in varying if not pd.isna(first[name])),
    )
    size = float(first["workers"])
    rates = {
        side: {_repeat(run): math.log(run[RATE]) for run in runs} for side, runs in sides.items()
    }
    top1 = {
        side: {
            _repeat(run): 100 * float(run["final_top1"])
            for run in runs
            if not pd.isna(run["final_top1"])
        }
        for side, runs in sides.items()
    }
    return Setting(
        where,
        Block(where, rates, size),
        Block(where, {side: values for side, values in top1.items() if values}, size),
        {side: {_repeat(run): str(run["run"]) for run in runs} for side, runs in sides.items()},
        {side: median(float(run["run_s"]) for run in runs) for side, runs in sides.items()},
        int(first["workers"]),
        1 if pd.isna(first.get("nodes")) else int(first["nodes"]),
    )


def _repeat(run: Run) -> int | str:
    """Return the key by which a run is paired: its repeat.

    Runs of others are keyed by their name, which makes no pair (`together.by_repeat`).
    """
    ours = pd.isna(run.get("records")) or run["records"] == "ours"
    return int(run["repeat"]) if ours else str(run["run"])


def number_of_pairs(given: Given) -> int:
    """Return of how many pairs of sides the first screen shows verdicts: they are judged as so many
    comparisons.
    """
    return max(
        1, sum(math.comb(len(all_sides(with_several_sides(given, axis))), 2) for axis in AXES)
    )


def all_sides(found: Iterable[Setting]) -> list[Candidate]:
    """Return the sides that were tried in any of these settings, in the order of the settings."""
    return list(dict.fromkeys(side for setting in found for side in setting.rates.cells))
