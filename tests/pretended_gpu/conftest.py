"""Runs on the pretended GPU and on the CPU, each made once; the tier is skipped where it cannot be
built.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import torch
from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import launch
from ddlbench.records import ours
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe

from tests.builders.plans import run_spec
from tests.conftest import PATHS, ROOT, Once, shared
from tests.pretended_gpu import build

PROGRAM = ("python", "-m", "tests.pretended_gpu.rank")
# Where there is a GPU, the same is tried with it; nothing is pretended then, and what waits is
# counted all the same.
REAL = "PRETENDED_GPUS" not in os.environ and torch.cuda.is_available()
BATCH, STEPS, SIZES = (
    16,
    16,
    "train=249,val=33,classes=10",
)  # the last step of an epoch has 9 images
Train = Callable[..., Record]


def needs_package(member: Any) -> None:
    """Skip the test where the package of a framework, a loader or a way to serve is not
    installed.
    """
    if member.PACKAGE and not registry.importable(member.PACKAGE):
        pytest.skip(f"{member.PACKAGE} is not installed: {member.INSTALL}")


@pytest.fixture(scope="session")
def library(once: Once) -> Path:
    """The folder of what is preloaded, compiled: the pretended GPU, and what counts waits."""
    if reason := build.lacks(pretended=not REAL):
        pytest.skip(reason)
    return once("waits", build.build_waits) if REAL else once("pretended-gpu", build.build)


@pytest.fixture(scope="session")
def pictures(once: Once) -> Path:
    def make(folder: Path) -> None:
        prepare(
            "synthetic-imagenet",
            "raw",
            folder / "raw",
            place=Place(SIZES, folder / "fetched"),
            processes=2,
        )

    return once("pretended-gpu-pictures", make) / "raw"


@pytest.fixture(scope="session")
def train(library: Path, pictures: Path, once: Once) -> Train:
    """`train("horovod", "fp16", device="cpu", ...)`: the record of three epochs of a small ResNet
    by one rank.

    In fp16 the first step overflows; in tf32 the run is profiled, and under DDP leaves its weights.
    With `stop` it is stopped by a signal in that step, and goes on.
    """

    def train_(
        framework: str = "ddp",
        precision: str = "fp32",
        device: str = "cuda",
        stop: int | None = None,
        **more: Any,
    ) -> Record:
        recipe = replace(
            load_recipe("demo").at(BATCH),
            image_size=32,
            precision=precision,
            **more.pop("recipe", {}),
        )
        options = {"framework": framework, **more.pop("options", {})}
        given = {
            "loader": "native",
            "dataset": "synthetic-imagenet",
            "model": "resnet8_half",
            "epochs": 3,
        } | more
        profiled = {"profiled": True, "timed": False} if precision == "tf32" else {}
        spec = run_spec(
            **given,
            **profiled,
            framework=framework,
            device=device,
            recipe=recipe,
            global_batch=BATCH,
            options=tuple(sorted(options.items())) if len(options) > 1 else (),
        )
        member = registry.member("frameworks", framework)
        needs_package(member)
        needs_package(registry.member("loaders", spec.loader))
        if why := member.refuses(spec):
            pytest.skip(why)
        machine = replace(load_machine("local"), device=device, workers_per_node=spec.workers)
        command = [sys.executable, "-m", "ddlbench.run", "--spec", spec.to_json(), "--manifest"]
        command += [str(pictures / "manifest.json")]
        command += ["--keep-weights-of", spec.id] if profiled and framework == "ddp" else []
        command += ["--", *launch.command(spec, machine, PROGRAM)]
        own = build.environment(library, None if REAL else spec.workers) if device == "cuda" else {}
        own |= {"TRY_OVERFLOW": "1"} if precision == "fp16" else {}

        def make(folder: Path) -> None:
            for at in [stop, None] if stop else [None]:
                asked = {} if at is None else {"TRY_STOP": str(at)}
                here = [*command[:3], "--folder", str(folder / spec.id), *command[3:]]
                given = os.environ | own | PATHS | asked
                timeout = 300 * shared()
                done = subprocess.run(
                    here, env=given, cwd=ROOT, capture_output=True, text=True, timeout=timeout
                )
                assert done.returncode == (75 if asked else 0), (done.stdout + done.stderr)[-20000:]

        name = f"{spec.id}-{device}-{stop}-{crc32(spec.to_json().encode())}"
        return ours.record(once(name, make) / spec.id)

    return train_
