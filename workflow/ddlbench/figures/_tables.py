"""What figures are drawn from and with: tables of the runs they show, options, published numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench import registry


@dataclass(frozen=True)
class Tables:
    """The tables that `analysis.collect` writes, only the rows of the runs to show."""

    runs: pd.DataFrame
    epochs: pd.DataFrame
    learning_rates: pd.DataFrame
    step_times: pd.DataFrame
    kernels: pd.DataFrame


@dataclass(frozen=True)
class Options:
    """What a figure is given besides: `reference` has the columns of a file in `config/references`."""

    title: str
    device: str
    device_name: str
    reference: pd.DataFrame | None = None


def load(folder: Path, runs: Sequence[str], select: Mapping[str, Sequence[Any]]) -> Tables:
    """The tables in a folder, of those runs (ids) whose columns have one of the selected values."""
    table = pd.read_parquet(folder / "runs.parquet")
    table = table[table["run"].isin(runs)]
    for column, values in select.items():
        table = table[table[column].isin(values)]
    names = [field.name for field in fields(Tables) if field.name != "runs"]
    parts = (pd.read_parquet(folder / f"{name}.parquet") for name in names)
    return Tables(table, *(part[part["run"].isin(table["run"])] for part in parts))


def finished(tables: Tables, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Rows of a table by its name, successful runs only, with these columns of `runs` beside them."""
    runs = tables.runs[tables.runs["status"] == "success"]
    return getattr(tables, name).merge(runs[["run", *columns]], on="run")


def distinguishing(rows: pd.DataFrame, within: Sequence[str], candidates: Sequence[str]) -> list[str]:
    """The candidates, in their order, that tell rows apart which are alike in the columns `within`.

    A column that says nothing new is left out: if each worker count has its own batch size, only the first of them.
    """
    chosen: list[str] = []

    def groups(extra: Sequence[str]) -> int:
        return len(rows[[*within, *chosen, *extra]].drop_duplicates())

    for column in candidates:
        if groups([column]) > groups([]):
            chosen.append(column)
    return chosen


def references(options: Options, quantity: str, shown: pd.DataFrame) -> pd.DataFrame:
    """Published numbers of a quantity for what `shown` shows: rows of runs, whose columns must fit.

    In the reference `any` and nothing fit everything, a loader's family (`dali`) fits all of its members, `step|cosine`
    fits either schedule.
    Adds `name`, the source as authors and year, and `note`, which of several shown members a number is of.
    """
    if options.reference is None:
        return pd.DataFrame()
    table = options.reference[options.reference["quantity"] == quantity].fillna("")
    table = table.assign(name=table["source"].str.split(",").str[0], note="")
    for column in ("model", "framework", "loader", "schedule"):
        if column not in shown:
            continue
        values = {"", "any", *shown[column]}
        if column == "loader":
            values |= set(map(registry.family, shown[column]))
        fits = table[column].map(lambda names, values=values: not values.isdisjoint(names.split("|")))
        table = table[fits.astype(bool)]
        if shown[column].nunique() > 1:
            own = table[column].replace("any", "").str.replace("|", ", ")
            table["note"] = (table["note"] + " " + own).str.strip()
    return table
