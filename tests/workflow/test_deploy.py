"""The workflow from elsewhere: as a module of another workflow, by snakedeploy, with Snakemake
alone; the catalog.
"""

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


def called(folder: Path, *command: str, **environment: str) -> str:
    """What a command says that has to end well."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def release(project: Path, tag: str) -> None:
    """A git repository of the project, with a tag."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a release"], ["tag", tag]):
        called(project, *git, *command)


def environment(folder: Path, package: str) -> Path:
    """The programs of an environment with nothing but a package and what that needs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [
        str(folder / "bin/pip"),
        "install",
        "-q",
        "--timeout",
        "10",
        "--retries",
        "1",
        package,
    ]
    if subprocess.run(install, capture_output=True).returncode:
        pytest.skip(f"{package} cannot be fetched here")
    return folder / "bin"


def jobs(folder: Path, path: str, *options: str, **environment: str) -> dict[str, int]:
    """What a dry run plans; `path` is where Python finds packages beside its own."""
    snakemake = (sys.executable, "-m", "snakemake", "--cores", "2", "-np", *options)
    said = called(folder, *snakemake, PYTHONPATH=path, **environment)
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", said, re.M)}


@pytest.mark.slow
def test_another_workflow_uses_it_as_a_module(project: Path, tmp_path: Path) -> None:
    release(project, "v1")
    installed = tmp_path / "installed"
    subprocess.run(
        ["git", "clone", "-q", "--branch", "v1", str(project), str(installed)], check=True
    )
    mine = tmp_path / "mine"
    (mine / "workflow").mkdir(parents=True)
    (mine / "workflow/Snakefile").write_text(
        MODULE.format(snakefile=str(installed / "workflow/Snakefile"))
    )
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
def test_snakedeploy_into_an_empty_folder(project: Path, tmp_path: Path) -> None:
    release(project, "v1")
    snakedeploy = environment(tmp_path / "environment", "snakedeploy==0.17.1") / "snakedeploy"
    # Whoever asks git for this repository, snakedeploy or Snakemake, gets ours: no network, and no
    # other difference.
    github = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{project.as_uri()}.insteadOf"}
    github |= {
        "GIT_CONFIG_VALUE_0": "https://github.com/some/ddlbench",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    mine = tmp_path / "mine"
    mine.mkdir()
    called(
        mine,
        str(snakedeploy),
        "deploy-workflow",
        "https://github.com/some/ddlbench",
        ".",
        "--tag",
        "v1",
        **github,
    )
    assert (
        'github("some/ddlbench", path="workflow/Snakefile", tag="v1")'
        in (mine / "workflow/Snakefile").read_text()
    )
    installed = str(project / "workflow")
    local = ("--profile", "profiles/local")
    assert jobs(mine, installed, *local, **github) == jobs(project, installed, *local)
    # Not only planned: the package is found too.
    plan = (sys.executable, "-m", "ddlbench.commands.main", "plan")
    assert "An hour of a worker" in called(mine, *plan, PYTHONPATH=installed, **github)
    assert (mine / "results/demo/local/tables/plan.csv").exists()


@pytest.mark.slow
def test_snakemake_alone_reads_it(project: Path, tmp_path: Path) -> None:
    snakemake = str(environment(tmp_path / "environment", "snakemake==9.27.1") / "snakemake")
    for snakefile in ("Snakefile", "workflow/Snakefile"):
        rules = called(project, snakemake, "--list-rules", "-s", snakefile, PYTHONPATH="").split()
        assert {"all", "train", "page", "audit_table"} <= {*rules}
    # The catalog lints a release so, and shows what is found. No conda is offered
    # (docs/architecture.md).
    lint = subprocess.run(
        [snakemake, "--lint"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert {*re.findall(r"^    \* (.*):$", lint.stderr, re.M)} == {
        "Specify a conda environment or container for each rule."
    }, lint.stderr


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
    for path in (
        "workflow/Snakefile",
        "config/README.md",
        "config/config.yaml",
        "README.md",
        "LICENSE",
    ):
        assert (ROOT / path).is_file(), path
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert "snakemake" in readme and "workflow" in readme  # its search asks for both words
    assert [*(ROOT / "workflow/rules").glob("*.smk")]
