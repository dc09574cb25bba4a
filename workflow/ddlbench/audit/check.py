"""All rules asked: what they find, and what they could not check, as rows of a table
(`finding_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from ddlbench.analysis.together import of_programs
from ddlbench.audit import AUDITED, SEVERITIES, Material, Rule, all_rules
from ddlbench.audit.finding_rows import COLUMNS, NOT_CHECKED, Row

# What comes of a column of another kind than is read: text among numbers, infinity in place of a
# count.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


OF_OTHERS = (
    "nobody here can make these runs again: say it beside the figure, or leave them out"
    " (records.folder)"
)


def audit(material: Material, names: Iterable[str] | None = None) -> list[Row]:
    """Return rows of COLUMNS: what the rules (names; None: all) find, errors first, and of these
    what more runs break. Equal tables give equal rows.
    """
    rows = [
        row
        for name in (all_rules() if names is None else names)
        for row in _check(all_rules()[name], material)
    ]
    order = [*SEVERITIES, NOT_CHECKED]
    broken: dict[str, set[str]] = {}
    for row in rows:
        broken.setdefault(row["rule"], set()).update(row["runs"].split("; "))
    return sorted(rows, key=lambda row: (order.index(row["severity"]), -len(broken[row["rule"]])))


def _check(rule: Rule, material: Material) -> list[Row]:
    """Return what one rule finds, and what it could not check."""
    about_logs = any(need.startswith("submissions.") for need in rule.needs)
    advice = OF_OTHERS if of_others(material) and not about_logs else rule.what_to_do

    def row(severity: str, runs: str, evidence: str) -> Row:
        values = (rule.name, severity, runs, evidence, advice, rule.source)
        return dict(zip((column.name for column in COLUMNS), values, strict=True))

    lacks, present = missing(material, rule.needs)
    rows = [row(NOT_CHECKED, "", lacks)] if lacks else []
    if present is None:
        return rows
    try:
        return rows + [
            row(rule.severity, "; ".join(finding.runs), finding.evidence)
            for finding in rule.check(present)
        ]
    except UNREADABLE as error:
        return [*rows, row(NOT_CHECKED, "", f"cannot read the tables: {error!r}")]


# What a program would have to say of a column that it leaves null, by the recorder or by a group of
# its patterns.
OF_PROGRAM = {
    "lr": "rec.step(lr=...), or group lr",
    "final_top1": "rec.evaluated(top1=...), or group top1",
    "top1": "rec.evaluated(top1=...), or group top1",
    "loss": "rec.step(loss), or group loss",
    "data_wait_s": "rec.batches(loader)",
}


def of_others(material: Material) -> bool:
    """Tell whether the runs are logs of others."""
    logs, runs = (material.tables.get(name, pd.DataFrame()) for name in ("submissions", "runs"))
    return (
        len(logs) > 0 and "records" in runs and not (runs["records"].fillna("ours") == "ours").any()
    )


def _by_design(material: Material, rows: pd.DataFrame, column: str) -> pd.Series[bool]:
    """Return the rows of a study's table in which a column cannot have a value: the record has
    the reason, or it is of another kind.
    """
    if of_others(material) or "run" not in rows:
        return pd.Series(of_others(material), rows.index)
    reasons = material.tables.get("not_measured", pd.DataFrame(columns=["run", "column"]))
    excused = rows["run"].isin(
        reasons.loc[reasons["column"] == column, "run"] if "column" in reasons else []
    )
    if column == "validation":  # nothing is read, or a record of before
        return pd.Series(True, rows.index)
    if column == "data_sha256" and "form" in rows:  # a loader that reads nothing
        excused |= rows["form"].isna()
    runs = material.tables.get("runs", pd.DataFrame(columns=["run", "dataset"]))
    return excused | (
        rows["run"].isin(runs.loc[of_programs(runs), "run"]) & (column not in OF_PROGRAM)
    )


def missing(material: Material, needs: Sequence[str]) -> tuple[str, Material | None]:
    """Return what a rule lacks though it could be there, in words, and the material that it can
    check: rows without a null in what it needs; None if there are none.
    """
    tables = dict(material.tables)
    lacks = []
    for need in needs:
        table, column = need.split(".")
        if table not in material.tables:
            expected = "runs" in material.tables and table in AUDITED
            return f"table {table} is missing" if expected or not material.tables else "", None
        if table == "runs" and material[table].empty:  # of other tables, no row may be good news
            return "table runs has no successful run", None
        if column not in material[table]:
            return f"column {column} of {table} is missing", None
        null = tables[table][column].isna()
        unsaid = null & ~_by_design(material, tables[table], column)
        if len(null) and null.all():
            program = (
                of_programs(material.tables["runs"]).all() if "runs" in material.tables else False
            )
            to_add = (
                f"; a program says it with {OF_PROGRAM[column]}"
                if program and column in OF_PROGRAM
                else ""
            )
            return f"column {column} of {table} has no value{to_add}" if unsaid.any() else "", None
        if unsaid.any():
            lacks.append(
                f"column {column} of {table} has no value in {unsaid.sum()} of {len(null)} rows"
            )
        if null.any():
            tables[table] = tables[table][~null]
    return "; ".join(lacks), Material(tables)
