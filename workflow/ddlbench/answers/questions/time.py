"""How long to the target: the settings that reach the accuracy which a figure names soonest."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import varying_settings
from ddlbench.analysis.scaling import in_series, interval_of
from ddlbench.analysis.together import SERIES
from ddlbench.answers import Answer, Candidate, Choice, Dot, Fact, Given, Row
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
    shown = table.head(ROWS)
    tell = [name for name in varying_settings(shown) if name not in ("machine",)]
    rows = [_row(given, one, tell, n == 0) for n, one in enumerate(shown.to_dict("records"))]
    best = together.rows_like(
        in_series(together.usable(given.runs)), shown.iloc[0], [*SERIES, "workers"]
    )
    facts = []
    energy_kwh = given.tariff.energy_kwh(float(best["full_energy_j"].median()))
    if energy_kwh is not None and energy_kwh == energy_kwh:
        facts.append(Fact("energy", {"energy_kwh": energy_kwh}))
    hours = shown["workers"] * shown["reached_s"] / 3600
    if shown["workers"].nunique() > 1:
        least = int(hours.argmin())
        facts.append(
            Fact(
                "fewest hours",
                {"candidate": rows[least].candidate, "hours": float(hours.iloc[least])},
            )
        )
    return Answer(
        question="time",
        rule="soonest",
        certainty=_series.certainty_of_least(rows),
        taken=rows[0].candidate,
        among=tuple(row.candidate for row in rows),
        as_good=tuple(row.candidate for row in rows[1:] if not _series.below(rows[0], row)),
        measure="seconds",
        unit=f"{target:g}",
        rows=tuple(rows),
        hidden=len(table) - len(shown),
        why=tuple(facts),
        runs=tuple(best["run"].astype(str)),
    )


def _row(given: Given, one: dict[Any, Any], varying: list[str], taken: bool) -> Row:
    seen = interval_of(one, "reached_s")
    candidate = _series.candidate(one, "framework", "loader", "workers")
    more = tuple((name, one[name]) for name in varying if not pd.isna(one[name]))
    each = json.loads(one["each"]) if isinstance(one.get("each"), str) else [seen.middle]
    dots = tuple(Dot(float(value)) for value in each)
    named = Candidate(**{**vars(candidate), "more": more})
    return Row(named, seen.middle, seen.low, seen.high, seen.n, 1, dots, taken)
