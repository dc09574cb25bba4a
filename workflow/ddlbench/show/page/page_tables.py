"""The tables of the page, with the words above each and what each column says."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ddlbench.analysis.tables import EVERY
from ddlbench.audit import finding_rows
from ddlbench.core import kinds
from ddlbench.show.page import rows, sections, spent
from ddlbench.show.page.about import PageStudy

# Headings of the study's tables that are shown with the words and the columns that describe them
# everywhere.
TITLES = {
    "comparisons": "Comparisons",
    "losses": "Where the time went",
    "kernels": "What kernels spend their time on",
}


def every(
    study: PageStudy,
    tables: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    ids: set[str],
    about: Mapping[str, Sequence[str]],
    results: Path,
) -> list[rows.PageTable]:
    """Return the page's tables, in its order; those without rows are left out, except that of
    runs.
    """
    from ddlbench.analysis import failures, frameworks, kernels, refusals

    def plain(
        name: str, title: str, means: str, table: pd.DataFrame, columns: dict[str, str]
    ) -> rows.PageTable:
        return rows.plain(
            name, title, means, table, columns, ids, f"tables/{name}.csv", study.sample
        )

    shown = {**tables, "kernels": _beside(study, tables["kernels"])}
    columns = {name: rows.meanings(table.columns) for name, table in EVERY.items()}
    columns |= {"kernels": rows.meanings(kernels.WITH_PUBLISHED)}
    checked = [row for row in audit if row["severity"] != finding_rows.NOT_CHECKED]
    findings = pd.DataFrame(finding_rows.merged(checked))
    planned = {
        "run": "The run.",
        "workers": "Its ranks.",
        "nodes": "Its computers.",
        "planned_s": "Wall time by the machine's images_per_s [s].",
        "took_s": "Wall time by its record [s].",
        "ratio": "Ratio of the time it took to the planned time.",
    }
    of_kinds = {
        rule.table: rule.table.capitalize() for rule in kinds.non_training() if rule.table in EVERY
    }
    page = [
        [rows.runs(tables["runs"], results, about, study.up)],
        *([plain(name, title, EVERY[name].means, shown[name], columns[name])] for name, title in TITLES.items()),
        [plain(name, title, EVERY[name].means, shown[name], columns[name]) for name, title in of_kinds.items()],
        [plain("frameworks", "Frameworks", "What each can do. The versions are those installed where this page was "
               "made; what the runs used is at its end.", tables["frameworks"],
               rows.meanings(frameworks.COLUMNS))],
        [plain("audit", "Findings of the audit", f"Unfair comparisons: {finding_rows.summary(audit)}. "
               "docs/audit.md explains the rules.", findings, rows.meanings(finding_rows.COLUMNS))],
        [rows.plain("planned", "Plan and record", "What a plan said before there was any record, and what it took.",
                    pd.DataFrame(spent.took(study.bill, study.planned)), planned, ids)],
        [plain("failures", "Failed runs", "Runs that left no record, and why.", failures.of_runs(tables["failures"]),
               rows.meanings(failures.COLUMNS, "rule"))],
        [plain("refused", "Refused records", "Records that cannot be true, or cannot be read.", tables["refused"],
               rows.meanings(refusals.COLUMNS))],
    ]  # fmt: skip
    placed = [(10 * number, some) for number, some in enumerate(page, 1)]
    given = sections.Given(study, tables, ids, results)
    placed += [
        (section.place, [*section.tables(given)]) for section in sections.every() if section.tables
    ]
    in_order = [table for _, some in sorted(placed, key=lambda pair: pair[0]) for table in some]
    return [table for table in in_order if table.rows or table.id == "runs"]


def _beside(study: PageStudy, shares: pd.DataFrame) -> pd.DataFrame:
    """Return shares of kernel time with the published ones, if a figure of the study has such a
    file.
    """
    from ddlbench.analysis import kernels

    files = [
        figure.reference
        for figure in study.figures
        if figure.plot == "kernel-shares" and figure.reference
    ]
    nothing = pd.DataFrame(columns=["model", "loader", "workers"])
    compared = kernels.with_published(shares, pd.read_csv(files[0]) if files else nothing)
    return compared.dropna(axis="columns", how="all")
