"""The workflow from elsewhere: as a module of another workflow, from a clone of a release; what the catalog asks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import yaml

from tests.conftest import ROOT

MODULE = """
configfile: "config/config.yaml"

module ddlbench:
    snakefile: {snakefile!r}
    config: config

use rule * from ddlbench
"""


def jobs(folder: Path, path: str) -> dict[str, int]:
    """What a dry run plans; `path` is where Python finds packages beside its own."""
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--cores", "2", "-n"],
        cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.M)}


@pytest.mark.slow
def test_another_workflow_uses_it_as_a_module(project: Path, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(project)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a release"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    installed = tmp_path / "installed"
    subprocess.run(["git", "clone", "-q", "--branch", "v1", str(project), str(installed)], check=True)
    mine = tmp_path / "mine"
    (mine / "workflow").mkdir(parents=True)
    (mine / "workflow/Snakefile").write_text(MODULE.format(snakefile=str(installed / "workflow/Snakefile")))
    copytree(project / "config", mine / "config")
    # A study that only this folder has.
    study = yaml.safe_load((mine / "config/studies/demo.yaml").read_text())
    study["runs"]["frameworks"]["repeats"] = 9
    (mine / "config/studies/mine.yaml").write_text(yaml.safe_dump(study))
    (mine / "config/config.yaml").write_text("study: mine\nmachine: local\n")
    direct = jobs(project, str(project / "workflow"))
    module = jobs(mine, "")  # the package lies beside the clone's Snakefile
    assert module.keys() == direct.keys()
    assert module["train"] > direct["train"] > 10


@pytest.mark.slow
def test_both_snakefiles_plan_the_same(project: Path) -> None:
    (project / "Snakefile").rename(project / "map")
    beside = jobs(project, str(project / "workflow"))  # finds workflow/Snakefile
    (project / "map").rename(project / "Snakefile")
    assert jobs(project, str(project / "workflow")) == beside
    assert beside["all"] == 1


def test_the_catalog_finds_what_it_asks_for() -> None:
    said = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert {"mandatory-flags", "software-stack-deployment", "report"} <= said.keys()
    for path in ("workflow/Snakefile", "config/README.md", "config/config.yaml", "README.md", "LICENSE"):
        assert (ROOT / path).is_file(), path
