"""Outlook: the application for compute time, what it claims and marks, and the files that each part writes."""

import re
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis.statistics import CANNOT_TELL
from ddlbench.core import registry
from ddlbench.core.files import printable
from ddlbench.outlook import NoAnswerError, predictions
from ddlbench.outlook.application import Block, Heading, Paragraph, Table, docx, latex, markdown, shares
from ddlbench.outlook.application import _content as application
from ddlbench.outlook.application._content import Contents, blocks
from ddlbench.outlook.recommendation import make as recommendation
from ddlbench.plan.bill import Row
from ddlbench.plan.reads import PlannedForm
from ddlbench.plan.runs import make_plan
from ddlbench.plan.stale import MISSING
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.unit.audit_clean import study
from tests.unit.records import write_record

PREDICTED = {"model": "lenet", "framework": "ddp", "loader": "native", "workers": 16, "by": "predicted", "runs": "a b"}
PREDICTED |= {"images_per_s": 1e4, "images_per_s_low": 9e3, "images_per_s_high": 1.1e4, "efficiency": 0.7}
PREDICTED |= {"train_h": 2.0, "measured": "1 2 4", "why_not": None}


def given() -> Contents:
    """The audit's clean study, with one prediction; nothing is left to run."""
    runs = study()["runs"].assign(control=False, command="python -m train_100%_{all} --many")
    digests = dict.fromkeys(runs["run"], "d" * 64)
    return Contents("A & B_50%", load_machine("local"), runs, pd.DataFrame(), [PREDICTED], [], digests, {})


def texts(made: list[Block]) -> list[str]:
    said: list[str] = []
    for block in made:
        if isinstance(block, Table):
            said += [block.caption, *(cell for row in block.rows for cell in row)]
        elif isinstance(block, Paragraph | Heading):
            said.append(block.text)
    return said


def captioned(made: list[Block], begin: str) -> Table:
    """The only table whose caption begins so."""
    (table,) = [block for block in made if isinstance(block, Table) and block.caption.startswith(begin)]
    return table


def test_every_number_leads_to_its_runs() -> None:
    made = blocks(given())
    table = next(block for block in made if isinstance(block, Table))
    listed = made[-1]
    assert isinstance(listed, Table)
    names = {row[0] for row in listed.rows}
    points = [row for row in table.rows if len(row) > 1]
    assert all(re.fullmatch(r"\[R\d+\]", row[-1]) and row[-1].strip("[]") in names for row in points)
    # Each series is a heading over its points.
    assert [row for row in table.rows if len(row) == 1] and len(table.rows[0]) == 1
    # Four repeats of each of 12 points, and what the prediction was made from.
    assert {row[1] for row in listed.rows} == {*given().runs["run"], "a", "b"}
    assert all(row[2] == "d" * 64 for row in listed.rows if row[1] not in "ab")
    refers = re.search(r"\[(R\d+)\]", captioned(made, "Predicted").rows[0][-1])
    assert refers and refers[1] in names


def test_what_is_predicted_is_marked() -> None:
    rows = [row for block in blocks(given()) if isinstance(block, Table) for row in block.rows if "10,000" in row]
    assert rows and all("16 (predicted)" in row for row in rows)


def planned(**changed: object) -> Row:
    """A run that is still to be made, of one hour on two nodes."""
    named = dict.fromkeys(field.name for field in fields(Row)) | {"run": "a", "block": "b", "state": MISSING}
    named |= {"rule": "train", "model": "resnet50", "framework": "ddp", "loader": "native"}
    named |= {"workers": 8, "nodes": 2, "epochs": 90, "of_epochs": 90}
    named |= {"estimate": "guess", "wall_s": 3600.0, "disk_bytes": 2e9, "inodes": 5, "core_hours": 96.0}
    return Row(**{**named, "checkpoint_bytes": 1e9, "checkpoint_inodes": 7, **changed})  # type: ignore[arg-type]


def request(*bill: Row, **machine: object) -> list[Block]:
    one = replace(load_machine("juwels-booster"), **machine)  # type: ignore[arg-type]
    data = [PlannedForm("imagenet", "raw", True, 150e9, 1000)]
    made = blocks(replace(given(), machine=one, bill=bill, forms=data))
    return made[next(i for i, b in enumerate(made) if isinstance(b, Heading) and b.text == "Requested resources") :]


@pytest.mark.parametrize(
    ("unit", "amount"), [("core hours", "96"), ("GPU hours", "8"), ("node hours", "2"), ("EFLOP", "0.5616")]
)
def test_the_request_is_in_the_centres_unit(unit: str, amount: str) -> None:
    """8 GPUs x 19.5e12 operations/s x 3600 s are 0.5616e18."""
    table = next(block for block in request(planned(), budget_unit=unit) if isinstance(block, Table))
    assert table.header[-1] == unit and table.rows[0][-1] == amount


