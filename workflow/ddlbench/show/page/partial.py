"""What is there of a study, at any time: page, figures and tables of the runs that are done, in a
folder of their own.

`ddlbench partial` calls it. It starts no training and changes nothing of the whole study. Each
figure says of how many of its runs it is; `<figure>.runs.csv` says of which.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from ddlbench.analysis import frameworks, tables
from ddlbench.analysis.collect import collect
from ddlbench.analysis.price import tariff
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import Costs, Planned, Terms
from ddlbench.answers import choose
from ddlbench.audit import finding_rows
from ddlbench.audit.check import audit
from ddlbench.audit.material import of_study
from ddlbench.core import layout, registry
from ddlbench.core.columns import write_csv
from ddlbench.core.files import hidden_name
from ddlbench.core.living import remove_left
from ddlbench.plan import bill, reads, runs
from ddlbench.plan.estimate import read_published
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONVERGENCE, ConfigError
from ddlbench.settings.study import Figure
from ddlbench.show import figure_data
from ddlbench.show.figures import Options
from ddlbench.show.make_figure import draw, write_drawable
from ddlbench.show.page import about, sections, spent, write


def make(
    config: Mapping[str, Any], terms: Sequence[Any], results: Path = layout.RESULTS
) -> list[str]:
    """Make all of it from the records that are there; return lines for people.

    `terms` are the fields of `Terms`.

    Raises ConfigError for a study of others' records, of which nothing is missing.
    """
    plan, images = reads.plan_of(config)
    study = plan.study
    if study.records:
        raise ConfigError(
            f"{study.path}: records: the study shows published records only, which are complete;"
            " run `snakemake page` instead"
        )
    out = Path(layout.partial(plan.home, results=results))
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_left(out.parent)
    with TemporaryDirectory(dir=out.parent, prefix=hidden_name("partial-")) as aside:
        home = Path(aside) / out.name
        _tables_of(plan, terms, home / "tables", results)
        (home / "figures").mkdir()
        counts = {figure.name: _figure(plan, figure, home) for figure in study.figures}
        there = figure_data.counted(figure_data.shown(home / "tables", list(plan.runs)))
        rows = bill.rows(plan, images, results)
        page = about.from_plan(plan, rows, spent.planned(plan, images, read_published()), there)
        write.write(page, home / "index.html", results)
        if out.exists():
            out.rename(Path(aside) / "before")
        home.rename(out)
    lines = [f"  {name}: {count}" for name, count in counts.items()]
    return [f"{study.name} on {plan.machine.name}, {there}: {out}/index.html", *lines]


def _tables_of(plan: Plan, terms: Sequence[Any], folder: Path, results: Path) -> None:
    """Write all tables of the study, for the jobs that are there."""
    machine = plan.machine
    non_training = [job.folder(results) for job in plan.non_training.values()]
    planned = Planned(plan.digests, plan.order, plan.scaling, non_training)
    costs = Costs(tariff(machine), Terms(*terms), dict(machine.peak_tflops_per_worker))
    collect([Path(layout.run(run, results=results)) for run in plan.runs], folder, planned, costs)
    for section in sections.every():
        if section.make:
            section.make(folder)
    frameworks.write(folder / "frameworks.csv")
    write_csv(
        audit(of_study(folder, CONVERGENCE, further=plan.further)),
        finding_rows.COLUMNS,
        folder / "audit.csv",
    )
    for name, jobs in plan.by_kind().items():
        table = registry.member("kinds", name).RULE.table
        of_job = tables.OF_JOBS[table].of_job if table in tables.OF_JOBS else None
        if of_job:
            rows: tables.Rows = []
            for job in jobs:
                with suppress(RefusedError):  # the table of the complete study has the reason
                    rows += of_job(job.outputs(results)[0], job.spec)
            tables.write(table, rows, folder)


def first_screen(
    config: Mapping[str, Any], terms: Sequence[Any], results: Path = layout.RESULTS
) -> choose.First:
    """Return the answers of the records that are there, without a page; nothing is left behind.

    `terms` as for `make`.
    """
    plan, _ = reads.plan_of(config)
    study = about.from_plan(plan, (), {})
    with TemporaryDirectory(prefix=hidden_name("answers-")) as aside:
        home = Path(aside)
        _tables_of(plan, terms, home / "tables", results)
        (home / "figures").mkdir()
        for figure in plan.study.figures:
            if figure.target:  # answers know the times to it
                _figure_data(plan, figure, home)
        return write.first_screen(study, *write.read_tables(study, home))


def _figure_data(plan: Plan, figure: Figure, home: Path) -> tuple[pd.DataFrame, Options]:
    """Write the data of a figure; return the runs that it shows, and how it is drawn."""
    wanted, data = (
        runs.figure_runs(plan, figure.name) or [],
        home / "figures" / f"{figure.name}.csv",
    )
    options = Options(**json.loads(runs.figure_options(plan, figure.name)))
    if figure.reference_file:
        options = replace(options, reference=pd.read_csv(figure.reference_file))
    return write_drawable(figure.plot, home / "tables", wanted, data, options), options


def _figure(plan: Plan, figure: Figure, home: Path) -> str:
    """Make one figure with its files; return of how many of its runs it is."""
    path = home / "figures" / figure.name
    shown, options = _figure_data(plan, figure, home)
    figure_data.write(shown, path.with_name(f"{path.name}.runs.csv"))
    count = figure_data.counted(shown)
    draw(
        figure.plot,
        path.with_name(f"{path.name}.csv"),
        path,
        replace(options, title=f"{options.title}\n{count}"),
    )
    return count
