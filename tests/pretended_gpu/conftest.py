"""Runs on the pretended GPU and on the CPU, each made once; the tier is skipped where it cannot be built."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import launch
from ddlbench.records import ours
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe

from tests.conftest import ROOT, Once
from tests.pretended_gpu import build
from tests.specs import run_spec

PROGRAM = ("python", "-m", "tests.pretended_gpu.rank")
BATCH, STEPS, SIZES = 16, 16, "train=249,val=33,classes=10"  # the last step of an epoch has 9 images
Train = Callable[..., Record]


@pytest.fixture(scope="session")
def library(once: Once) -> Path:
    """The compiled pretended GPU."""
    if reason := build.lacks():
        pytest.skip(reason)
    return once("pretended-gpu", build.build) / "libpretended.so"


@pytest.fixture(scope="session")
def pictures(once: Once) -> Path:
    def make(folder: Path) -> None:
        prepare("synthetic-imagenet", "raw", folder / "raw", place=Place(SIZES, folder / "fetched"), processes=2)

    return once("pretended-gpu-pictures", make) / "raw"


@pytest.fixture(scope="session")
def train(library: Path, pictures: Path, once: Once) -> Train:
    """`train("horovod", "fp16", device="cpu", ...)`: the record of three epochs of a small ResNet by one rank."""

    def train_(
        framework: str = "ddp", precision: str = "fp32", device: str = "cuda", stop: int | None = None, **more: Any
    ) -> Record:
        recipe = replace(load_recipe("demo").at(BATCH), image_size=32, precision=precision, **more.pop("recipe", {}))
        options = {"framework": framework, **more.pop("options", {})}
        given = {"loader": "native", "dataset": "synthetic-imagenet", "model": "resnet8_half", "epochs": 3} | more
        spec = run_spec(
            **given,
            framework=framework,
            device=device,
            recipe=recipe,
            global_batch=BATCH,
            options=tuple(sorted(options.items())) if len(options) > 1 else (),
        )
        pytest.importorskip(registry.member("frameworks", framework).PACKAGE)
        machine = replace(load_machine("local"), device=device, workers_per_node=spec.workers)
        command = [sys.executable, "-m", "ddlbench.run", "--spec", spec.to_json(), "--manifest"]
        command += [str(pictures / "manifest.json"), "--", *launch.command(spec, machine, PROGRAM)]
        own = build.environment(library, spec.workers) if device == "cuda" else {}
        paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"}
        paths["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

        def make(folder: Path) -> None:
            for at in [stop, None] if stop else [None]:
                asked = {} if at is None else {"PRETENDED_STOP": str(at)}
                here = [*command[:3], "--folder", str(folder / spec.id), *command[3:]]
                done = subprocess.run(
                    here, env=os.environ | own | paths | asked, cwd=ROOT, capture_output=True, text=True, timeout=300
                )
                assert done.returncode == (75 if asked else 0), (done.stdout + done.stderr)[-4000:]

        name = f"{spec.id}-{device}-{stop}-{abs(hash(json.dumps([spec.to_json()])))}"
        return ours.record(once(name, make) / spec.id)

    return train_
