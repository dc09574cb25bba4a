"""All rules asked: what they find, and what they could not check, as rows of a table (`_findings.py`)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ddlbench.analysis.together import of_programs
from ddlbench.audit import SEVERITIES, Material, Rule, all_rules
from ddlbench.audit._findings import COLUMNS, NOT_CHECKED, Row
from ddlbench.core.columns import write_csv

# What comes of a column of another kind than is read: text among numbers, infinity in place of a count.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def audit(material: Material, names: Iterable[str] | None = None) -> list[Row]:
    """Rows of COLUMNS: what the rules (names; None: all) find, errors first. Equal tables give equal rows."""
    rows = [row for name in (all_rules() if names is None else names) for row in _asked(all_rules()[name], material)]
    order = [*SEVERITIES, NOT_CHECKED]
    return sorted(rows, key=lambda row: order.index(row["severity"]))


def _asked(rule: Rule, material: Material) -> list[Row]:
    """What one rule finds, and what it could not check."""

    def row(severity: str, runs: str, evidence: str) -> Row:
        values = (rule.name, severity, runs, evidence, rule.what_to_do, rule.source)
        return dict(zip((column.name for column in COLUMNS), values, strict=True))

    lacks, whole = missing(material, rule.needs)
    rows = [row(NOT_CHECKED, "", lacks)] if lacks else []
    if whole is None:
        return rows
    try:
        return rows + [row(rule.severity, "; ".join(found.runs), found.evidence) for found in rule.check(whole)]
    except UNREADABLE as error:
        return [*rows, row(NOT_CHECKED, "", f"cannot read the tables: {error!r}")]


# What a program would have to say of a column that it leaves null, by the recorder or by a group of its patterns.
OF_PROGRAM = {
    "lr": "rec.step(lr=...), or group lr",
    "final_top1": "rec.evaluated(top1=...), or group top1",
    "top1": "rec.evaluated(top1=...), or group top1",
    "loss": "rec.step(loss), or group loss",
    "data_wait_s": "rec.batches(loader)",
}


def _to_add(material: Material, column: str) -> str:
    """What would let a rule check programs, where all runs are of programs."""
    if "runs" not in material.tables or material.runs.empty or not of_programs(material.runs).all():
        return ""
    return f"; a program says it with {OF_PROGRAM[column]}" if column in OF_PROGRAM else "; no program can say it"


def missing(material: Material, needs: Sequence[str]) -> tuple[str, Material | None]:
    """What a rule lacks, in words, and what it can check: rows without a null in what it needs; None for nothing."""
    kept = dict(material.tables)
    lacks = []
    for need in needs:
        table, column = need.split(".")
        if table not in material.tables:
            return f"table {table} is missing", None
        if table == "runs" and material[table].empty:  # of other tables, no row may be good news
            return "table runs has no successful run", None
        if column not in material[table]:
            return f"column {column} of {table} is missing", None
        null = kept[table][column].isna()
        if len(null) and null.all():
            return f"column {column} of {table} has no value{_to_add(material, column)}", None
        if null.any():
            lacks.append(f"column {column} of {table} has no value in {null.sum()} of {len(null)} rows")
            kept[table] = kept[table][~null]
    return "; ".join(lacks), Material(kept)


def write(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """The table as csv; it is whole, or not there."""
    write_csv(rows, COLUMNS, path)
