"""What a training costs where nodes are interrupted: node hours at their price, and the expected
loss by interruptions.

Interruptions are taken to come at random, at a constant rate for each node: the time between those
of a run on n nodes is exponential, with the mean of one node divided by n. A run writes a
checkpoint after each interval of training; an interruption, also one of a checkpoint or of a
restart, costs a restart and the work since the last checkpoint.

Sources: Young 1974, Communications of the ACM 17 (9), 530-531, doi:10.1145/361147.361115; Daly
2006, Future Generation Computer Systems 22 (3), 303-312, doi:10.1016/j.future.2004.11.016.
Checkpoints and restarts are measured (`interruptions.py`); without them, or without the machine's
mean time between interruptions, nothing is said.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.sheets import Sheet, Terms
from ddlbench.core.columns import Column
from ddlbench.core.roles import AXIS, SETTING, SIZE

# Of runs that are alike but for repeats: an interrupted one may train fewer epochs, under another
# schedule.
LENGTH = ("schedule", "epochs", "of_epochs")
# Columns of table `runs` beside the settings.
NEEDED = ("run", "repeat", "nodes", "full_train_s", "checkpoint_s", "restart_s")
ALIKE = together.with_roles(SETTING, AXIS, SIZE, without=LENGTH)
# Others' records may leave out how many epochs there were, and their batch.
TYPES = dict.fromkeys(("global_batch", "epochs", "of_epochs", "bandwidth_mbit"), "Int64") | {
    "workers": "int64"
}
CHOSEN, YOUNG, DALY = "chosen", "Young", "Daly"
POINTS = 25  # of the curve over intervals
COLUMNS = (
    Column("run", "str", "The first of the undisturbed runs that the row rests on."),
    *(Column(name, TYPES.get(name, "str"), "Of these runs.") for name in (*ALIKE, *LENGTH)),
    Column("nodes", "int64", "Nodes that the run fills."),
    Column(
        "interval",
        "str",
        "`chosen` (`checkpoint`), `Young`, `Daly`, or null: a point of the curve.",
    ),
    Column(
        "interval_s",
        "float64",
        "Training between two checkpoints; null where none is written.",
        "s",
    ),
    Column(
        "train_s",
        "float64",
        "Training time of all epochs without interruptions: median of `full_train_s`.",
        "s",
    ),
    Column(
        "checkpoint_s",
        "float64",
        "Median of `checkpoint_s` of interrupted runs of these settings.",
        "s",
    ),
    Column("restart_s", "float64", "Median of their `restart_s`.", "s"),
    Column("n", "int64", "How many interrupted runs that is."),
    Column(
        "between_s",
        "float64",
        "Mean time between interruptions of the run: the machine's, by its nodes.",
        "s",
    ),
    Column(
        "expected_s", "float64", "Expected time with checkpoints, interruptions and restarts.", "s"
    ),
    Column("loss_percent", "float64", "What `expected_s` is above `train_s`.", "%"),
    Column("node_hours", "float64", "Node hours of `train_s`.", "h"),
    Column(
        "loss_node_hours",
        "float64",
        "Node hours of the part of `expected_s` beyond `train_s`.",
        "h",
    ),
    Column(
        "cost", "float64", "`node_hours` at the machine's price; null where its file names none."
    ),
    Column("loss_cost", "float64", "`loss_node_hours` at that price."),
    Column("currency", "str", "Currency of that price."),
    Column("why", "str", "Why there is no loss."),
)


def young_s(checkpoint_s: float, between_s: float) -> float:
    """Compute Young's optimal interval between checkpoints [s]: sqrt(2 C M). Source: Young 1974."""
    return math.sqrt(2 * checkpoint_s * between_s)


def daly_s(checkpoint_s: float, between_s: float) -> float:
    """Compute Daly's optimal interval [s]: sqrt(2 C M) (1 + x/3 + x^2/9) - C with x = sqrt(C / 2M);
    M where C is 2M or more.

    Source: Daly 2006, the higher order estimate.
    """
    if checkpoint_s >= 2 * between_s:
        return between_s
    x = math.sqrt(checkpoint_s / (2 * between_s))
    return young_s(checkpoint_s, between_s) * (1 + x / 3 + x**2 / 9) - checkpoint_s


