"""What figures are drawn from: the rows of their runs, in a file of their own, and published
numbers beside them.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

import pandas as pd

from ddlbench.analysis.tables import EVERY, OF_JOBS
from ddlbench.analysis.together import ended_well, usable
from ddlbench.core import registry
from ddlbench.core.columns import as_cells
from ddlbench.core.files import aside, from_text
from ddlbench.core.formatting import count_of
from ddlbench.core.recipe import Recipe
from ddlbench.core.spec import RunSpec
from ddlbench.show.figures import Options, Tables

FITTED = (
    "model",
    "framework",
    "loader",
    "schedule",
    "recipe",
)  # of a published number; runs beside it must fit
# Columns by the type that they have in a figure's file, where every value is text.
_SETTINGS = [*fields(RunSpec), *fields(Recipe)]
_COLUMNS = [column for table in EVERY.values() for column in table.columns]
WORDS = {"run", "recipe"}
WORDS |= {
    field.name for field in _SETTINGS if str(field.type).startswith(("str", "tuple"))
}  # lists are JSON
WORDS |= {column.name for column in _COLUMNS if column.type == "str"}
COUNTS = {"nodes", "batch_per_worker"} | {
    field.name for field in _SETTINGS if str(field.type).startswith("int")
}


def load(folder: Path, names: Iterable[str], runs: Sequence[str]) -> Tables:
    """Load tables in a folder by name, only the rows of these runs (ids)."""
    tables = ((name, pd.read_parquet(folder / f"{name}.parquet")) for name in names)
    return {name: table[table["run"].isin(runs)] for name, table in tables}


def write(data: pd.DataFrame, path: Path) -> None:
    """Write a figure's data as csv: the same bytes for the same data. Null is an empty field."""
    with aside(path) as hidden:
        as_cells(data).to_csv(hidden, index=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)


def read(path: Path) -> pd.DataFrame:
    """Read what `write` wrote, value for value. Whole numbers with nulls among them are `Int64`."""
    names = pd.read_csv(path, nrows=0).columns
    words = {name: "str" for name in names if name in WORDS}
    data = pd.read_csv(path, dtype=words, keep_default_na=False, na_values=[""])
    partial = [name for name in names if name in COUNTS and data[name].dtype == "float64"]
    marked = [name for name in names if data[name].astype(str).str.startswith("'").any()]
    texts = {name: data[name].map(from_text) for name in marked}
    return data.assign(**texts).astype(dict.fromkeys(partial, "Int64"))


def shown(folder: Path, runs: Sequence[str]) -> pd.DataFrame:
    """Return which of these runs, or other jobs, the tables in a folder have: columns `run`,
    `status`, which is `success`, `failed`, `refused` or `missing`, and `day`, when it began (UTC),
    empty where nobody knows.
    """
    status = dict.fromkeys(runs, "missing")
    days: dict[str, str] = {}
    says = {
        "failures": "failed",
        "refused": "refused",
        **dict.fromkeys(OF_JOBS, "success"),
        "runs": "",
    }
    for name, word in says.items():
        path = folder / f"{name}.parquet"
        if path.exists():
            table = pd.read_parquet(path)
            ends = table["status"] if name == "runs" else [word] * len(table)
            status |= {
                run: end for run, end in zip(table["run"], ends, strict=True) if run in status
            }
            if "begun_s" in table:
                begun = pd.to_datetime(table["begun_s"], unit="s").dt.strftime("%Y-%m-%d")
                days |= dict(zip(table["run"], begun, strict=True))
    return pd.DataFrame(
        {"run": [*status], "status": [*status.values()], "day": [days.get(run) for run in status]}
    )


def day(shown: pd.DataFrame) -> str:
    """Return the day on which the newest of these runs began, `2026-11-28`, from what `shown` gave;
    "" if unknown.
    """
    return str(shown["day"].dropna().max()) if shown["day"].notna().any() else ""


def counted(shown: pd.DataFrame) -> str:
    """Format `7 of 9 runs`, from what `shown` gave."""
    return f"{ended_well(shown).sum()} of {count_of(len(shown), 'run')}"


def finished(tables: Tables, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return rows of a table by its name, of runs that can be compared, with these columns of `runs`
    added.
    """
    return tables[name].merge(usable(tables["runs"])[["run", *columns]], on="run")


def distinguishing(
    rows: pd.DataFrame, within: Sequence[str], candidates: Sequence[str]
) -> list[str]:
    """Return the candidates, in their order, that distinguish rows which are alike in the columns
    `within`.

    A column that says nothing new is left out: if each worker count has its own batch size, only
    the first of them.
    """
    chosen: list[str] = []

    def groups(extra: Sequence[str]) -> int:
        return len(rows[[*within, *chosen, *extra]].drop_duplicates())

    for column in candidates:
        if groups([column]) > groups([]):
            chosen.append(column)
    return chosen


def references(options: Options, quantity: str, points: pd.DataFrame) -> pd.DataFrame:
    """Return published numbers of a quantity for what `points` shows: rows of runs, whose columns
    must fit.

    In the reference `any` and nothing fit everything, a loader's family (`dali`) fits all of its
    members, `step|cosine` fits either schedule. Column `recipe` may be left out. The result also
    has `name`, the source as authors and year, and `note`, which of several shown members a number
    is of.
    """
    if options.reference is None:
        return pd.DataFrame()
    table = options.reference[options.reference["quantity"] == quantity]
    table = table.fillna({column: "" for column in FITTED if column in table})
    table = table.assign(name=table["source"].str.split(",").str[0], note="")
    for column in FITTED:
        if column not in points or column not in table:
            continue
        values = {"", "any", *points[column]}
        if column == "loader":
            values |= set(map(registry.family, points[column]))
        fits = table[column].map(
            lambda names, values=values: not values.isdisjoint(names.split("|"))
        )
        table = table[fits.astype(bool)]
        if points[column].nunique() > 1:
            names = table[column].replace("any", "").str.replace("|", ", ")
            table["note"] = (table["note"] + " " + names).str.strip()
    return table
