"""How training scales: throughput, speed-up and efficiency, each formula once.

Source: Aach et al. 2023, J Big Data 10:96, doi:10.1186/s40537-023-00765-w, section "Efficiency".
"""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

import pandas as pd

from ddlbench.spec import RunSpec

Number = TypeVar("Number", float, "pd.Series[float]")

# Runs of one series differ in these only; the batch size is a key of its own kind, see `scaling`.
_WITHIN = {"workers", "workers_per_node", "global_batch", "repeat", "timed", "profiled"}
KEYS = tuple(field.name for field in fields(RunSpec) if field.name not in _WITHIN)
SERIES = (*KEYS, "batch_per_worker", "global_batch")


def throughput(images: Number, seconds: Number) -> Number:
    """DT [images/s]: images of timed steps over all ranks, by the wall time of these steps [s]."""
    return images / seconds


def speed_up(t_ref: Number, t_g: Number) -> Number:
    """S_G = T_ref / T_G: the time that the base needs, by the time that G workers need for as many images."""
    return t_ref / t_g


def efficiency(s_g: Number, ref: Number, g: Number) -> Number:
    """E_G = S_G * ref / G: speed-up by ideal speed-up, where the base has `ref` workers.

    The paper prints E_G = S_G / G. With its base of 4 GPUs that would make the base's own efficiency 0.25;
    its figures show 1 there, which is this form.
    """
    return s_g * ref / g


# The column with the time that speed-up and efficiency compare [s], by the basis that a study names.
TIMES = {"steps": "epoch_s", "run": "full_train_s"}


def scaling(runs: pd.DataFrame, basis: str = "steps") -> pd.DataFrame:
    """Series of runs over worker counts, one row per series and worker count; `runs` is the table of `collect`.

    Only successful timed runs count. Runs of one series are alike in all but workers, repeat and batch: they have the
    same batch per worker (weak scaling, `global_batch` is null), or the same global batch (strong scaling,
    `batch_per_worker` is null) where this gives fewer series. A series' base is its smallest worker count.

    Measures are means over `repeats` runs; `_min` and `_max` are the lowest and the highest repeat, compared with the
    base's mean. Throughput is in images/s. Speed-up compares mean times: of the training steps of an epoch (`basis`
    steps), or of the whole training with everything in it (`basis` run, as in the paper).
    """
    time = TIMES[basis]
    usable = runs[(runs["status"] == "success") & runs["throughput_images_per_s"].notna()]  # null: not timed
    usable = usable[usable[time].notna()]
    batch = pd.DataFrame(
        {
            "batch_per_worker": (usable["global_batch"] // usable["workers"]).astype("Int64"),
            "global_batch": usable["global_batch"].astype("Int64"),
        }
    )
    sizes = batch.groupby([usable[key] for key in KEYS], dropna=False).transform("nunique")
    weak = sizes["batch_per_worker"] <= sizes["global_batch"]
    usable = usable.assign(
        batch_per_worker=batch["batch_per_worker"].where(weak), global_batch=batch["global_batch"].mask(weak)
    )
    table = (
        usable.groupby([*SERIES, "workers"], dropna=False)
        .agg(
            repeats=("run", "count"),
            throughput_images_per_s=("throughput_images_per_s", "mean"),
            throughput_min=("throughput_images_per_s", "min"),
            throughput_max=("throughput_images_per_s", "max"),
            t_mean=(time, "mean"),
            t_min=(time, "min"),
            t_max=(time, "max"),
        )
        .reset_index()
    )
    # groupby sorts by workers within a series, so a series' first row is its base.
    base = table.groupby(list(SERIES), dropna=False)[["workers", "t_mean"]].transform("first")
    for name, compared in (("", "t_mean"), ("_min", "t_max"), ("_max", "t_min")):
        table[f"speed_up{name}"] = speed_up(base["t_mean"], table[compared])
    for name in ("", "_min", "_max"):
        table[f"efficiency{name}"] = efficiency(table[f"speed_up{name}"], base["workers"], table["workers"])
    table["ref_workers"] = base["workers"]
    return table.drop(columns=["t_mean", "t_min", "t_max"])
