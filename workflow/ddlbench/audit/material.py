"""Tables to what is audited: those of a study, as `collect` wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ddlbench.analysis.scaling import scaling
from ddlbench.analysis.together import KEYS, ended_well, successful, words
from ddlbench.audit import AUDITED, Material, _neighbours
from ddlbench.audit._compare import positive, timed
from ddlbench.core import kinds

# What `scaling` computes, and what rules call it.
QUANTITIES = {
    "throughput_images_per_s": "throughput",
    "speed_up": "speed-up",
    "efficiency": "efficiency",
}
NAMED = ("model", "framework", "loader", "schedule", "global_batch", "workers", "quantity")
COUNTS = ("workers", "global_batch", "repeat")  # columns that distinguish runs


def of_study(
    folder: Path,
    convergence: Path | None = None,
    runs: Path | None = None,
    further: Sequence[str] = (),
) -> Material:
    """Read the tables in a study's folder. Raises FileNotFoundError without `runs`.

    `convergence` is a file of reference convergence points. `runs` is the folder with the records
    of all studies. `further` are repeats (ids) that a study made until it was decided.
    """
    if not (folder / "runs.parquet").exists():
        raise FileNotFoundError(
            2, "no tables yet; make them with: snakemake tables", str(folder / "runs.parquet")
        )
    paths = {name: folder / f"{name}.parquet" for name in AUDITED}
    tables = {name: pd.read_parquet(path) for name, path in paths.items() if path.exists()}
    if (
        runs is not None
        and "started_s" in tables["runs"]
        and tables["runs"]["started_s"].notna().any()
    ):
        tables["neighbours"] = _neighbours.read(runs, float(tables["runs"]["started_s"].min()))
    if further:
        tables["further"] = pd.DataFrame({"run": [*further]})
    return of_tables(tables, convergence)


def of_tables(tables: Mapping[str, pd.DataFrame], convergence: Path | None = None) -> Material:
    """Return tables of `collect` as the material of an audit.

    Raises ValueError for runs without names, and for invalid counts.
    """
    audited = dict(tables)
    if "run" not in audited["runs"]:
        raise ValueError("table runs has no column run, which names each run")
    for name in [name for name in COUNTS if name in audited["runs"]]:
        counts = audited["runs"][name]
        for run, value in (
            audited["runs"]
            .loc[counts.notna() & ~positive(counts), ["run", name]]
            .itertuples(index=False)
        ):
            raise ValueError(
                f"table runs: {name} of {run} is {value!r}; allowed: numbers from 1 on"
            )
    if "status" in audited["runs"]:
        runs = audited["runs"]
        failed, audited["runs"] = runs[~ended_well(runs)], successful(runs)
        broken = failed[["run"]].assign(
            rule=kinds.job_rules()[0].name, cause="its record has no successful end"
        )
        audited["unsuccessful"] = failed
        audited["failures"] = (
            pd.concat([audited["failures"], broken]) if "failures" in audited else broken
        )
    audited["numbers"] = numbers(audited["runs"])
    if convergence is not None:
        audited["convergence"] = pd.read_csv(convergence)
    return Material(audited)


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers that figures draw of these runs over the number of workers, one per row:
    `quantity`, `value`.
    """
    needed = {*KEYS, "status", "workers", "global_batch", "batch_per_worker", "repeat", "run"}
    needed |= {"throughput_images_per_s", "epoch_s"}
    if not needed.issubset(runs.columns):
        return pd.DataFrame()
    # Impossible rates are left to other rules; there is no interval of them.
    runs = timed(runs)
    table = scaling(runs[positive(runs["epoch_s"])])
    base = table[table["workers"] == table["ref_workers"]]
    keys = [*KEYS, "batch_per_worker", "global_batch"]
    # A key may be null: merged by a number for each combination.
    series = pd.concat([base[keys], table[keys]]).groupby(keys, dropna=False).ngroup()
    rates = dict(zip(series.iloc[: len(base)], base["throughput_images_per_s"], strict=True))
    table = table.assign(base_images_per_s=[rates[number] for number in series.iloc[len(base) :]])
    table["series"] = series.iloc[len(base) :].to_numpy()
    weak = table["global_batch"].isna()
    table["strong_batch"] = table["global_batch"]  # that a series keeps; null under weak scaling
    global_batch = (table["batch_per_worker"] * table["workers"]).astype("Int64")
    table["global_batch"] = table["global_batch"].astype("Int64").where(~weak, global_batch)
    long = table.melt(
        id_vars=[c for c in table if c not in QUANTITIES],
        value_vars=list(QUANTITIES),
        var_name="quantity",
    )
    for end in (
        "low",
        "high",
    ):  # of the interval; null for one run, and for the base compared with itself
        long[end] = table.melt(value_vars=[f"{measure}_{end}" for measure in QUANTITIES])[
            "value"
        ].to_numpy()
    long["quantity"] = long["quantity"].map(QUANTITIES)
    return long.assign(row=_row(long))


def _row(table: pd.DataFrame) -> pd.Series[str]:
    """Describe each number in words, by its settings."""
    here = [column for column in NAMED if column in table]
    texts = [words(here, values) for values in table[here].itertuples(index=False, name=None)]
    return pd.Series(texts, index=table.index, dtype="str")
