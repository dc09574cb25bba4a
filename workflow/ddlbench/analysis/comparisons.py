"""Two frameworks, loaders or forms under the same settings: the ratio of their throughputs, and the
verdict on it.

`significance.control_false_discoveries` decides, over all rows together, because people read them
together. What the first screen takes is decided over all settings at once (`over_settings.py`).
What more repeats would cost is given in worker hours and in money; each is taken to be as long as
the finished ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.price import FREE, Tariff
from ddlbench.analysis.scaling import loader_names
from ddlbench.analysis.significance import control_false_discoveries, ratio
from ddlbench.core.columns import Column
from ddlbench.core.roles import EXTENT, SETTING, SIZE

SHOWN = together.with_roles(SETTING, SIZE, EXTENT, without=("of_epochs", "interrupt_steps"))
# Settings that sentences, titles and legends name where rows differ in them.
DISTINGUISHING = together.with_roles(
    *(SETTING, EXTENT),
    without=("machine", "of_epochs", "interrupt_steps"),
    first=("model", "recipe", "schedule"),
)
NUMBERS = {
    "workers": "int64",
    "global_batch": "Int64",
    "epochs": "Int64",
    "bandwidth_mbit": "float64",
}
COLUMNS = (
    Column(
        "compared",
        "str",
        "What the sides differ in: `framework`, `loader`, or the `form` that one loader reads.",
    ),
    Column(
        "left",
        "str",
        "One side; a loader that reads several forms in the study is named with its form.",
    ),
    Column("right", "str", "The other side."),
    Column(
        "with",
        "str",
        "What both share: the loader, the framework, or both where forms are compared.",
    ),
    *(Column(name, NUMBERS.get(name, "str"), "Of both.") for name in SHOWN),
    Column(
        "ratio",
        "float64",
        "Throughput of the left side over that of the right one: median over pairs of repeats.",
    ),
    Column(
        "low",
        "float64",
        "Lower end of the ratio's 95 % interval; null for one pair. It is wider where few of many"
        " differ significantly, and contains 1 where the difference is not significant"
        " (docs/statistics.md).",
    ),
    Column("high", "float64", "Upper end of that interval."),
    Column("n", "int64", "Pairs: repeats that both sides have."),
    Column(
        "verdict",
        "str",
        "The left side: `faster`, `slower`, `cannot tell`; all rows are judged at once.",
    ),
    Column(
        "more_repeats",
        "Int64",
        "How many more pairs would probably decide; null if it is decided, or if that cannot be"
        " estimated.",
    ),
    Column(
        "more_worker_hours",
        "float64",
        "Worker hours of these pairs if they take as long as the finished ones.",
        "h",
    ),
    Column(
        "more_price",
        "float64",
        "What these pairs cost, with the workers of their nodes that nobody else can use meanwhile;"
        " null where the machine's file names no price.",
    ),
    Column("currency", "str", "Currency of that price."),
    Column("runs", "str", "The runs of both sides, separated by spaces."),
)


def rows(runs: pd.DataFrame, tariff: Tariff = FREE) -> list[dict[str, Any]]:
    """Return rows of table `comparisons`, from table `runs`: each pair of sides with the same
    settings, timed and finished.
    """
    usable = together.timed(runs)
    usable = usable.assign(
        named=loader_names(usable),
        both=usable["framework"] + " and " + usable["loader"].astype(str),
    )
    table = [*_frameworks(usable), *_loaders(usable)]
    for row, comparison in zip(
        table, control_false_discoveries([row.pop("comparison") for row in table]), strict=True
    ):
        run_h, workers, nodes = row.pop("run_h"), int(row["workers"]), row.pop("nodes")
        row |= {
            "ratio": comparison.middle,
            "low": comparison.low,
            "high": comparison.high,
            "n": comparison.n,
            "verdict": comparison.verdict,
        }
        hours = comparison.more * run_h if comparison.more else None
        own_hours = None if hours is None else hours * workers
        row |= {
            "more_repeats": comparison.more or None,
            "more_worker_hours": own_hours,
            "runs": row.pop("runs"),
        }
        sold = tariff.price(hours, tariff.workers_blocked(workers, nodes))
        row |= {"more_price": sold, "currency": None if sold is None else tariff.currency}
    return table


def varying_settings(table: pd.DataFrame) -> list[str]:
    """Return the settings of DISTINGUISHING in which these rows differ."""
    return [
        name for name in DISTINGUISHING if name in table and table[name].nunique(dropna=False) > 1
    ]


def setting_titles(row: Mapping[Any, Any], names: Iterable[str]) -> list[str]:
    """Format these settings of a row for sentences, leaving out those that it does not have."""
    return [together.title(name, row[name]) for name in names if not pd.isna(row[name])]


def _frameworks(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for group in groups_differing_in(runs, {"framework"}):
        sides = [(str(name), side) for name, side in group.groupby("framework")]
        for (left, left_runs), (right, right_runs) in combinations(sides, 2):
            yield _row(
                {"compared": "framework", "left": left, "right": right},
                "named",
                left_runs,
                right_runs,
            )


def _loaders(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield comparisons of loaders that read the same form, or of which neither reads the other's
    form here; and of forms of one loader.
    """
    for group in groups_differing_in(runs, {"loader", "form"}):
        sides = [side for _, side in group.groupby(["loader", "form"], dropna=False)]
        reads = group.groupby("loader")["form"].agg(set)
        for left_runs, right_runs in combinations(sides, 2):
            (left, right), (form, other_form) = (
                [side[name].iloc[0] for side in (left_runs, right_runs)]
                for name in ("loader", "form")
            )
            if left == right:
                yield _row(
                    {"compared": "form", "left": form, "right": other_form},
                    "both",
                    left_runs,
                    right_runs,
                )
            elif form == other_form or not (form in reads[right] or other_form in reads[left]):
                named = {"left": left_runs["named"].iloc[0], "right": right_runs["named"].iloc[0]}
                yield _row({"compared": "loader", **named}, "framework", left_runs, right_runs)


def groups_differing_in(runs: pd.DataFrame, settings: set[str]) -> Iterator[pd.DataFrame]:
    """Yield the groups of runs that differ in nothing but these settings and their repeat."""
    for _, group in runs.groupby(_shared_settings(settings), dropna=False):
        yield group


def group_numbers(runs: pd.DataFrame, settings: set[str]) -> pd.Series[int]:
    """Return the number of each run's group, as `groups_differing_in` makes them."""
    return runs.groupby(_shared_settings(settings), dropna=False).ngroup()


def _shared_settings(settings: set[str]) -> list[str]:
    return [name for name in together.SAME if name not in together.differing_with(*settings)]


def _row(
    sides: dict[str, str], shared: str, left: pd.DataFrame, right: pd.DataFrame
) -> dict[str, Any]:
    """Return the row of a comparison. `shared` is the column of what both sides have in common."""
    left_rates, right_rates = (
        together.by_repeat(side, "throughput_images_per_s") for side in (left, right)
    )
    first = left.iloc[0]
    row = sides | {"with": first[shared]} | {name: first[name] for name in SHOWN}
    run_h = sum(float(side["run_s"].median()) / 3600 for side in (left, right))
    runs = " ".join(sorted([*left["run"], *right["run"]]))
    # Of others' records all that they took is said by their workers: they were made on no node of
    # ours.
    nodes = int(first["nodes"]) if together.are_ours(left).all() else 0
    return row | {
        "comparison": ratio(left_rates, right_rates),
        "run_h": run_h,
        "nodes": nodes,
        "runs": runs,
    }
