"""Predictions for the runs of a study: one row per series and asked worker count. `snakemake predict` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddlbench.analysis.comparisons import TELLING, settings, telling
from ddlbench.analysis.prediction import Measured, TooLittleError, _priors, _series, last_rate
from ddlbench.core.plural import around
from ddlbench.core.program import IMAGES

if TYPE_CHECKING:
    import pandas as pd

    from ddlbench.analysis.prediction._priors import Priors

SHOWN = (*TELLING, "framework", "loader", "batch_per_worker")


def asked(measured: Sequence[int], planned: Iterable[int]) -> list[int]:
    """The counts beyond the largest measured one: three doublings, and what the study plans, up to eight times it."""
    largest = max(measured)
    return sorted({largest * 2**k for k in (1, 2, 3)} | {n for n in planned if largest < n <= 8 * largest})


def rows(
    runs: pd.DataFrame,
    workers_per_node: int,
    planned: Iterable[int] = (),
    price_per_hour: float | None = None,
    priors: Priors | None = None,
    workers: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Predictions of all series in `runs`, the table of `collect`.

    `workers_per_node` and `price_per_hour` (of one worker) are the machine's; `workers` are the counts, if not `asked`.
    A larger count has the batch per worker of the largest measured one, under strong scaling its share of the global
    batch. A row says in `why_not` why nothing is predicted; its numbers are then null.
    """
    import pandas as pd

    priors = priors or _priors.read()
    table: list[dict[str, Any]] = []
    for line in _series.lines(runs):
        first, batches = line.first, line.batches
        if batches is None:  # of others, who do not say it
            continue
        measured = line.measured(line.node(workers_per_node), batches)
        epochs = line.runs["of_epochs"].max()
        images = float(line.runs["images_seen"].median() if pd.isna(epochs) else line.images * epochs)
        for count in workers or asked(measured.workers, planned):
            batch = line.whole / count if line.whole else batches[-1]
            row = {key: first[key] for key in SHOWN} | {"loader": first["named"], "batch_per_worker": batch}
            row |= {"measured": " ".join(map(str, measured.workers)), "workers": count, "by": "last rate"}
            row |= {"runs": " ".join(sorted(line.runs["run"]))}
            table.append({**row, **_row(measured, count, batch, images, price_per_hour, line.power_w, priors)})
    return table


def _row(
    measured: Measured,
    count: int,
    batch: float,
    images: float,
    price: float | None,
    power_w: float | None,
    priors: Priors,
) -> dict[str, Any]:
    names = ("images_per_s", "low", "high", "efficiency", "train_h", "train_h_low", "train_h_high", "worker_hours")
    row: dict[str, Any] = dict.fromkeys((*names, "price", "energy_kwh"))
    try:
        prediction = last_rate.predict(measured, [count], [batch], priors)
    except TooLittleError as error:
        return {**row, "why_not": str(error), "next_run": None}
    rate = float(prediction.images_per_s[0])
    hours = images / rate / 3600
    row |= {"images_per_s": rate, "train_h": hours, "worker_hours": hours * count, "why_not": None}
    row["efficiency"] = rate / measured.images_per_s[0] * measured.workers[0] / count
    row |= {"low": float(prediction.low[0]), "high": float(prediction.high[0])}
    row |= {"train_h_low": images / row["high"] / 3600, "train_h_high": images / row["low"] / 3600}
    row["price"] = None if price is None else hours * count * price
    row["energy_kwh"] = None if power_w is None else power_w * count * hours / 1000
    candidates = dict.fromkeys(_between(measured.workers[-1], count), images / (rate / count) / 3600)
    row["next_run"] = last_rate.next_run(measured, count, candidates)
    return row


def _between(largest: int, count: int) -> list[int]:
    """Doublings after the largest measured count, below the asked one."""
    return [n for n in (largest * 2**k for k in range(1, 20)) if n < count]


def lines(table: Sequence[dict[str, Any]], sample: str = IMAGES) -> list[str]:
    """The rows as text for a terminal; what is not predicted for one reason stands below it. `sample` is what steps
    count."""
    import pandas as pd

    whole = "training in full" if sample == IMAGES else f"as many {sample} as the longest run had"
    text = [f"predicted {sample}/s (95 % interval), efficiency of throughput, hours of {whole}:"]
    refused: dict[tuple[str, str], list[str]] = {}  # worker counts by series and reason
    differ = ["model", *(name for name in telling(pd.DataFrame(table)) if name != "model")]
    for row in table:
        title = " ".join(dict.fromkeys([*settings(row, differ), row["framework"], *filter(None, [row["loader"]])]))
        title += f", batch {row['batch_per_worker']:.4g} per worker"
        title += f" (measured: {row['measured']} workers)"
        if row["why_not"]:
            refused.setdefault((title, row["why_not"]), []).append(str(row["workers"]))
            continue
        rate = around(row["images_per_s"], row["low"], row["high"])
        numbers = f"{rate}, {row['efficiency']:.2f}, {row['train_h']:.3g} h"
        text.append(f"  {title}: {row['workers']} workers: {numbers}")
        if row["next_run"]:
            text.append(f"      a run with {row['next_run']} workers would narrow this most per hour")
    series: dict[tuple[str, str], list[str]] = {}
    for (title, why), counts in refused.items():
        series.setdefault((", ".join(counts), why), []).append(title)
    for (counted, why), whats in series.items():
        text += [f"  not {counted} workers: {why}:", *(f"      {title}" for title in whats)]
    return text if table else ["nothing to predict: no timed run of a series over worker counts is done"]
