"""`study.json`: what the page says, for programs. Its form has a version; `ddlbench export` is thin
over it.

version    FORM
study      name, title, machine, the days between which runs began (UTC); partial: `7 of 9 runs`, null of all;
           device_name: what the machine calls a worker
system     processors and GPUs; software: versions
points     per settings: the runs, and of each quantity its unit, n, median and 95 % interval (null for one run)
scaling    per series and worker count: throughput, speed-up and efficiency with their intervals
budget     what all jobs of the study take, those done and those to be made, in the unit in which the centre gives hours
choice     framework, loader, form, workers, batch and schedule that the answers take together
answers    what the first screen says: `value` is the answer itself, the rest are its words; screen: the same as
           lines for a terminal
verdicts   on claims of sources; findings: of the audit, errors and warnings
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pandas as pd

from ddlbench.analysis import summary
from ddlbench.analysis.intervals import over_repeats
from ddlbench.analysis.scaling import scaling
from ddlbench.analysis.together import SAME, usable
from ddlbench.answers import Answer, wording
from ddlbench.answers.choose import First
from ddlbench.audit import SEVERITIES, finding_rows
from ddlbench.show.page import rows
from ddlbench.show.page.about import PageStudy

FORM = 1
VERSIONS = (
    "python_version",
    "torch_version",
    "framework_version",
    "loader_version",
    "driver",
    "kernel",
)
# When a run began is no quantity of it.
QUANTITIES = tuple(
    c for c in summary.COLUMNS if c.type in ("float64", "Int64") and c.name != "started_s"
)


def found(
    study: PageStudy,
    read: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    first: First,
) -> dict[str, Any]:
    """Return what a study found, as JSON has it, from its tables, its audit's findings and its
    first screen.
    """
    runs = usable(read["runs"])
    began = runs["started_s"].dropna()
    series = scaling(read["runs"]).dropna(axis="columns", how="all")
    return {
        "version": FORM,
        "study": study.name,
        "title": study.title,
        "machine": study.machine,
        "partial": study.partial or None,
        "from": None if began.empty else rows.day(float(began.min())),
        "to": None if began.empty else rows.day(float(began.max())),
        "device_name": study.device_name,
        "system": {name: named(runs, name) for name in ("cpu", "gpu")},
        "software": (
            {name: named(runs, name) for name in VERSIONS}
            | {
                f"{member}s": named(runs, member, f"{member}_version")
                for member in ("framework", "loader")
            }
        ),
        "points": _points(runs),
        "scaling": records(series),
        "budget": _budget(study),
        "choice": plain(first.choice),
        "answers": [_answer(study, answer) for answer in first.answers],
        "screen": wording.lines(first, study.nouns),
        "verdicts": records(read.get("verdicts", pd.DataFrame())),
        "findings": [dict(row) for row in finding_rows.worst(audit, SEVERITIES[1])],
    }


def _answer(study: PageStudy, answer: Answer) -> dict[str, Any]:
    """Return an answer in words, and its value."""
    told = wording.told(answer, study.nouns)
    words = {
        "question": told.question,
        "take": told.take,
        "sure": wording.is_sure(answer),
        "words": told.words,
    }
    return words | {"certainty": told.certainty, "value": plain(replace(answer, open=()))}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, without the fields that say nothing."""
    if is_dataclass(value):
        named = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {name: one for name, one in named.items() if one not in (None, [], {})}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


def _budget(study: PageStudy) -> dict[str, Any]:
    """Return what the study's jobs take, group by group, and in sum; a sum is null if one of its
    groups is unknown.
    """

    def total(done: bool) -> float | None:
        amounts = [group.amount for group in study.groups if group.done == done]
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if len(known) == len(amounts) else None

    jobs = [{**vars(group), "estimate_by": [*group.estimate_by]} for group in study.groups]
    return {
        "unit": study.budget_unit,
        "jobs": jobs,
        "done": total(True),
        "to_be_made": total(False),
    }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table's rows as JSON has them: numbers and words as they are, null for what is not
    there.
    """
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return rows


def named(runs: pd.DataFrame, *columns: str) -> list[str]:
    """Return each combination of these columns' values, in words."""
    found = (
        runs[[name for name in columns if name in runs]].drop_duplicates().itertuples(index=False)
    )
    return sorted(
        {" ".join(str(value) for value in row if not pd.isna(value)) for row in found} - {""}
    )


def _points(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return runs of the same settings, with each quantity over their repeats."""
    settings = runs[[name for name in SAME if name in runs]]
    measured = (
        runs[[column.name for column in QUANTITIES]].astype("float64").to_numpy()
    )  # frames are slow by the cell
    alike = settings.groupby([*settings], dropna=False, sort=False).ngroup().to_numpy()
    points = []
    for number in dict.fromkeys(alike):
        (at,) = (alike == number).nonzero()
        quantities = {}
        for column, values in zip(QUANTITIES, measured[at].T, strict=True):
            values = values[values == values].tolist()
            if values and all(value > 0 and math.isfinite(value) for value in values):
                summary = over_repeats(values)
                interval = {
                    "n": summary.n,
                    "median": summary.middle,
                    "low": summary.low,
                    "high": summary.high,
                }
                quantities[column.name] = {"unit": column.unit, **interval}
        (first,) = records(settings.iloc[at[:1]])
        first = {name: value for name, value in first.items() if value is not None}
        points.append(
            {"settings": first, "runs": runs["run"].iloc[at].tolist(), "quantities": quantities}
        )
    return points
