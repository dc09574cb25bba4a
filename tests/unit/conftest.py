"""Plans and files that many unit tests look at."""

from pathlib import Path
from typing import Any

import pytest
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.preflight import promise
from ddlbench.settings.study import load_study

from tests.specs import JUWELS, LAPTOP
from tests.unit.spoiled import Files


@pytest.fixture(scope="session")
def paper() -> Plan:
    """Study aach2023 on JUWELS Booster."""
    return make_plan(load_study("aach2023"), JUWELS)


@pytest.fixture(scope="session")
def demo() -> Plan:
    """Study demo on a laptop."""
    return make_plan(load_study("demo"), LAPTOP)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A copy of config/, to spoil."""
    return Files(tmp_path / "config")


@pytest.fixture
def promised(paper: Plan) -> dict[str, Any]:
    """Eight ranks on two nodes, all of them whole."""
    return promise.promised(paper)
