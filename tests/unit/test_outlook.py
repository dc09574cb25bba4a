"""From records to files: what a recommendation, what if and an application write, and what they say without records."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from ddlbench.outlook import NoAnswerError, what_if
from ddlbench.outlook.application import _content as application
from ddlbench.outlook.recommendation import make as recommendation
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.unit.records import write_record

CONFIG: dict[str, Any] = check_config({"study": "demo", "machine": "local"}) | {"target": 0.2}
PICTURES = {f"figures/{name}.{suffix}" for name in ("recommendation", "what_if") for suffix in ("png", "svg", "pdf")}
MADE = {
    recommendation: {"tables/recommendation.csv", *(name for name in PICTURES if "recommendation" in name)},
    what_if: {"tables/what_if.csv", *(name for name in PICTURES if "what_if" in name)},
    application: {f"application/scaling-local{suffix}" for suffix in (".md", ".tex", ".docx")},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Records of the demo's runs of one framework, by one and two workers, and of its full trainings."""
    specs = [run.spec for run in make_plan(load_study("demo"), load_machine("local")).runs.values()]
    wanted = [spec for spec in specs if spec.loader == "native" and spec.adapter == "ddp"]
    folder = tmp_path_factory.mktemp("runs")
    return [write_record(folder, spec, images=8 * spec.global_batch) for spec in wanted]


@pytest.mark.parametrize("part", MADE, ids=["recommendation", "what_if", "application"])
def test_files_are_written_and_named(part: ModuleType, folders: list[Path], tmp_path: Path) -> None:
    said = part.make(CONFIG, folders, tmp_path)
    made = {str(path.relative_to(tmp_path / "demo/local")) for path in tmp_path.rglob("*.*")}
    assert made == MADE[part]
    assert all(name in said for name in made if name.endswith((".csv", ".png", ".md")))
    for table in tmp_path.rglob("*.csv"):
        assert set(pd.read_csv(table)["model"]) & {"resnet8_half", "lenet"}


@pytest.mark.parametrize("part", MADE, ids=["recommendation", "what_if", "application"])
def test_without_records_it_says_what_to_do(part: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match=r"study demo .*machine local.*train first") as error:
        part.make(CONFIG, [], tmp_path)
    assert "\n" not in str(error.value) and not any(tmp_path.rglob("*.*"))
