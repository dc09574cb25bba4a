"""What a training costs: the cheapest, the one that the other answers take, and the fastest, with
time and price.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.answers import Answer, Candidate, Choice, Fact, Given, Row, loads_nothing
from ddlbench.answers.questions import _batches, _series, _sides

PLACE = 80
DECIDES: tuple[str, ...] = ()
ROWS = 8
MORE = 1.1  # times as much money as another is worth a sentence
KJ_PER_KWH = 3600.0


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the cheapest whole training, where a price or an energy is known; of what learns, and
    as well as the others.
    """
    runs = given.runs
    runs = runs[~runs["loader"].map(loads_nothing).astype(bool)]
    for axis in ("framework", "loader"):
        runs = runs[~runs[axis].isin([getattr(side, axis) for side in _sides.losing(given, axis)])]
    timed = runs[runs["full_train_s"].notna() & runs["timed"].astype(bool)]
    spent, unit = (
        timed["full_energy_j"].astype("float64").map(given.tariff.energy_kwh) * KJ_PER_KWH,
        "kJ",
    )
    if given.tariff.currency is not None:
        spent, unit = (
            pd.Series(_prices(given, timed), timed.index, "float64"),
            given.tariff.currency,
        )
    timed = timed.assign(spent=spent)[spent > 0]  # counters that stand still measured nothing
    # A program ends when it likes: only its runs on as many samples cost alike.
    timed = timed.assign(trained=timed["images"].where(together.of_programs(timed)))
    if timed.empty:
        return None
    number = timed.groupby(["model", *_series.SAME, "trained"], dropna=False).ngroup()
    same = timed[number == number.mode().iloc[0]]
    lost = _batches.losing(given, same)
    learnt = [pair not in lost for pair in zip(same["schedule"], same["global_batch"], strict=True)]
    same = same[learnt]
    parts = _parts(given, same)
    if len(parts) < 2 or parts[-1][0].middle <= MORE * parts[0][0].middle:
        return None
    rows = [row for row, _ in parts]
    cheapest, quickest = parts[0], min(parts, key=lambda part: part[1]["full_train_s"].median())
    fitting = [part for part in parts if _fits(part[0].candidate, choice)]
    chosen = max(fitting, key=lambda part: _learns_as(part[1], choice), default=None)
    named = {"cheapest": cheapest}
    if chosen and chosen is not cheapest:
        named["chosen"] = chosen
    if quickest[0] not in [row for row, _ in named.values()]:
        named["fastest"] = quickest
    facts = [
        Fact(name, {"candidate": row.candidate, "middle": row.middle, "low": row.low, "high": row.high, "n": row.n,
                    "time_s": float(part["full_train_s"].median())})
        for name, (row, part) in named.items()
    ]  # fmt: skip
    length: dict[str, Any] = {"model": str(same["model"].iloc[0]), "samples": None, "epochs": None}
    if together.of_programs(same).all():
        length["samples"] = float(same["trained"].iloc[0])
    else:
        length["epochs"] = int(same["of_epochs"].fillna(same["epochs"]).iloc[0])
    kept = rows[:ROWS]
    if chosen and not any(row is chosen[0] for row in kept):
        kept = [*kept[:-1], chosen[0]]
    return Answer(
        question="cost",
        rule="cheapest",
        certainty=_series.certainty_of_least(rows),
        taken=rows[0].candidate,
        among=tuple(row.candidate for row in rows),
        as_good=tuple(row.candidate for row in rows[1:] if not _series.below(rows[0], row)),
        measure="spent",
        unit=unit,
        rows=tuple(kept),
        hidden=len(rows) - len(kept),
        why=(Fact("training", length), *facts),
        runs=tuple(dict.fromkeys(run for row in kept for run in row.runs)),
    )


def _prices(given: Given, timed: pd.DataFrame) -> list[float | None]:
    """Return the cost of each complete training. Runs of others did not use our nodes: they are
    priced by their workers.
    """
    prices = []
    for run in timed.to_dict("records"):
        nodes = int(run["nodes"]) if given.ours else 0
        blocked = given.tariff.workers_blocked(int(run["workers"]), nodes)
        prices.append(given.tariff.price(run["full_train_s"] / 3600, blocked))
    return prices


def _parts(given: Given, runs: pd.DataFrame) -> list[tuple[Row, pd.DataFrame]]:
    """Return a row for each setting with its runs, the cheapest first."""
    alike = runs.groupby("workers")
    tell = [
        name
        for name in ("schedule", "batch")
        if len(runs) and alike[_column(name)].nunique().max() > 1
    ]
    keys = [*_series.SIDES, "model", "workers", "global_batch", "schedule"]
    groups = runs[[*keys, "run", "spent", "full_train_s", "machine"]].groupby(keys, dropna=False)
    parts = sorted((part for _, part in groups), key=lambda part: float(part["spent"].median()))
    names = ("framework", "loader", "workers", *tell)
    return [
        (
            _series.row(
                given, _series.candidate(part.iloc[0], *names), part, "spent", taken=n == 0
            ),
            part,
        )
        for n, part in enumerate(parts)
    ]


def _column(name: str) -> str:
    return "global_batch" if name == "batch" else name


def _fits(candidate: Candidate, choice: Choice) -> bool:
    """Return whether a training is the one that the other answers take, as far as they say."""
    wanted = {name: getattr(choice, name) for name in ("framework", "loader", "workers")}
    return any(wanted.values()) and all(
        value is None or getattr(candidate, name) == value for name, value in wanted.items()
    )


def _learns_as(runs: pd.DataFrame, choice: Choice) -> int:
    """Return how many of batch and schedule are those that the other answers take. They may be of
    another model, so none is demanded.
    """
    first = runs.iloc[0]
    wanted = (("global_batch", choice.batch), ("schedule", choice.schedule))
    return sum(value is not None and first[name] == value for name, value in wanted)
