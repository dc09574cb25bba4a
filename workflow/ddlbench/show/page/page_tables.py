"""The tables of the page, with the words above each and what each column says."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ddlbench.analysis.claims import NOT_TESTABLE
from ddlbench.analysis.nodes import COLUMNS as NODES
from ddlbench.analysis.tables import EVERY
from ddlbench.audit import _findings
from ddlbench.core import kinds
from ddlbench.core.columns import Column
from ddlbench.show.page import rows, spent
from ddlbench.show.page.about import PageStudy

# Headings of the study's tables that are shown with the words and the columns that describe them everywhere.
TITLES = {"comparisons": "Comparisons", "losses": "Where the time went", "kernels": "What kernels spend their time on"}
TITLES |= {"operations": "Operations by module", "messages": "Messages", "costs": "Costs"}
# Of a row of costs: what the curve over intervals is for, and what its other columns say.
NOT_SHOWN = ("options", "interval", "between_s", "expected_s")


def every(
    study: PageStudy,
    tables: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    ids: set[str],
    about: Mapping[str, Sequence[str]],
    results: Path,
) -> list[rows.PageTable]:
    """The page's tables, in its order; those without rows are left out, but that of runs."""
    from ddlbench.analysis import costs, failures, frameworks, kernels, refusals

    def meanings(columns: Sequence[Column], *without: str) -> dict[str, str]:
        return {
            column.name: f"{column.means}{f' [{column.unit}]' if column.unit else ''}"
            for column in columns
            if column.name not in without
        }

    def plain(name: str, title: str, means: str, table: pd.DataFrame, columns: dict[str, str]) -> rows.PageTable:
        return rows.plain(name, title, means, table, columns, ids, f"tables/{name}.csv")

    judged = tables["verdicts"]["verdict"] != NOT_TESTABLE
    costed = tables["costs"][tables["costs"]["interval"] == costs.CHOSEN].dropna(axis="columns", how="all")
    shown = {**tables, "kernels": _beside(study, tables["kernels"]), "costs": costed}
    titles = TITLES | {kind.TABLE: kind.PAGE for kind in kinds.beside()}
    columns = {name: meanings(EVERY[name].columns) for name in titles}
    columns |= {"kernels": meanings(kernels.BESIDE), "costs": meanings(costs.COLUMNS, *NOT_SHOWN)}
    findings = pd.DataFrame([row for row in audit if row["severity"] != _findings.NOT_CHECKED])
    claims = {
        "verdict": "What these runs say to it.",
        "claim": "What the source says.",
        "source": "Who says it.",
        "place": "Where in the source.",
        "published": "The number that it gives.",
        "unit": "Of that number and of ours; 1 is a plain number or a ratio.",
        "measured": "Ours.",
        "low": "Lower end of our 95 % interval.",
        "high": "Upper end.",
        "n": "Repeats.",
        "why": "Why it cannot be tested here; or what to know of the verdict, and what it rests on.",
        "runs": "The runs.",
    }
    planned = {
        "run": "The run.",
        "workers": "Its ranks.",
        "nodes": "Its computers.",
        "planned_s": "Wall time by the machine's images_per_s [s].",
        "took_s": "Wall time by its record [s].",
        "ratio": "Took over planned.",
    }
    page = [
        rows.runs(tables["runs"], results, about, study.up),
        *(plain(name, title, EVERY[name].means, shown[name], columns[name]) for name, title in titles.items()),
        plain("verdicts", "What sources claim", "Verdicts on claims of papers and documents whose conditions these "
              "runs meet.", tables["verdicts"][judged], claims),
        rows.plain("not-testable", "Claims that these runs cannot judge", "Their conditions are not met here: "
                   "data set, device, model, workers.", tables["verdicts"][~judged],
                   {name: claims[name] for name in ("claim", "source", "place", "why")}, ids,
                   "tables/verdicts.csv"),
        plain("frameworks", "Frameworks", "What each can do. The versions are those installed where this page was "
              "made; what the runs used is told at its end.", tables["frameworks"], meanings(frameworks.COLUMNS)),
        plain("audit", "Findings of the audit", f"What makes comparisons unfair: {_findings.summary(audit)}. "
              "docs/audit.md explains the rules.", findings, meanings(_findings.COLUMNS)),
        rows.plain("planned", "Plan and record", "What a plan said before there was any record, beside what it took.",
                   pd.DataFrame(spent.took(study.bill, study.planned)), planned, ids),
        plain("failures", "Failed runs", "Runs that left no record, and why.", failures.of_runs(tables["failures"]),
              meanings(failures.COLUMNS, "rule")),
        plain("refused", "Refused records", "Records that cannot be true, or cannot be read.", tables["refused"],
              meanings(refusals.COLUMNS)),
    ]  # fmt: skip
    nodes = results / "machines" / study.machine / "nodes.csv"
    if nodes.exists():
        page.append(
            rows.plain("nodes", "Hosts", f"Each host of {study.machine} beside the others, by all its records.",
                       pd.read_csv(nodes), meanings(NODES), ids, f"{study.up}machines/{study.machine}/nodes.csv")
        )  # fmt: skip
    return [table for table in page if table.rows or table.id == "runs"]


def _beside(study: PageStudy, shares: pd.DataFrame) -> pd.DataFrame:
    """Shares of kernel time with what was published of them, if a figure of the study has such a file."""
    from ddlbench.analysis import kernels

    files = [figure.reference for figure in study.figures if figure.plot == "kernel-shares" and figure.reference]
    nothing = pd.DataFrame(columns=["model", "loader", "workers"])
    beside = kernels.beside(shares, pd.read_csv(files[0]) if files else nothing)
    return beside.dropna(axis="columns", how="all")
