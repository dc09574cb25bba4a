"""Plans and files that many unit tests look at."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.data.prepare import write_form
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.preflight import promise
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.sources import some
from tests.unit.spoiled import Files


@pytest.fixture(scope="session")
def paper() -> Plan:
    """Study aach2023 on JUWELS Booster."""
    return make_plan(load_study("aach2023"), JUWELS)


@pytest.fixture(scope="session")
def demo() -> Plan:
    """Study demo on a laptop."""
    return make_plan(load_study("demo"), LAPTOP)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all forms of one source of 60 and 20 pictures in 3 classes; for `forms`."""
    folder = tmp_path_factory.mktemp("forms")
    for form in registry.members("forms"):
        write_form(lambda: some(60, 20), "mnist5k", form, folder / form)
    return folder


@pytest.fixture
def forms(prepared: Path, tmp_path: Path) -> dict[str, Path]:
    """The folders of all forms of one source, to spoil."""
    return {
        form: shutil.copytree(prepared / form, tmp_path / form)
        for form in registry.members("forms")
    }


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """`command("squeue", "echo RUNNING")`: that command, SLURM's for example, is this shell
    script.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return make


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A copy of config/, to spoil."""
    return Files(tmp_path / "config")


@pytest.fixture
def promised(paper: Plan) -> dict[str, Any]:
    """Eight ranks on two nodes, all of them whole."""
    return promise.expected_settings(paper)
