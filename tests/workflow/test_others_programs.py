"""Programs that ship and need packages of their own: each on one worker and on two, from its file
to a speed-up.

Their packages are looked for beside this Python, or in the environment that
DDLBENCH_PROGRAMS_ENVIRONMENT names.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.workflow.conftest import assert_nothing_to_do, program_study, snakemake

NAMED = "DDLBENCH_PROGRAMS_ENVIRONMENT"
SOCKEYE = "examples/sockeye"
FIGURE = "results/mine/local/figures/speed-up.png"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "packages", "batch", "loss"),
    [
        ("lightning", "lightning", 8, 2.5),  # untrained: ln 64 = 4.16
        ("hugging-face", "transformers, accelerate", 8, 2.5),
        ("sockeye", "sockeye", 32, None),  # whose lines say no loss
    ],
)
def test_a_program_has_a_speed_up(
    project: Path, program: str, packages: str, batch: int, loss: float | None
) -> None:
    environment = (
        str(ROOT / SOCKEYE / "environment") if program == "sockeye" else os.environ.get(NAMED)
    )
    python = f"{environment}/bin/python" if environment else sys.executable
    if not Path(python).exists():
        pytest.skip(f"{python} is not here; {SOCKEYE}/get.sh makes Sockeye's")
    asked = subprocess.run(
        [python, "-c", f"import torch, {packages}"], capture_output=True, text=True
    )
    if asked.returncode:
        last = asked.stderr.strip().splitlines()[-1]
        pytest.skip(
            f"{python} cannot import {packages} ({last}); name an environment that can:"
            f" {NAMED}=<folder>"
        )
    if program == "sockeye":
        leave = shutil.ignore_patterns("environment")
        shutil.copytree(ROOT / SOCKEYE, project / SOCKEYE, dirs_exist_ok=True, ignore=leave)
    if environment:
        with (project / f"config/programs/{program}.yaml").open("a") as file:
            file.write(f"environment: {environment}\n")
    (project / "config/studies/mine.yaml").write_text(program_study(program, batch, "speed-up"))
    options = ("--config", "study=mine", "machine=local")
    assert (done := snakemake(project, *options, "--", FIGURE)).returncode == 0, done.stdout
    drawn = pd.read_csv((project / FIGURE).with_suffix(".csv")).set_index("workers")
    assert drawn["speed_up"][2] > 0, drawn  # by how much, a busy machine decides: 3.8 was seen
    steps = pd.concat(
        pd.read_parquet(path) for path in project.glob("results/runs/*2workers*/steps.parquet")
    )
    losses = steps.groupby("step")["loss"].sum()
    assert (
        set(steps["rank"]) == {0, 1} and (steps.groupby("step")["images"].sum() == 2 * batch).all()
    )
    assert loss is None or losses.iloc[-10:].mean() < loss < losses.iloc[:3].mean() + 0.5
    assert_nothing_to_do(snakemake(project, "-n", *options, "--", FIGURE))


@pytest.mark.slow
def test_a_model_that_two_workers_share_has_a_rate(project: Path) -> None:
    """A program that trains nothing: its steps are requests, which count once however many ranks
    work on them.
    """
    environment = os.environ.get(NAMED)
    python = f"{environment}/bin/python" if environment else sys.executable
    if subprocess.run([python, "-c", "import transformers"], capture_output=True).returncode:
        pytest.skip(f"{python} has no transformers; name an environment that has: {NAMED}=<folder>")
    path = project / "config/programs/language-inference.yaml"
    text = path.read_text()
    for setting, value in (("framework", "deepspeed-autotp"), ("size", "bert-small")):
        text = re.sub(rf"^  {setting}: .*$", f"  {setting}: [{value}]", text, flags=re.MULTILINE)
    path.write_text(text + (f"environment: {environment}\n" if environment else ""))
    study = program_study("language-inference", 8, "speed-up").replace(
        "batch_per_worker", "global_batch"
    )
    (project / "config/studies/mine.yaml").write_text(study)
    options = ("--config", "study=mine", "machine=local")
    assert (done := snakemake(project, *options, "--", FIGURE)).returncode == 0, done.stdout
    drawn = pd.read_csv((project / FIGURE).with_suffix(".csv")).set_index("workers")
    assert set(drawn.index) == {1, 2}
    assert set(drawn["framework"]) == {"deepspeed-autotp"}
    for workers in (1, 2):
        (found,) = project.glob(f"results/runs/*{workers}workers*/steps.parquet")
        steps = pd.read_parquet(found)
        assert set(steps["rank"]) == set(range(workers))
        assert (steps.groupby("step")["images"].sum() == 8).all()
