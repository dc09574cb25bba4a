"""Tables of the page: cells with what people read, what sorting compares, and where a click leads.

A run links to its record, its log, what failed of it, and the command that started it; each run
that another table names links to its row. All links are relative to the page's folder.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from ddlbench.analysis.failures import FAILED
from ddlbench.analysis.tables import EVERY
from ddlbench.analysis.together import of_programs, sample, with_roles
from ddlbench.core import layout, spec
from ddlbench.core.columns import Column
from ddlbench.core.formatting import count_of
from ddlbench.core.program import IMAGES
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.registry import OWN
from ddlbench.core.roles import EXTENT, SETTING

# Settings that often are the same in all rows.
SHARED = (
    *with_roles(SETTING, EXTENT, without=("model", "of_epochs", "interrupt_steps")),
    "hardware",
)
MOST_ROWS = 1000  # of a table that is shown whole
FIRST_ROWS = 200  # of a longer one, which nobody reads here; the file has all
MOST_LETTERS = 2000  # of a cell; the file has all
MANY, NAMED = 12, 30  # runs that a cell links to, and names on demand; the rest are counted


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what people read.

    `value` is what sorting compares where that is a number; `links` are (text, address).
    """

    text: str
    value: float | None = None
    links: tuple[tuple[str, str], ...] = ()
    more: str = ""  # shown on demand


@dataclass(frozen=True)
class PageTable:
    """A table with its heading, what its rows are, its columns (heading, explanation) and rows
    (anchor, cells).
    """

    id: str
    title: str
    means: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    file: str = ""  # where all of it is, beside the page
    folded: bool = True  # shown on demand

    def numeric(self, column: int) -> bool:
        """Tell whether a column has numbers, which stand at the right of their cells."""
        return any(cells[column].value is not None for _, cells in self.rows)


def first_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table that a page shows: all, or the first ones of a long table."""
    return table if len(table) <= MOST_ROWS else table.head(FIRST_ROWS)


def _of_how_many(table: pd.DataFrame) -> str:
    """Return the sentence that says that not all rows are shown, if so."""
    shown = len(first_rows(table))
    return f" The first {shown} of {len(table)} rows." if shown < len(table) else ""


def anchor(run: str) -> str:
    """Return the id of a run's row."""
    return f"run-{run}"


def cell(value: Any) -> Cell:
    """Format any value of a table, as people write it; null is empty."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int):
        return Cell(str(value), float(value))
    if isinstance(value, float):
        return Cell(
            f"{value:,.4g}" if 1e-4 <= abs(value) < 1e6 or value == 0 else f"{value:.4g}", value
        )
    text = str(value)
    return Cell(
        text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ... ({len(text)} letters)"
    )


def runs_cell(runs: Iterable[str], ids: set[str]) -> Cell:
    """Return the runs that a row rests on, as links to their rows."""
    names = [*runs]
    links = tuple(
        (f"{place}", f"#{quote(anchor(run))}")
        for place, run in enumerate(names[:MANY], 1)
        if run in ids
    )
    named = "\n".join(
        names[:NAMED] + ([f"and {len(names) - NAMED} more"] if len(names) > NAMED else [])
    )
    return Cell(count_of(len(names), "run"), float(len(names)), links, named)


def meanings(columns: Iterable[Column], *without: str) -> dict[str, str]:
    """Return the columns' explanations by name."""
    return {
        column.name: f"{column.means}{f' [{column.unit}]' if column.unit else ''}"
        for column in columns
        if column.name not in without
    }


def plain(
    id: str,
    title: str,
    means: str,
    table: pd.DataFrame,
    columns: Mapping[str, str],
    ids: set[str],
    file: str = "",
    sample: str = IMAGES,
) -> PageTable:
    """Return the rows of a table as they are, in these columns (name -> explanation); `runs`
    becomes links. `sample` is what the runs count.

    Settings that all rows share are told once, above the table; the others come after what the
    table is about. What no row has is left out: the file has it.
    """
    rows = []
    means += _of_how_many(table)
    table = first_rows(table)
    settings_there = [name for name in columns if name in SHARED and name in table]
    if len(table) > 1:
        shared = [
            name
            for name in settings_there
            if table[name].nunique() == 1 and table[name].notna().all()
        ]
        alike = ", ".join(
            f"{name} {table[name].iloc[0]}" for name in shared if table[name].iloc[0] != OWN
        )
        columns = {name: text for name, text in columns.items() if name not in shared}
        means += f" All rows: {alike}." if alike else ""
    columns = {
        name: text
        for name, text in columns.items()
        if name in table and (table.empty or table[name].notna().any())
    }
    columns = dict(sorted(columns.items(), key=lambda item: (item[0] == "runs", item[0] in SHARED)))
    for record in table[[*columns]].to_dict("records"):
        cells = []
        for name, value in record.items():
            if name == "runs":
                cells.append(
                    runs_cell(
                        str(value).replace(";", " ").split() if isinstance(value, str) else (), ids
                    )
                )
            elif name == "run" and value in ids:
                cells.append(Cell("", links=((str(value), f"#{quote(anchor(str(value)))}"),)))
            else:
                cells.append(cell(value))
        rows.append(("", tuple(cells)))
    heads = tuple(
        (_head(name, text, sample), _counting(text, sample)) for name, text in columns.items()
    )
    return PageTable(id, title, means, heads, tuple(rows), file)