def expected_s(
    train_s: float,
    interval_s: float | None,
    checkpoint_s: float,
    restart_s: float,
    between_s: float,
) -> float:
    """Compute the expected time of `train_s` of training [s]; infinite where a double is too small
    for it.

    With checkpoints it is M exp(R/M) (exp((t + C)/M) - 1) train_s / t, the complete model of Daly
    2006, for a training that is long beside the interval t. Without (`interval_s` None) all work is
    one piece: M exp(R/M) (exp(train_s/M) - 1).
    """
    piece, count = (
        (train_s, 1.0) if interval_s is None else (interval_s + checkpoint_s, train_s / interval_s)
    )
    try:
        return between_s * math.exp(restart_s / between_s) * math.expm1(piece / between_s) * count
    except OverflowError:
        return math.inf


def rows(runs: pd.DataFrame, terms: Terms) -> list[dict[str, Any]]:
    """Return rows of table `costs`, from table `runs`: for each setting the chosen interval, the
    best ones, and a curve.
    """
    done = runs[runs["full_train_s"].notna()]
    # A table of 150 columns is slow to select from, once for each setting.
    needed = [*ALIKE, *LENGTH, *NEEDED]
    undisturbed = together.usable(done)[needed]
    killed = together.successful(done[together.was_killed(done)])[needed]
    table: list[dict[str, Any]] = []
    for values, group in undisturbed.groupby([*ALIKE, *LENGTH], dropna=False):
        same: dict[str, Any] = dict(zip((*ALIKE, *LENGTH), values, strict=True))
        row = same | {
            "run": group.sort_values("repeat")["run"].iloc[0],
            "nodes": int(group["nodes"].iloc[0]),
        }
        table += _of_setting(
            row,
            float(group["full_train_s"].median()),
            together.rows_like(killed, same, ALIKE),
            terms,
        )
    return table


def _chosen_s(train_s: float, epochs: Any, terms: Terms) -> float | None:
    """Return the time between two checkpoints as the configuration has it [s]; None where it has
    none. Of minutes and epochs, what comes first counts.
    """
    intervals = []
    if terms.checkpoint_minutes is not None:
        intervals.append(terms.checkpoint_minutes * 60)
    if terms.checkpoint_epochs is not None and not pd.isna(epochs):
        intervals.append(terms.checkpoint_epochs * train_s / float(epochs))
    return min(intervals, default=None)


def _of_setting(
    row: dict[str, Any], train_s: float, killed: pd.DataFrame, terms: Terms
) -> list[dict[str, Any]]:
    measured = killed[killed["checkpoint_s"].notna() & killed["restart_s"].notna()]
    hours = row["nodes"] * train_s / 3600
    node_tariff = Tariff(terms.node_hour_price)  # of which a node is a worker
    row |= {"train_s": train_s, "n": len(measured), "node_hours": hours, "currency": terms.currency}
    row |= {"cost": node_tariff.price(hours, 1)}
    chosen_s = _chosen_s(train_s, row["of_epochs"], terms)
    if measured.empty or terms.node_hours_between is None:
        why = "no interrupted run of these settings left a checkpoint" if measured.empty else ""
        unknown = "the machine's file does not say how often nodes are interrupted"
        why = "; ".join(filter(None, [why, unknown if terms.node_hours_between is None else ""]))
        return [row | {"interval": CHOSEN, "interval_s": chosen_s, "why": why}]
    between_s = terms.node_hours_between * 3600 / row["nodes"]
    checkpoint_s, restart_s = (
        float(measured[name].median()) for name in ("checkpoint_s", "restart_s")
    )
    row |= {"checkpoint_s": checkpoint_s, "restart_s": restart_s, "between_s": between_s}
    best = {YOUNG: young_s(checkpoint_s, between_s), DALY: daly_s(checkpoint_s, between_s)}
    around = best[DALY] * np.geomspace(0.03, 30, POINTS)
    at: list[tuple[str | None, float | None]] = [
        (CHOSEN, chosen_s),
        *best.items(),
        *((None, float(s)) for s in around),
    ]

    def priced(name: str | None, interval_s: float | None) -> dict[str, Any]:
        took = expected_s(train_s, interval_s, checkpoint_s, restart_s, between_s)
        lost = row["nodes"] * (took - train_s) / 3600
        values = {
            "interval": name,
            "interval_s": interval_s,
            "expected_s": took,
            "loss_node_hours": lost,
        }
        values |= {"loss_percent": 100 * (took - train_s) / train_s}
        return row | values | {"loss_cost": node_tariff.price(lost, 1)}

    return [priced(*interval) for interval in at]


SHEET = Sheet(
    "What trainings cost where nodes are interrupted (`analysis/sheets/costs.py`): per setting one"
    " row for the chosen interval between checkpoints, for the best ones, and for each point of the"
    " curve over intervals.",
    COLUMNS,
    place=65,
    of_study=lambda _, gathered: rows(gathered.runs(), gathered.costs.terms),
)