def test_storage_counts_data_records_and_checkpoints() -> None:
    storage = captioned(request(planned(), planned()), "Storage")
    assert [row[1:] for row in storage.rows] == [("150", "1000"), ("4", "10"), ("2", "14"), ("156", "1024")]
    unknown = captioned(request(planned(), planned(checkpoint_bytes=None)), "Storage")
    assert ("checkpoints, if all runs trained at once: unknown for 1 run", "unknown", "unknown") in unknown.rows
    assert unknown.rows[-1][0] == "in sum, of what is known"


def test_nothing_is_claimed_without_repeats_or_where_the_interval_holds_no_gain() -> None:
    whole = given()
    once = " ".join(texts(blocks(replace(whole, runs=whole.runs[whole.runs["repeat"] == 1]))))
    assert "nothing is claimed" in once and "shorter by a factor" not in once
    assert "shorter by a factor of" in " ".join(texts(blocks(whole)))
    slow = whole.runs.copy()
    many = slow["workers"] > 1
    slow.loc[many, "epoch_s"] = 1.0 + slow.loc[many, "repeat"] % 2  # half of them slower than the base, half faster
    slow.loc[~many, "epoch_s"] = 1.5
    said = " ".join(texts(blocks(replace(whole, runs=slow))))
    assert "The runs cannot tell" in said and "shorter by a factor" not in said


def test_without_a_finished_timed_run_it_refuses() -> None:
    whole = given()
    with pytest.raises(NoAnswerError):
        blocks(replace(whole, runs=whole.runs.assign(status="failed")))


def test_each_format_holds_all_of_it(tmp_path: Path) -> None:
    made = blocks(given())
    for name in registry.members("application"):
        registry.member("application", name).write(made, tmp_path / name)
    marked = (tmp_path / "markdown").read_text(encoding="utf-8")
    assert marked.count('<a id="r1"></a>') == 1 and "(#r1)" in marked
    text = (tmp_path / "latex").read_text(encoding="utf-8")
    assert r"A \& B\_50\%" in text and r"train\_100\%\_\{all\}" in text
    assert text.count(r"\multicolumn{9}") == sum(
        len(row) == 1 for block in made if isinstance(block, Table) for row in block.rows
    )
    assert "-{}-" in text and "--" not in text.replace("-{}-", "")
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 4
    from docx import Document

    read = Document(str(tmp_path / "docx"))
    cells = {cell.text for table in read.tables for row in table.rows for cell in row.cells}
    assert {"16 (predicted)", "d" * 64} <= cells
    nodes, repeats = (read.tables[0].columns[at].width for at in (0, 7))
    assert nodes > 2 * repeats  # as wide as their words
    assert [docx.SUFFIX, latex.SUFFIX, markdown.SUFFIX] == [".docx", ".tex", ".md"]


HOSTILE = "- [now](javascript:alert(1)) ![x](x) <b> a|b $x$ &amp; \x1b[31m \x00 \u202e \ud800 \n# y\n\n"
HOSTILE += '[2pt] "a 100% \\input{x}'


def test_what_a_study_says_is_text_in_every_format(tmp_path: Path) -> None:
    """No link, picture, markup, formula or command of its own, and no character that a format lacks."""
    table = Table(HOSTILE, ("a", HOSTILE), ((HOSTILE,), (HOSTILE, "see [R1]"), ("R1", HOSTILE)))
    made = [Heading(HOSTILE), Paragraph(f"{HOSTILE} [R1]"), Paragraph("1. x"), table]
    for name in registry.members("application"):
        registry.member("application", name).write(made, tmp_path / name)
    marked = (tmp_path / "markdown").read_text(encoding="utf-8")
    assert re.findall(r"(?<!\\)\[.*?(?<!\\)\]", marked) == ["[R1]"] * 2  # links of ours
    lines = marked.splitlines()
    assert len(lines) == 13 and not any(c in marked for c in "\x00\x1b\u202e\ud800")
    assert lines[2].startswith(r"\- \[now\](javascript:") and lines[4] == r"1\. x"
    rows = [line for line in lines if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3] * len(rows)
    text = (tmp_path / "latex").read_text(encoding="utf-8")
    assert "[2pt]" not in text and r"\input" not in text and '"' not in text.replace(r"\char34", "")
    assert text.count(r"\hyperlink{R1}{[R1]}") == 2
    from docx import Document

    read = Document(str(tmp_path / "docx"))
    assert read.paragraphs[0].text == printable(HOSTILE) and r"\x00" in read.paragraphs[0].text


def test_records_of_others_are_named_by_their_machine() -> None:
    whole = given()
    unknown = dict.fromkeys(("loader", "options", "recipe", "epochs", "of_epochs", "form", "schedule"))
    theirs = whole.runs.assign(records="mlperf", machine="Org dgx", **unknown)
    said = " ".join(texts(blocks(replace(whole, runs=theirs, predictions=[]))))
    assert "Org dgx" in said and "None" not in said and "<NA>" not in said
    assert "plans no runs of its own" in said


