"""How long to the target: the settings that reach the accuracy which a figure names soonest."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import varying_settings
from ddlbench.analysis.scaling import in_series, interval_of
from ddlbench.analysis.together import SERIES
from ddlbench.answers import Answer, Candidate, Certainty, Choice, Dot, Fact, Given, Row
from ddlbench.answers.questions import _series

PLACE = 70
DECIDES: tuple[str, ...] = ()
ROWS = 8


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return what reaches the least of the study's targets soonest."""
    reached = given.tables.get("reached", pd.DataFrame())
    if not len(reached):
        return None
    target = float(reached["target"].min())
    table = reached[reached["target"] == target].sort_values("reached_s")
    tell = [name for name in varying_settings(table) if name not in ("machine",)]
    rows = [_row(one, tell, n == 0) for n, one in enumerate(table.to_dict("records"))]
    best = given.runs[given.runs["run"].isin(json.loads(table["runs"].iloc[0]))]
    facts = []
    energy_kwh = given.tariff.energy_kwh(float(best["full_energy_j"].median()))
    if energy_kwh is not None and energy_kwh == energy_kwh:
        facts.append(Fact("energy", {"energy_kwh": energy_kwh}))
    hours = table["workers"] * table["reached_s"] / 3600
    if table["workers"].nunique() > 1:
        least = int(hours.argmin())
        facts.append(
            Fact(
                "fewest hours",
                {"candidate": rows[least].candidate, "hours": float(hours.iloc[least])},
            )
        )
    tried = _tried(given, table.iloc[0])
    certainty = _series.certainty_of_least(rows)
    if len(best) < tried:
        facts.append(Fact("missed", {"reached": len(best), "of": tried}))
        # The times of those that reached the target say nothing of the others.
        certainty = Certainty.AHEAD if certainty is Certainty.SURE else certainty
    return Answer(
        question="time",
        rule="soonest",
        certainty=certainty,
        taken=rows[0].candidate,
        among=tuple(row.candidate for row in rows),
        as_good=tuple(row.candidate for row in rows[1:] if not _series.below(rows[0], row)),
        measure="seconds",
        unit=f"{target:g}",
        rows=tuple(rows[:ROWS]),
        hidden=len(rows[ROWS:]),
        why=tuple(facts),
        runs=tuple(best["run"].astype(str)),
    )


def _tried(given: Given, setting: pd.Series[Any]) -> int:
    """Return how many runs of this setting have an accuracy, whether they reached the target or
    not. Of others' logs only those that did are read.
    """
    if not given.ours:
        return 0
    alike = together.rows_like(in_series(given.runs), setting, [*SERIES, "workers"])
    return int(alike["final_top1"].notna().sum())


def _row(one: dict[Any, Any], varying: list[str], taken: bool) -> Row:
    seen = interval_of(one, "reached_s")
    candidate = _series.candidate(one, "framework", "loader", "workers")
    more = tuple((name, one[name]) for name in varying if not pd.isna(one[name]))
    each = json.loads(one["each"]) if isinstance(one.get("each"), str) else [seen.middle]
    dots = tuple(Dot(float(value)) for value in each)
    named = Candidate(**{**vars(candidate), "more": more})
    return Row(named, seen.middle, seen.low, seen.high, seen.n, 1, dots, taken)
