"""From records to tables, figures and the report; the records are made by hand, so that nothing has
to be trained.
"""

import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

from tests.builders.records import edit_log, write_record
from tests.conftest import Once, copy_project
from tests.workflow.conftest import ask, mini

pytestmark = pytest.mark.more

STUDY = """
title: "Mini: two figures, each of a block of its own"
dataset: mnist5k
recipe: demo
models: [lenet]
frameworks: [ddp]
loaders: [synthetic]
batch_per_worker: [64]
epochs: 2
runs:
  step: {schedules: [step], workers: [1]}
  cosine: {schedules: [cosine], workers: [1]}
figures:
  throughput: {plot: throughput, runs: [step]}
  rate: {plot: learning-rate, runs: [cosine]}
"""
MACHINE = """
launcher: local
device: cpu
device_name: CPU core
workers_per_node: 2
data: results/data
"""
HOSTILE = "</script><script>alert(1)</script><b>"


def records(project: Path) -> list[Path]:
    """Make the records that the study's runs lack; all of its runs' folders, by id."""
    study = load_study("mini", project / "config/studies")
    plan = make_plan(study, load_machine("mini", project / "config/machines"))
    folders = [project / "results/runs" / run for run in sorted(plan.runs)]
    for folder in folders:
        if not folder.exists():
            write_record(folder.parent, plan.runs[folder.name].spec, images=128)
    return folders


def change(project: Path, before: str, after: str, kind: str = "studies") -> None:
    path = project / f"config/{kind}/mini.yaml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def times(project: Path) -> dict[str, int]:
    """When each file of the figures was written."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in (project / "results/mini/mini/figures").iterdir()
    }


@pytest.fixture(scope="module")
def drawn_once(once: Once) -> Path:
    def make(project: Path) -> None:
        copy_project(project)
        (project / "config/studies/mini.yaml").write_text(STUDY)
        (project / "config/machines/mini.yaml").write_text(MACHINE)
        records(project)
        done = mini(project, "results/mini/mini/report.html")
        assert done.returncode == 0, done.stdout

    return once("drawn", make)


@pytest.fixture
def drawn(drawn_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(drawn_once, tmp_path / "drawn", symlinks=True)


def test_one_new_run_draws_only_the_figure_that_shows_it(drawn: Path) -> None:
    before = times(drawn)
    change(
        drawn,
        "step: {schedules: [step], workers: [1]}",
        "step: {schedules: [step], workers: [1, 2]}",
    )
    records(drawn)
    done = mini(drawn, "figures")
    assert done.returncode == 0, done.stdout
    written = {name for name, when in times(drawn).items() if when != before[name]}
    assert written == {
        f"throughput.{suffix}" for suffix in ("csv", "runs.csv", "png", "svg", "pdf")
    }
    points = pd.read_csv(drawn / "results/mini/mini/figures/throughput.csv")
    assert points["workers"].tolist() == [1, 2]
    assert "Nothing to be done" in mini(drawn, "-n", "figures").stdout


def test_records_that_cannot_be_true_are_named_and_the_others_are_shown(drawn: Path) -> None:
    good, bad = records(drawn)
    edit_log(bad, '"eval_accuracy", "value": 0.5', '"eval_accuracy", "value": 99')
    done = mini(drawn, "tables", "figures")
    assert done.returncode == 0, done.stdout
    warning = "WARNING: 1 records are refused and are in no table and no figure:"
    assert warning in done.stdout.split("Job ")[-1]  # at the end, where people look
    assert f"{bad.name}/run.mllog: eval_accuracy of epoch 1 is 99; allowed: 0 to 1" in done.stdout
    assert pd.read_csv(drawn / "results/mini/mini/tables/refused.csv")["run"].tolist() == [bad.name]
    assert pd.read_csv(drawn / "results/mini/mini/tables/runs.csv")["run"].tolist() == [good.name]
    assert warning in ask(drawn, "failures").stdout
    shown = pd.read_csv(drawn / "results/mini/mini/figures/throughput.runs.csv")
    assert shown[["run", "status"]].values.tolist() == [[bad.name, "refused"]]


class Scripts(HTMLParser):
    """Counts the script elements of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.count = 0
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.count += tag == "script"


def test_a_hostile_title_is_only_text_in_the_report(drawn: Path) -> None:
    page = drawn / "results/mini/mini/report.html"
    ours = Scripts(page).count
    assert ours > 1
    change(drawn, "plot: throughput,", f'plot: throughput, title: "{HOSTILE}",')
    change(drawn, "CPU core", HOSTILE, "machines")
    done = mini(drawn, str(page.relative_to(drawn)))
    assert done.returncode == 0, done.stdout
    text = page.read_text(encoding="utf-8")
    assert Scripts(page).count == ours
    assert HOSTILE not in text
    assert r"u003c/script>" in text  # it is there, as text
