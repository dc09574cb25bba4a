"""Snakemake on copies of the project, with a study of two runs, `mini`: `fresh` has done nothing of
it, `finished` all.

It really runs once for the whole tier; every test has a copy of what that left.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import Once, copy_or_link, copy_project
from tests.workflow import forked

# Figures of study `mini`, as a study's file has them.
MINI_FIGURES = """
  throughput: {plot: throughput, runs: [ceiling, digits]}
  accuracy: {plot: accuracy-epochs, runs: [digits]}
"""
# Models of the user's: `small` is trained, `other` is not.
MINI_NETS = {
    "small": (
        "from nets import parts\ndef build(classes, side): return parts.linear(3 * side * side,"
        " classes)\n"
    ),
    "parts": (
        "from torch import nn\ndef linear(*sizes): return nn.Sequential(nn.Flatten(),"
        " nn.Linear(*sizes))\n"
    ),
    "other": "def build(classes, side): pass\n",
}
# A data folder that a careless command line would trip over, or execute; a variable that looks like
# wildcards, and one that is secret (test_secrets.py).
TOKEN = "hf_tHiSisAs3cret"
MINI_MACHINE = """
launcher: local
device: cpu
device_name: CPU core
workers_per_node: 2
data: results/prepared sets' $(touch executed)
environment: {NCCL_NOTE: "{input} {wildcards.x} {{a}} {", HF_TOKEN: hf_tHiSisAs3cret}
"""
# In each rank and each scout: note that the token is here, and which processes show it to
# everybody.
LOOK = """
import hashlib, os
from pathlib import Path
token = os.environ.get("HF_TOKEN", "")
if token:
    shown = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                shown.append(path.read_bytes())
        except OSError:
            pass
    text = hashlib.sha256(token.encode()).hexdigest() + (f" shown by {shown}" if shown else "")
    Path("seen").mkdir(exist_ok=True)
    Path("seen", str(os.getpid())).write_text(text)
"""


def mini_study(
    title: str = "Mini: two runs, to see what becomes stale", figures: str = MINI_FIGURES
) -> str:
    """The file of a study of two runs, which are the same whatever its title and its figures."""
    return f"""
title: "{title}"
dataset: mnist5k
recipe: mini
models: [lenet]
frameworks: [ddp]
schedules: [cosine]
epochs: 2
runs:
  ceiling:
    loaders: [synthetic]
    workers: [1]
    batch_per_worker: [64]
  digits:
    models: [nets.small:build]
    loaders: [native]
    workers: [1]
    batch_per_worker: [64]
figures:{figures}"""


def program_study(program: str, batch: int = 64, figure: str = "throughput") -> str:
    """The file of a study of a program on one worker and on two, with one figure."""
    return f"""
title: A program
programs: [{program}]
workers: [1, 2]
batch_per_worker: [{batch}]
runs: {{all: {{}}}}
figures: {{{figure}: {{plot: {figure}}}}}
"""


def snakemake(
    project: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`snakemake --profile profiles/local` in a project, with the Python that runs the tests."""
    arguments = ("--profile", "profiles/local", *arguments)
    if forked.POSSIBLE and "PYTHONPATH" not in environment:
        return forked.snakemake(project, arguments, os.environ | environment)
    return subprocess.run(  # Python reads it, and what lies there, when it starts
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=project,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=forked.TIMEOUT_S,
    )


def mini(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Snakemake with study and machine `mini`."""
    return snakemake(project, *arguments, "--config", "study=mini", "machine=mini")


def ask(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`ddlbench` about study and machine `mini`, with the package of the project."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "ddlbench.commands.main",
            *arguments,
            "--study",
            "mini",
            "--machine",
            "mini",
        ],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project / "workflow")} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def planned(
    project: Path, *arguments: str, study: str = "mini", machine: str = "mini"
) -> dict[str, int]:
    """Jobs a rule that a dry run plans, without the targets, and what follows anything, as the
    page.
    """
    done = snakemake(project, "-np", *arguments, "--config", f"study={study}", f"machine={machine}")
    assert done.returncode == 0, done.stdout
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout, re.M))
    follow = ("all", "total", "report", "page", "audit_table", "verdict_table", "records")
    return {rule: int(count) for rule, count in jobs.items() if rule not in follow}


def edit(path: Path, **changes: object) -> None:
    """Change top-level keys of a YAML file."""
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def assert_drawn(results: Path, figures: set[str]) -> None:
    """A study's folder has these figures and no others, in three formats, and a report that shows
    them.
    """
    assert figures == {figure.stem for figure in results.glob("figures/*.png")}
    for figure in figures:
        for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
            assert (results / f"figures/{figure}{suffix}").read_bytes().startswith(magic)
    page = (results / "report.html").read_text()
    assert all(f"{figure}.png" in page for figure in figures)
    assert "ideal" in page  # a caption


def assert_nothing_to_do(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout
    assert "Nothing to be done" in done.stdout
    assert not re.search(r"^Job \d+", done.stdout, re.M)


def with_mini(project: Path) -> Path:
    """Study, recipe and machine `mini` are added to a project."""
    (project / "config/studies/mini.yaml").write_text(mini_study())
    (project / "config/machines/mini.yaml").write_text(MINI_MACHINE)
    shutil.copy(project / "config/recipes/demo.yaml", project / "config/recipes/mini.yaml")
    (project / "config/models/nets").mkdir(parents=True)
    for name, text in MINI_NETS.items():
        (project / f"config/models/nets/{name}.py").write_text(text)
    return project


@pytest.fixture
def fresh(project: Path) -> Path:
    """The mini study, of which nothing is done."""
    return with_mini(project)


@pytest.fixture(scope="session")
def finished_once(once: Once) -> Path:
    def make(folder: Path) -> None:
        with_mini(copy_project(folder))
        for package in ("train", "preflight"):
            with (folder / f"workflow/ddlbench/{package}/__init__.py").open("a") as file:
                file.write(LOOK)
        done = mini(folder, "--printshellcmds")
        assert done.returncode == 0, done.stdout
        (folder / "said").write_text(done.stdout)

    return once("mini", make)


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A copy of the finished project, file times and Snakemake's memory included."""
    return shutil.copytree(
        finished_once, tmp_path / "finished", symlinks=True, copy_function=copy_or_link
    )
