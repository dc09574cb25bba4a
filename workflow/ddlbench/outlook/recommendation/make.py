"""From the configuration and run folders to table, figure and text. `snakemake recommend` calls it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.audit import _findings
from ddlbench.core import layout
from ddlbench.core.plural import count_of
from ddlbench.outlook import NoAnswerError
from ddlbench.outlook.predictions import MEASURED, PREDICTED
from ddlbench.outlook.recommendation import candidates, choice, convergence, front, words
from ddlbench.outlook.study import given
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import Machine
from ddlbench.show.figures import _style

NAME = "recommendation"  # of table and figure
REFERENCE = CONFIG / "references" / "mlperf-rcp-resnet50.csv"
WHAT_TO_DO = (
    "what to do: give the study a block that trains the timed model and recipe to the target: `timed: false`, with "
    "`epochs` enough to reach it; or time what reached it"
)


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Writes the table of all candidates and the figure; what people read. Raises NoAnswerError."""
    target = config["target"]
    if target is None:
        raise ConfigError("config: target: is missing; a top-1 accuracy in 0..1: --config target=0.759")
    base = given(config, folders, results)
    machine = None if base.plan.study.records else base.plan.machine
    with base.named():
        found = rows(base.tables["runs"], base.tables["epochs"], target, machine, base.planned_workers())
    table, picture = base.table(NAME, found), base.figure(NAME)
    _style.save(front.draw(found, base.options(target=target)), picture)
    where = f"All candidates: {table}; price over time: {picture}.png; what they mean: docs/prediction.md"
    return "\n".join([*text(found, target, machine), fairness(table.with_name("audit.csv")), *base.refused, where])


def fairness(audit: Path) -> str:
    """What the study's audit found, if it was made: runs that cannot be compared make no recommendation."""
    if not audit.exists():
        return "the audit has not looked at these runs: snakemake tables, with the same options"
    errors = _findings.worst(_findings.read(audit), "error")
    if not errors:
        return "the audit found no errors in these runs"
    rules = ", ".join(sorted({row["rule"] for row in errors}))
    return f"the audit found errors ({rules}): candidates may not be comparable; see {audit}"


def rows(
    measured: pd.DataFrame, epochs: pd.DataFrame, target: float, machine: Machine | None, planned: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """All candidates, the best of each model and data set first, then those that are none and why.

    `measured` and `epochs` are the tables `runs` and `epochs` of `collect`; `machine` is None for records of others.
    Raises NoAnswerError.
    """
    if machine is None and len(measured):
        measured = candidates.of_others(measured, epochs, target)
    measured = together.with_settings(measured)
    timed = together.timed(measured)
    if timed.empty:
        raise NoAnswerError("no finished timed run" + ("; train first" if machine else ""))
    curves = convergence.curves(measured, epochs, target, pd.read_csv(REFERENCE) if machine else None)
    if machine is None:
        curves = [replace(curve, source=convergence.THEIRS) for curve in curves]
    table = candidates.rows(measured, curves, machine, planned)
    usable = [row for row in table if row["why_not"] is None]
    if not usable:
        reasons = sorted({row["why_not"] for row in table})
        why = reasons[0] if reasons else "no loader of a finished timed run has anything to learn from"
        more = f" (and {count_of(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
        raise NoAnswerError("\n  ".join([f"no candidate: {why}{more}", *_known(curves), WHAT_TO_DO]))
    choice.mark_front(table)
    ordered: list[dict[str, Any]] = []
    for chosen in choices(usable):
        alike = [id(row) for row in chosen.alike]
        ordered += [
            {**row, "place": place, "like_first": id(row) in alike} for place, row in enumerate(chosen.ordered, 1)
        ]
    return ordered + [{**row, "place": None, "like_first": None} for row in table if row["why_not"] is not None]


def _known(curves: Sequence[convergence.Curve]) -> Iterator[str]:
    """What full trainings say of which batch reaches the target, though nobody measured how fast they are."""
    for curve in curves:
        if needed := [f"{at.epochs.middle:.3g} at batch {n}" for n, at in sorted(curve.points.items()) if at.epochs]:
            keys = [curve.settings[name] for name in ("model", "recipe", "schedule")]
            named = ", ".join(str(key) for key in keys if key)
            yield f"epochs to the target of {named}, whose speed was not measured: {', '.join(needed)}"


def choices(usable: Sequence[dict[str, Any]]) -> list[choice.Choice]:
    """One per data set and model, and of others' records per accelerator: nobody knows what another one costs."""
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for row in usable:
        groups.setdefault(choice.subject(row), []).append(row)
    return [choice.choose(some) for some in groups.values()]


def text(table: Sequence[dict[str, Any]], target: float, machine: Machine | None) -> list[str]:
    """What people read. `table` are `rows`."""
    lines: list[str] = []
    for chosen in choices([row for row in table if row["why_not"] is None]):
        lines += words.lines(chosen, target)
    steps = "those of training steps: validation, checkpoints and starts of epochs come on top"
    lines.append(f"hours are {steps if machine else 'those that the logs say, with everything in them'}")
    if any(row["speed_by"] == PREDICTED and row["why_not"] is None for row in table):
        lines.append("[predicted]: nobody ran so many workers; docs/prediction.md says how good such numbers are")
    largest = max(row["workers"] for row in table if row["speed_by"] == MEASURED)
    if machine and largest <= machine.workers_per_node < machine.workers:
        beyond = 2 * machine.workers_per_node
        lines.append(f"nothing is said of more than one node, because none was measured: measure {beyond} workers")
    reasons: dict[tuple[str, str], int] = {}
    for row in table:
        if row["why_not"] is not None:
            reasons[row["model"], row["why_not"]] = reasons.get((row["model"], row["why_not"]), 0) + 1
    for (model, why), count in reasons.items():
        lines.append(f"left out of {model}, {count_of(count, 'candidate')}: {why}")
    return lines
