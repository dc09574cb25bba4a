"""Real runs for the contract tests: data sets, specs, and `ddlbench.run` as the train rule starts
it.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from ddlbench.core import registry
from ddlbench.core.mllog import Event, read_log
from ddlbench.core.spec import RunSpec
from ddlbench.plan import launch
from ddlbench.plan.reads import missing_packages
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.own_models import find
from ddlbench.settings.recipe import load_recipe

from tests.builders.plans import run_spec
from tests.conftest import PATHS

HERE = Path(__file__).resolve().parent
sys.path.append(
    str(HERE)
)  # where a rank finds `own_nets`, since it is started as a script that lies there
OWN = find("own_nets:build")
OUTPUT = "output.log"
FRAMEWORKS = registry.members("frameworks")
TWO = ("ddp", "horovod")  # see on_two; these start fastest
# Awkward on purpose: four steps of 64 leave one image, so that one of two ranks has none in the
# last step.
IMAGES = {"train": 257, "val": 65}
# The recipe in which nothing but the gradient moves the parameters.
PLAIN = replace(
    load_recipe("demo").at(32),
    name="plain",
    base_lr=0.05,
    momentum=0.0,
    weight_decay=0.0,
    warmup_epochs=0.5,
    step_epochs=(1.0,),
    step_factor=0.5,
    gamma=0.75,
    label_smoothing=0.0,
)
# The contract's cases. The first three are trained by every framework, and each follows another
# schedule.
CASES: dict[str, dict[str, Any]] = {
    "plain": {"recipe": PLAIN, "schedule": "step"},
    "own": {
        "recipe": replace(PLAIN, base_lr=0.005),
        "schedule": "step",
        "model": OWN.name,
        "model_sha256": OWN.sha256,
    },
    # At 64 images the cosine's half is the base rate, and nothing would move.
    "demo": {
        "recipe": replace(load_recipe("demo").at(128), cosine_moves="step"),
        "schedule": "cosine",
        "global_batch": 128,
    },
    # Batch norm fails on a single picture of 1x1 features: 48 leaves 17, eight and nine of two
    # ranks.
    "batch-norm": {
        "recipe": replace(PLAIN, zero_init_last=True, exponential_start="warmup_end"),
        "schedule": "exponential",
        "model": "resnet8_half",
        "loader": "dali-cpu",
        "global_batch": 48,
    },
    # timm's smallest ResNet: with batch norm, and one rank without an image in an epoch's last
    # step.
    "none-left": {
        "recipe": replace(PLAIN, base_lr=0.0005),
        "schedule": "step",
        "model": "test_resnet",
    },
}


def on_two(*values: Any, daily: tuple[str, ...] = TWO) -> list[Any]:
    """Parameters (framework, *values) of a test: those of `daily`, and the other frameworks as slow
    tests. DDP's is in `make test`, the second one's in `make test-more`.

    For tests of code that all frameworks share. Ranks of one of the two meet by torch.distributed,
    those of the other have a rendezvous of their own; what differs between frameworks, the states
    that they save, test_frameworks.py resumes for each.
    """

    def marks(framework: str) -> list[pytest.MarkDecorator]:
        if framework not in daily:
            return [pytest.mark.slow]
        return [] if framework == "ddp" else [pytest.mark.more]

    return [pytest.param(f, *values, marks=marks(f)) for f in FRAMEWORKS]


def local_machine() -> Machine:
    """This machine with room for three workers, whatever its cores."""
    return replace(load_machine("local"), workers_per_node=3)


def spec_of(case: str, framework: str, workers: int) -> RunSpec:
    """A run of two epochs of a case."""
    return run_spec(machine="local", framework=framework, workers=workers, **CASES[case])


def need(spec: RunSpec) -> None:
    """Skip the test, saying why, where the run's framework or loader is not installed."""
    missing = missing_packages([spec], local_machine())
    if missing:
        pytest.skip("; ".join(missing))


@dataclass(frozen=True)
class Outcome:
    """What `ddlbench.run` left of a run; `marker` is in the environment of every process that it
    started.
    """

    spec: RunSpec
    folder: Path
    code: int
    output: str
    seconds: float
    marker: str
    ended: float  # when [s since 1970]

    @property
    def took_s(self) -> float:
        """How long it took to end, from what `probe.py` was told to do wrong, or else from its
        start [s].
        """
        misdeed = self.folder.parent / "misdeed"
        return self.ended - misdeed.stat().st_mtime if misdeed.exists() else self.seconds

    @cached_property
    def steps(self) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "steps.parquet")

    @cached_property
    def log(self) -> list[Event]:
        return list(read_log(self.folder / "run.mllog"))

    @cached_property
    def failure(self) -> dict[str, Any]:
        """What `ddlbench.run` says of a run that failed."""
        told: dict[str, Any] = json.loads((self.folder / "failed" / "failure.json").read_text())
        return told

    def values(self, key: str) -> list[Any]:
        """The values of a log key, in order."""
        return [event.value for event in self.log if event.key == key]

    def losses(self) -> list[float]:
        """The loss of each step: the sum over ranks."""
        return self.steps.groupby("step")["loss"].sum().tolist()

    def states(self) -> list[dict[str, torch.Tensor]]:
        """The final parameters and buffers of each rank."""
        return [
            torch.load(self.folder / f"state-{r}.pt", weights_only=True)
            for r in range(self.spec.workers)
        ]


def start(
    spec: RunSpec,
    folder: Path,
    data: Path,
    machine: Machine | None = None,
    program: Iterable[str] = ("python", str(HERE / "probe.py")),
    command: list[str] | None = None,
    environment: dict[str, str] | None = None,
    checkpoint_minutes: float | None = None,
) -> tuple[subprocess.Popen[bytes], str]:
    """`ddlbench.run` for a run, as the train rule starts it, and the marker of its processes.

    It prints into a file beside `folder`: a pipe would be held open by whatever outlives it.
    """
    marker = f"DDLBENCH_TEST={uuid.uuid4().hex}"
    argv = command or launch.command(spec, machine or local_machine(), tuple(program))
    run = [sys.executable, "-m", "ddlbench.run", "--spec", spec.to_json(), "--folder", str(folder)]
    env = (
        os.environ
        | {"PATH": f"{HERE / 'bin'}:{PATHS['PATH']}"}
        | dict([marker.split("=")])
        | (environment or {})
    )
    run += ["--manifest", str(data / str(spec.reads) / "manifest.json")]
    run += [f"--checkpoint-minutes={checkpoint_minutes}"] if checkpoint_minutes else []
    run += ["--", *argv]
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / OUTPUT).open("w") as output:
        return subprocess.Popen(run, env=env, stdout=output, stderr=subprocess.STDOUT), marker


def finish(spec: RunSpec, folder: Path, process: subprocess.Popen[bytes], marker: str) -> Outcome:
    """The outcome of a run that was started. One that takes ten minutes is stuck: it is killed, and
    is a failure.
    """
    began = time.monotonic()
    try:
        process.wait(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
    output = (folder.parent / OUTPUT).read_text()
    return Outcome(
        spec, folder, process.wait(), output, time.monotonic() - began, marker, time.time()
    )


def execute(spec: RunSpec, folder: Path, data: Path, **settings: Any) -> Outcome:
    """`start` and `finish`."""
    return finish(spec, folder, *start(spec, folder, data, **settings))


def survivors(marker: str) -> dict[int, str]:
    """Living processes with this marker in their environment, and their command lines."""
    found = {}
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            # A zombie's environment is empty: it runs no more.
            if marker.encode() in environ.read_bytes().split(b"\0"):
                command = environ.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(environ.parent.name)] = command
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return found
