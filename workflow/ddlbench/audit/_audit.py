"""All rules asked: what they find, and what they could not check, as rows of a table (`_findings.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ddlbench.audit import SEVERITIES, Material, Rule
from ddlbench.audit._findings import COLUMNS, NOT_CHECKED, Row
from ddlbench.core import registry
from ddlbench.core.columns import types
from ddlbench.core.files import aside

# What comes of a column of another kind than is read: text among numbers, infinity in place of a count.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def audit(material: Material, rules: Iterable[str] | None = None) -> list[Row]:
    """Rows of COLUMNS: what the rules (names; None: all) find, errors first. Equal tables give equal rows."""
    rows: list[Row] = []
    for name in registry.members("audit") if rules is None else rules:
        rule: Rule = registry.member("audit", name)
        about = {"rule": name, "what_to_do": rule.WHAT_TO_DO, "source": rule.SOURCE}
        lacks, whole = missing(material, rule.NEEDS)
        if lacks:
            rows.append(about | {"severity": NOT_CHECKED, "runs": "", "evidence": lacks})
        if whole is None:
            continue
        try:
            said = [{"runs": "; ".join(one.runs), "evidence": one.evidence} for one in rule.check(whole)]
        except UNREADABLE as error:
            rows.append(about | {"severity": NOT_CHECKED, "runs": "", "evidence": f"cannot read the tables: {error!r}"})
            continue
        rows += [about | {"severity": rule.SEVERITY} | one for one in said]
    order = [*SEVERITIES, NOT_CHECKED]
    return sorted(
        ({c.name: row[c.name] for c in COLUMNS} for row in rows), key=lambda row: order.index(row["severity"])
    )


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
            return f"column {column} of {table} has no value", None
        if null.any():
            lacks.append(f"column {column} of {table} has no value in {null.sum()} of {len(null)} rows")
            kept[table] = kept[table][~null]
    return "; ".join(lacks), Material(kept)


def write(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """The table as csv; it is whole, or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=[c.name for c in COLUMNS]).astype(types(COLUMNS))
    with aside(path) as hidden:
        frame.to_csv(hidden, index=False, lineterminator="\n")
