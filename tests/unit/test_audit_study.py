"""What a study makes of the audit."""

import os
import random
from pathlib import Path

import pandas as pd
from ddlbench.audit import finding_rows
from ddlbench.audit.rules import other_load
from ddlbench.commands import snakefile
from ddlbench.core.columns import write_csv

from tests.facts import missing
from tests.unit.audit_clean import changed, found, study
from tests.unit.audit_faults import FAULTS


def test_findings_are_printed_by_the_call_that_made_them(tmp_path: Path) -> None:
    assert snakefile.audited(tmp_path) == []
    path = tmp_path / "audit.csv"
    rows = found("same-precision", changed(FAULTS["same-precision"], study()))
    write_csv(
        [*rows, rows[0] | {"severity": "warning", "rule": "drift"}], finding_rows.COLUMNS, path
    )
    said = snakefile.audited(tmp_path)
    assert said[1].startswith("audit: 1 error, 1 warning") and "ERROR same-precision" in said
    assert said[-2] == "warnings: drift"
    assert missing(said[-1], "ddlbench audit", "docs/audit.md") == []
    os.utime(path, (0, 0))
    assert snakefile.audited(tmp_path) == []


def test_notes_are_left_to_the_table() -> None:
    rows = found(
        "extrapolated",
        changed(lambda tables: tables["runs"].update({"extrapolated": [True] * 48}), study()),
    )
    assert "NOTE extrapolated" in finding_rows.lines(rows)
    assert "NOTE extrapolated" not in finding_rows.lines(rows, all_of_them=False)


def test_many_findings_of_a_rule_are_one_row_of_the_page() -> None:
    one = found("same-precision", changed(FAULTS["same-precision"], study()))[0]
    some = [one | {"runs": f"run{n}; run{n + 1}", "evidence": f"evidence {n}"} for n in range(275)]
    other = one | {"rule": "drift"}
    merged = finding_rows.merged([some[0], other, *some[1:]])
    assert [row["rule"] for row in merged] == ["same-precision", "drift"]
    assert merged[0]["runs"].split("; ") == [f"run{n}" for n in range(276)]
    assert missing(merged[0]["evidence"], "evidence 0", "274") == []
    assert merged[1] == other
    assert finding_rows.merged(some[:3]) == some[:3]


def test_runs_that_were_there_at_the_same_time_are_found_without_comparing_all() -> None:
    draw = random.Random(4)
    begins = [draw.choice([0.0, 5.0, 5.5, draw.uniform(0, 90)]) for _ in range(200)]
    rows = pd.DataFrame(
        {
            "run": [f"run{number % 150}" for number in range(200)],
            "begin": begins,
            "end": [begin + draw.choice([0.0, 1.0, 3.0, 40.0]) for begin in begins],
        }
    )
    there = other_load._Present.of(rows)
    found = 0
    for run in rows.to_dict("records"):
        together = rows.assign(
            both_s=rows["end"].clip(upper=run["end"]) - rows["begin"].clip(lower=run["begin"])
        )
        expected = together[together["both_s"] > 1.0].groupby("run")["both_s"].max()
        seconds = there.longest_with(run["begin"], run["end"], 1.0)
        assert seconds == expected.to_dict()
        assert [*seconds] == [*expected.index]
        found += len(seconds)
    assert found > 200