def test_a_run_is_listed_once() -> None:
    """Comparisons are of runs that points are of: they refer to these."""
    of = {"left": "ddp", "right": "horovod", "model": "lenet", "with": "native"}
    of |= {"n": 4, "ratio": 1.2, "low": 1.1, "high": 1.3}
    pair = [
        " ".join(given().runs.loc[(given().runs["framework"] == name) & (given().runs["workers"] == 1), "run"])
        for name in ("ddp", "horovod")
    ]
    rows = [
        of | {"workers": 1, "verdict": "faster", "runs": " ".join(pair)},
        of | {"workers": 2, "verdict": CANNOT_TELL, "runs": "a"},
        of | {"workers": 4, "verdict": CANNOT_TELL, "runs": "b"},
    ]
    made = blocks(replace(given(), comparisons=pd.DataFrame(rows)))
    listed = made[-1]
    assert isinstance(listed, Table)
    names = [row[1] for row in listed.rows]
    assert len(names) == len(set(names))
    said = " ".join(texts(made))
    assert re.search(
        r"ddp was faster than horovod on 1 worker with lenet and native: 1.2 times .*n = 4\) (\[R\d+\] ?){2,}\.", said
    )
    assert "The runs cannot tell which is faster: ddp or horovod on 2 and 4 workers with lenet and native [R" in said


def test_series_are_named_by_the_settings_in_which_they_differ() -> None:
    runs = given().runs
    other = runs.assign(run=runs["run"] + "-other", recipe="other")
    both = pd.concat([runs, other], ignore_index=True)
    digests = dict.fromkeys(both["run"], "d" * 64)
    predictions = [PREDICTED | {"recipe": recipe} for recipe in ("demo", "other")]
    made = blocks(replace(given(), runs=both, predictions=predictions, digests=digests))
    series = [row[0] for row in captioned(made, "Measured").rows if len(row) == 1]
    assert len(series) == len(set(series)) and {name.split(", ")[1] for name in series} == {"demo", "other"}
    assert [row[0].split(", ")[1] for row in captioned(made, "Predicted").rows] == ["demo", "other"]
    theirs = blocks(replace(given(), predictions=[PREDICTED | {"loader": None}]))  # others do not say it
    assert any(row[0] == "lenet, ddp" for block in theirs if isinstance(block, Table) for row in block.rows)


def test_columns_are_as_wide_as_their_cells_and_no_line_is_too_long() -> None:
    made = shares(Table("", ("a", "longer"), (("1", "x" * 40),)), 100)
    assert made == [0.03, 0.42]
    wide = shares(Table("", ("a", "b", "c"), (("1", "x" * 80, "y" * 90),)), 100)
    assert sum(wide) == pytest.approx(1) and wide[0] == 0.03 and abs(wide[1] - wide[2]) < 0.02
    named = shares(Table("", ("accelerators", "b", "c"), (("1", "x" * 20, "y" * 20),)), 30)
    assert sum(named) == pytest.approx(1) and named[0] == 14 / 30
    assert sum(shares(Table("", ("x" * 40, "y" * 40), ()), 30)) == pytest.approx(1)


def test_versions_say_of_what_and_the_base_is_named() -> None:
    said = texts(blocks(given()))
    assert "ddp 2.0, horovod 0.28" in said
    table = captioned(blocks(given()), "Measured")
    assert {row[6] == "base" for row in table.rows if len(row) > 1 and row[1] == "1"} == {True}
    assert not any(row[6] == "base" for row in table.rows if len(row) > 1 and row[1] != "1")


CONFIG: dict[str, Any] = check_config({"study": "demo", "machine": "local"}) | {"target": 0.2}
MADE = {
    part: {f"tables/{name}.csv", *(f"figures/{name}.{suffix}" for suffix in ("png", "svg", "pdf"))}
    for part, name in ((recommendation, "recommendation"), (predictions, "predictions"))
} | {
    application: {f"application/scaling-local{suffix}" for suffix in (".md", ".tex", ".docx")},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Records of the demo's runs of one framework, by one and two workers, and of its full trainings."""
    specs = [run.spec for run in make_plan(load_study("demo"), load_machine("local")).runs.values()]
    wanted = [spec for spec in specs if spec.loader == "native" and spec.adapter == "ddp"]
    folder = tmp_path_factory.mktemp("runs")
    return [write_record(folder, spec, images=8 * spec.global_batch) for spec in wanted]


@pytest.mark.parametrize("part", MADE, ids=["recommendation", "predictions", "application"])
def test_files_are_written_and_named(part: ModuleType, folders: list[Path], tmp_path: Path) -> None:
    said = part.make(CONFIG, folders, tmp_path)
    made = {str(path.relative_to(tmp_path / "demo/local")) for path in tmp_path.rglob("*.*")}
    assert made == MADE[part]
    assert all(name in said for name in made if name.endswith((".csv", ".png", ".md")))
    for table in tmp_path.rglob("*.csv"):
        assert set(pd.read_csv(table)["model"]) & {"resnet8_half", "lenet"}


@pytest.mark.parametrize("part", MADE, ids=["recommendation", "predictions", "application"])
def test_without_records_it_says_what_to_do(part: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match=r"study demo .*machine local.*train first") as error:
        part.make(CONFIG, [], tmp_path)
    assert "\n" not in str(error.value) and not any(tmp_path.rglob("*.*"))
