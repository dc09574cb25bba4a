"""Findings as rows of a table and as text for people. It imports no pandas: Snakemake's process
prints them, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddlbench.audit import SEVERITIES
from ddlbench.core.columns import Column
from ddlbench.core.files import read_csv
from ddlbench.core.formatting import count_of

NOT_CHECKED = "not checked"
COLUMNS = (
    Column(
        "rule",
        "str",
        "The rule: a function in `workflow/ddlbench/audit/rules`; docs/audit.md explains it.",
    ),
    Column(
        "severity",
        "str",
        "`error`, `warning`, `note`, or `not checked` where the rule lacked a column.",
    ),
    Column(
        "runs",
        "str",
        "Ids of the runs concerned, or what the numbers describe; separated by `; `.",
    ),
    Column(
        "evidence",
        "str",
        "The two values that contradict each other; of a rule not checked, what is missing.",
    ),
    Column("what_to_do", "str", "How to get a fair comparison."),
    Column("source", "str", "Source of the rule, or where the fault was seen."),
)
SHOWN, SHOWN_RUNS = (
    3,
    3,
)  # findings of a rule, and runs of a finding, that people read; the table has all
Row = dict[str, str]


def worst(rows: Iterable[Mapping[str, str]], severity: str) -> list[Mapping[str, str]]:
    """Return the findings of this severity or a worse one."""
    allowed = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return [row for row in rows if row["severity"] in allowed]


def read(path: Path) -> list[Row]:
    """Read the rows of a table of findings; none without the file."""
    return [*read_csv(path)] if path.exists() else []


def summary(rows: Iterable[Mapping[str, Any]]) -> str:
    """Summarise how many findings there are: `2 errors, 1 warning, 0 notes, 7 rules not
    checked`.
    """
    severities = [row["severity"] for row in rows]
    parts = [f"{count_of(severities.count(s), s)}" for s in SEVERITIES]
    skipped = len({row["rule"] for row in rows if row["severity"] == NOT_CHECKED})
    return ", ".join([*parts, f"{count_of(skipped, 'rule')} not checked or not on all rows"])


def merged(rows: Iterable[Mapping[str, str]]) -> list[Row]:
    """Return the findings with one row in place of those of a rule that has more than `SHOWN` of a
    severity: the first evidence, how many more there are, and all their runs.
    """
    by_rule: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        same = (row["severity"], row["rule"], row["what_to_do"])
        by_rule.setdefault(same, []).append(row)
    shown: list[Row] = []
    for found in by_rule.values():
        if len(found) <= SHOWN:
            shown += [dict(row) for row in found]
            continue
        runs = dict.fromkeys(run for row in found for run in row["runs"].split("; ") if run)
        more = count_of(len(found) - 1, "more finding")
        evidence = f"{found[0]['evidence']} (and {more} of this rule)"
        shown.append({**found[0], "runs": "; ".join(runs), "evidence": evidence})
    return shown


def lines(rows: Sequence[Mapping[str, str]], all_of_them: bool = True) -> list[str]:
    """Format for people: findings by rule, then what was not checked.

    `all_of_them`: else only errors and warnings.
    """
    text = [f"audit: {summary(rows)}"]
    for severity in SEVERITIES if all_of_them else SEVERITIES[:2]:
        of_severity = [row for row in rows if row["severity"] == severity]
        for rule in dict.fromkeys(row["rule"] for row in of_severity):
            text += _of_rule([row for row in of_severity if row["rule"] == rule])
    if all_of_them:
        lacks: dict[str, list[str]] = {}
        for row in rows:
            if row["severity"] == NOT_CHECKED:
                lacks.setdefault(row["evidence"], []).append(row["rule"])
        text += [
            f"{NOT_CHECKED}, {evidence}: {', '.join(rules)}" for evidence, rules in lacks.items()
        ]
    return text


def _of_rule(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    yield f"{rows[0]['severity'].upper()} {rows[0]['rule']}"
    for row in rows[:SHOWN]:
        yield f"    {row['evidence']}"
        runs = row["runs"].split("; ") if row["runs"] else []
        yield from (f"        {run}" for run in runs[:SHOWN_RUNS])
        if len(runs) > SHOWN_RUNS:
            yield f"        and {len(runs) - SHOWN_RUNS} more"
    if len(rows) > SHOWN:
        yield f"    and {len(rows) - SHOWN} more findings of this rule"
    yield f"    what to do: {rows[0]['what_to_do']}"
