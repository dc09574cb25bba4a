"""Table `runs`: one row per record, with what was run and what came of it. Most other tables are
read beside it.
"""

from collections.abc import Mapping
from typing import Any

from ddlbench.analysis import recorded, summary
from ddlbench.analysis.sheets import Costs, Gathered, Planned, Rows, Sheet
from ddlbench.core.columns import Column, Why

# Columns beside those of a RunSpec and the measures.
RUN = (
    Column(
        "status",
        "str",
        "`success`, or `failed` for a record without a successful end: its measures are null.",
    ),
    *recorded.ORIGIN,
    Column("records", "str", "The kind of the record: a member of `workflow/ddlbench/records`."),
    Column(
        "images", "Int64", "Images of the training split; null where another's log does not say it."
    ),
    Column(
        "extrapolated",
        "bool",
        "Whether only some of the run's epochs were trained (`epochs` of `of_epochs`).",
    ),
    Column(
        "place",
        "Int64",
        "Place of the run among those of the study, by the time when training began, from 1.",
    ),
    Column(
        "planned_place", "Int64", "Its place in the order that the plan gave them (`plan/runs.py`)."
    ),
    Column(
        "scaling",
        "str",
        "`weak` or `strong`: whether the study gives its runs over worker counts one"
        " `batch_per_worker` or one `global_batch`. Null where its blocks say both, or neither has"
        " several worker counts.",
    ),
)


def of_summary(of_run: Mapping[str, Any], costs: Costs) -> Rows:
    """Return the row of a run."""
    measured = summary.values(of_run, costs.peaks)
    return [
        of_run["run"]
        | {name: None if isinstance(value, Why) else value for name, value in measured.items()}
    ]


def of_study(rows: Rows, gathered: Gathered) -> Rows:
    """Return the rows with what only all of them, or the plan, can say."""
    add_planned(rows, gathered.planned)
    recorded.prove_by_other_batches(rows)
    return rows


def add_planned(rows: Rows, planned: Planned) -> None:
    """Add to each run its place by the time when it began, and the planned values; null where they
    are unknown.
    """
    began = sorted((run["started_s"], run["run"]) for run in rows if run["started_s"] is not None)
    places = {run: place for place, (_, run) in enumerate(began, start=1)}
    planned_places = {run: place for place, run in enumerate(planned.order, start=1)}
    for run in rows:
        run |= {"place": places.get(run["run"]), "planned_place": planned_places.get(run["run"])}
        run["scaling"] = planned.scaling.get(run["run"])


SHEET = Sheet(
    "One row per run that left a record.",
    (*RUN, *summary.COLUMNS),
    place=10,
    of_settings=True,
    of_summary=of_summary,
    of_study=of_study,
)
