"""The tables of the page, with the words above each and what each column says."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ddlbench.analysis.claims import NOT_TESTABLE
from ddlbench.analysis.nodes import COLUMNS as NODES
from ddlbench.analysis.tables import BESIDE
from ddlbench.audit import _findings
from ddlbench.core import kinds
from ddlbench.core.columns import Column
from ddlbench.show.page import rows, spent
from ddlbench.show.page.about import Study

# Of a row of costs: what the curve over intervals is for, and what its other columns say.
NOT_SHOWN = ("options", "interval", "between_s", "expected_s")


def every(
    study: Study,
    tables: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    known: set[str],
    about: Mapping[str, Sequence[str]],
    results: Path,
) -> list[rows.Table]:
    """The page's tables, in its order; those without rows are left out, but that of runs."""
    from ddlbench.analysis import (
        comparisons,
        costs,
        failures,
        frameworks,
        kernels,
        losses,
        messages,
        operations,
        refusals,
    )

    def of(columns: Sequence[Column], *without: str) -> dict[str, str]:
        return {
            one.name: f"{one.means}{f' [{one.unit}]' if one.unit else ''}" for one in columns if one.name not in without
        }

    judged = tables["verdicts"]["verdict"] != NOT_TESTABLE
    costed = tables["costs"][tables["costs"]["interval"] == costs.CHOSEN].dropna(axis="columns", how="all")
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
        "planned_node_hours": "Planned wall time of all its nodes [h].",
        "took_node_hours": "Recorded wall time of all its nodes [h].",
    }
    made = [
        rows.runs(tables["runs"], results, about, study.up),
        rows.plain("comparisons", "Comparisons", "One row per pair of frameworks, loaders or forms, else alike.",
                   tables["comparisons"], of(comparisons.COLUMNS), known, "tables/comparisons.csv"),
        rows.plain("losses", "Where the time went", "One row per timed run; the parts add up to the total.",
                   tables["losses"], of(losses.COLUMNS), known, "tables/losses.csv"),
        rows.plain("kernels", "What kernels spend their time on", "One row per profiled run. Published shares are "
                   "beside those that mean the same: of CUDA kernels, not of a CPU's time.",
                   _beside(study, tables["kernels"]), of(kernels.BESIDE), known, "tables/kernels.csv"),
        rows.plain("operations", "Operations by module", "One row per module of runs with DeepSpeed's FLOPS profiler: "
                   "its counts of a forward pass over one picture beside PyTorch's own counter and published ones.",
                   tables["operations"], of(operations.COLUMNS), known, "tables/operations.csv"),
        rows.plain("messages", "Messages", "One row per operation and size of message of runs with DeepSpeed's log.",
                   tables["messages"], of(messages.COLUMNS), known, "tables/messages.csv"),
        rows.plain("costs", "Costs", "One row per setting: node hours of the whole training, and the expected loss by "
                   "interruptions with the chosen interval between checkpoints.",
                   costed, of(costs.COLUMNS, *NOT_SHOWN), known, "tables/costs.csv"),
        *(rows.plain(kind.TABLE, kind.PAGE[0], kind.PAGE[1], tables[kind.TABLE], of(BESIDE[kind.TABLE].columns), known,
                     f"tables/{kind.TABLE}.csv") for kind in kinds.beside()),
        rows.plain("verdicts", "What sources claim", "Verdicts on claims of papers and documents whose conditions "
                   "these runs meet.", tables["verdicts"][judged], claims, known, "tables/verdicts.csv"),
        rows.plain("not-testable", "Claims that these runs cannot judge", "Their conditions are not met here: "
                   "data set, device, model, workers.", tables["verdicts"][~judged],
                   {name: claims[name] for name in ("claim", "source", "place", "why")}, known,
                   "tables/verdicts.csv"),
        rows.plain("frameworks", "Frameworks", "What each can do. The versions are those installed where this page was "
                   "made; what the runs used is told at its end.",
                   tables["frameworks"], of(frameworks.COLUMNS), known, "tables/frameworks.csv"),
        rows.plain("audit", "Findings of the audit", "What makes comparisons unfair; docs/audit.md explains the rules.",
                   findings, of(_findings.COLUMNS), known, "tables/audit.csv"),
        rows.plain("planned", "Plan and record", "What a plan said before there was any record, beside what it took.",
                   pd.DataFrame(spent.took(study.bill, study.planned)),
                   planned, known),
        rows.plain("failures", "Failed runs", "Runs that left no record, and why.",
                   failures.of_runs(tables["failures"]), of(failures.COLUMNS, "rule"), known, "tables/failures.csv"),
        rows.plain("refused", "Refused records", "Records that cannot be true, or cannot be read.", tables["refused"],
                   of(refusals.COLUMNS), known, "tables/refused.csv"),
    ]  # fmt: skip
    nodes = results / "machines" / study.machine / "nodes.csv"
    if nodes.exists():
        made.append(
            rows.plain("nodes", "Hosts", f"Each host of {study.machine} beside the others, by all its records.",
                       pd.read_csv(nodes), of(NODES), known, f"{study.up}machines/{study.machine}/nodes.csv")
        )  # fmt: skip
    return [table for table in made if table.rows or table.id == "runs"]


def _beside(study: Study, shares: pd.DataFrame) -> pd.DataFrame:
    """Shares of kernel time with what was published of them, if a figure of the study has such a file."""
    from ddlbench.analysis import kernels

    files = [figure.reference for figure in study.figures if figure.plot == "kernel-shares" and figure.reference]
    nothing = pd.DataFrame(columns=["model", "loader", "workers"])
    beside = kernels.beside(shares, pd.read_csv(files[0]) if files else nothing)
    return beside.dropna(axis="columns", how="all")