def _counting(means: str, sample: str) -> str:
    """Return an explanation whose unit, of images, is one of what the runs count."""
    return re.sub(rf"\[{IMAGES}(/s)?\]$", lambda unit: f"[{sample}{unit[1] or ''}]", means)


def _head(name: str, means: str, sample: str) -> str:
    """Return a column's name with its unit: `latency p50 [s]`."""
    means = _counting(means, sample)
    unit = means[means.rindex("[") :] if means.endswith("]") else ""
    name = sample if name == IMAGES and unit == f"[{sample}]" else name
    for suffix in (f"_{unit[1:-1]}", "_images_per_s"):
        name = name.removesuffix(suffix) if unit else name
    unit = "" if unit == f"[{name}]" else unit
    return f"{name.replace('_', ' ')} {unit}".strip()


# Columns of `runs` that people read, with their headings, and what a value is divided by for the
# heading's unit.
HEADS = {name: name for name in ("model", "framework", "loader", "workers")} | {
    "global_batch": "batch"
}
HEADS |= {name: name for name in ("settings", "schedule", "repeat", "status")}
HEADS |= {"throughput_images_per_s": "images/s", "epoch_s": "epoch [s]", "train_s": "training [s]"}
HEADS |= {"final_top1": "top-1 [%]", "peak_resident_bytes": "memory [GB]"}
HEADS |= {
    "peak_device_memory_bytes": "GPU memory [GB]",
    "energy_j": "energy [kJ]",
    "hosts": "hosts",
}
OF_PROGRAMS = {"reading_proved": "reading proved", "ranks_together": "ranks together"}
OF_PROGRAMS |= {"with_pauses_per_s": "with pauses [1/s]"}
PER = {"[%]": 0.01, "[GB]": 1e9, "[kJ]": 1e3}
MEANS = {column.name: column.means for column in EVERY["runs"].columns}
MEANS |= {name: role.means for name, role in spec.ROLES.items()}


def runs(
    table: pd.DataFrame, results: Path, findings: Mapping[str, Sequence[str]], up: str = "../../"
) -> PageTable:
    """Return one row per run that left a record.

    `findings`: rules of the audit with an error or a warning, by run.

    `up` leads from the page to `results`.
    """
    rows = []
    heads = HEADS | {"throughput_images_per_s": f"{sample(table)}/s"}
    programs = of_programs(table)
    heads |= OF_PROGRAMS if programs.any() else {}
    if programs.all():  # a program's epochs are its own: what was read of it counts as one
        heads.pop("epoch_s")
    elif programs.any():
        table = table.assign(epoch_s=table["epoch_s"].mask(programs))
    shown = [name for name in heads if name in table and not {*table[name].dropna()} <= {OWN}]
    for record in first_rows(table).to_dict("records"):
        run = str(record["run"])
        folder, here = Path(layout.run(run, results=results)), f"{up}runs/{quote(run)}"
        files = [("record", MLLOG), ("steps", STEPS), ("log", "train.log"), ("failures", FAILED)]
        links = tuple((text, f"{here}/{name}") for text, name in files if (folder / name).exists())
        command = record.get("command")
        about = [
            f"id       {run}",
            f"command  {command if isinstance(command, str) else 'not in its record'}",
        ]
        commit, changed = record.get("commit"), record.get("uncommitted_changes")
        if isinstance(commit, str):
            about.append(
                f"commit   {commit}{' with uncommitted changes' if changed is True else ''}"
            )
        broken = findings.get(run, ())
        scales = [(record[name], PER.get(heads[name].split()[-1], 1)) for name in shown]
        cells = [
            cell(value if per == 1 or pd.isna(value) else float(value) / per)
            for value, per in scales
        ]
        first, last = (
            Cell(run, links=links, more="\n".join(about)),
            Cell(", ".join(broken), float(len(broken))),
        )
        rows.append((anchor(run), (first, *cells, last)))
    columns = [("run", "Its record, its steps, its log, its earlier failures.")]
    columns += [(heads[name], MEANS[name]) for name in shown]
    columns.append(("audit", "Rules of the audit with an error or a warning about this run."))
    means = "One row per run. Empty cells were not measured; table not_measured says why."
    means += _of_how_many(table)
    return PageTable("runs", "Runs", means, tuple(columns), tuple(rows), "tables/runs.csv")


def day(seconds: float) -> str:
    """Format a moment as a day, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
