"""What a study makes of the audit."""

import os
from pathlib import Path

from ddlbench.audit import _findings
from ddlbench.commands import snakefile
from ddlbench.core.columns import write_csv
from ddlbench.settings.study import Study, load_study
from ddlbench.show.figures import Options
from ddlbench.show.figures._make import draw, write_data

from tests.conftest import ROOT
from tests.unit.audit_clean import changed, found, study
from tests.unit.audit_faults import FAULTS
from tests.unit.spoiled import write_study


def demo(folder: Path, key: str) -> Study:
    """Study demo with a line more."""
    text = (ROOT / "config/studies/demo.yaml").read_text(encoding="utf-8")
    return write_study(folder, f"{text}\n{key}\n")


def test_a_study_says_whether_its_figures_are_marked(tmp_path: Path) -> None:
    assert load_study("demo").audit.fail_on is None
    assert demo(tmp_path, "audit: {fail_on: error}").audit.fail_on == "error"


def test_a_figure_of_an_unfair_comparison_names_the_rules(tmp_path: Path) -> None:
    tables = study()
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    options = Options("Efficiency", "cpu", "CPU core", ("ddp", "horovod"))
    write_data("efficiency", tmp_path, tables["runs"]["run"].tolist(), tmp_path / "e.csv", options)
    drawn = {}
    for name, broken in {"fair": [], "unfair": ["same-precision"], "many": [f"rule-{n}" for n in range(6)]}.items():
        draw("efficiency", tmp_path / "e.csv", tmp_path / name, options, broken)
        drawn[name] = (tmp_path / f"{name}.svg").read_text()
    assert "unfair comparison" not in drawn["fair"]
    assert "unfair comparison" in drawn["unfair"] and "same-precision" in drawn["unfair"]
    assert "rule-2" in drawn["many"] and "and 3 more rules" in drawn["many"] and "rule-3" not in drawn["many"]


def test_findings_are_printed_by_the_call_that_made_them(tmp_path: Path) -> None:
    assert snakefile.audited(tmp_path) == []
    path = tmp_path / "audit.csv"
    rows = found("same-precision", changed(FAULTS["same-precision"], study()))
    write_csv([*rows, rows[0] | {"severity": "warning", "rule": "drift"}], _findings.COLUMNS, path)
    said = snakefile.audited(tmp_path)
    assert said[1].startswith("audit: 1 error, 1 warning") and "ERROR same-precision" in said
    assert said[-2:] == ["warnings: drift", "all findings: ddlbench audit; docs/audit.md explains the rules"]
    os.utime(path, (0, 0))
    assert snakefile.audited(tmp_path) == []


def test_notes_are_left_to_the_table() -> None:
    rows = found("extrapolated", changed(lambda tables: tables["runs"].update({"extrapolated": [True] * 48}), study()))
    assert "NOTE extrapolated" in _findings.lines(rows)
    assert "NOTE extrapolated" not in _findings.lines(rows, all_of_them=False)
