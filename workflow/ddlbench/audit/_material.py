"""Tables to what is audited: those of a study as `collect` wrote them, or csv files of published numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from ddlbench.analysis.scaling import scaling
from ddlbench.analysis.together import KEYS, ended_well, successful, words
from ddlbench.audit import AUDITED, Material
from ddlbench.audit._compare import positive, timed
from ddlbench.core import kinds

# What `scaling` computes, and what published numbers call it.
QUANTITIES = {"throughput_images_per_s": "throughput", "speed_up": "speed-up", "efficiency": "efficiency"}
UNITS = {"throughput": "images/s", "speed-up": "1", "efficiency": "1"}
COUNTS = ("workers", "global_batch", "repeat")  # by which runs are told apart
NAMED = ("model", "framework", "loader", "schedule", "global_batch", "workers", "quantity")


def of_study(folder: Path, convergence: Path | None = None, only: Iterable[str] | None = None) -> Material:
    """The tables in a study's folder; `only` what is said of these runs (ids). Raises FileNotFoundError without `runs`.

    `convergence` is a file of reference convergence points.
    """
    if not (folder / "runs.parquet").exists():
        raise FileNotFoundError(2, "no tables yet; make them with: snakemake tables", str(folder / "runs.parquet"))
    paths = {name: folder / f"{name}.parquet" for name in AUDITED}
    tables = {name: pd.read_parquet(path) for name, path in paths.items() if path.exists()}
    if only is not None:
        kept = set(only)
        tables = {name: table[table["run"].isin(kept)] for name, table in tables.items()}
    return of_tables(tables, convergence)


def of_tables(tables: Mapping[str, pd.DataFrame], convergence: Path | None = None) -> Material:
    """Tables of `collect` as an audit takes them. Raises ValueError for runs without names, and for counts that are
    none."""
    ours = dict(tables)
    if "run" not in ours["runs"]:
        raise ValueError("table runs has no column run, which names each run")
    for name in [name for name in COUNTS if name in ours["runs"]]:
        counts = ours["runs"][name]
        for run, value in ours["runs"].loc[counts.notna() & ~positive(counts), ["run", name]].itertuples(index=False):
            raise ValueError(f"table runs: {name} of {run} is {value!r}; allowed: numbers from 1 on")
    if "status" in ours["runs"]:
        runs = ours["runs"]
        failed, ours["runs"] = runs[~ended_well(runs)], successful(runs)
        broken = failed[["run"]].assign(rule=kinds.every()[0].RULE, cause="its record has no successful end")
        ours["failures"] = pd.concat([ours["failures"], broken]) if "failures" in ours else broken
    ours["numbers"] = numbers(ours["runs"])
    if not ours.get("kernels", pd.DataFrame()).empty:
        ours["shares"] = ours["kernels"].assign(table="kernels")
    if convergence is not None:
        ours["convergence"] = pd.read_csv(convergence)
    return Material(ours)


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """What figures draw of these runs over the number of workers, in the columns of published numbers."""
    needed = {*KEYS, "status", "workers", "global_batch", "batch_per_worker", "repeat", "run"}
    needed |= {"throughput_images_per_s", "epoch_s"}
    if not needed.issubset(runs.columns):
        return pd.DataFrame()
    # Rates that cannot be are other rules' matter; no interval can be had of them.
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
    global_batch = (table["batch_per_worker"] * table["workers"]).astype("Int64")
    table["global_batch"] = table["global_batch"].astype("Int64").where(~weak, global_batch)
    long = table.melt(
        id_vars=[c for c in table if c not in QUANTITIES], value_vars=list(QUANTITIES), var_name="quantity"
    )
    long["quantity"] = long["quantity"].map(QUANTITIES)
    return named(long.assign(unit=long["quantity"].map(UNITS), relation="approx", source="these runs"))


def published(paths: Iterable[Path]) -> Material:
    """Files of published numbers: with a column `quantity` they become `numbers`, of shares `shares`, with a column
    `run` the runs, or with `run` and `epoch` their epochs; a file of claims (`analysis/claims.py`) `claims`.

    Raises ValueError about any other, FileNotFoundError.
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    for path in paths:
        try:
            table = pd.read_csv(path)
        except ValueError as error:  # pandas' errors about csv files are ValueErrors
            raise ValueError(f"{path}: is no csv file: {' '.join(str(error).split())}") from None
        table["row"] = [f"{path.name} line {number}" for number in range(2, len(table) + 2)]
        table["table"] = table.get("table", path.stem)
        if {"claim", "left", "relation"} <= {*table.columns}:
            tables.setdefault("claims", []).append(table)
        elif "run" in table:
            tables.setdefault("epochs" if "epoch" in table else "runs", []).append(table)
        elif "quantity" in table:
            tables.setdefault("numbers", []).append(named(table))
        elif any(str(column).endswith("_percent") for column in table):
            tables.setdefault("shares", []).append(table)
        else:
            needed = "allowed: with a column quantity or run, or with columns ending in _percent; see docs/audit.md"
            raise ValueError(f"{path}: has columns {', '.join(map(str, table.columns[:5]))}; {needed}")
    return Material({name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()})


def named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with `row`: what each number is, in words, after the place where it stands."""
    here = [column for column in NAMED if column in table]
    texts = [words(here, values) for values in table[here].itertuples(index=False, name=None)]
    where = table["row"] + ": " if "row" in table else ""
    if "source" in table:  # without the section: one source is held to what it says elsewhere
        table = table.assign(source_of=table["source"].astype("str").str.split(": ").str[0])
    return table.assign(row=where + pd.Series(texts, index=table.index, dtype="str"))
