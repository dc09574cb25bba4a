"""Launches of `engine_probe.py`, for tests of what it left: fixture `results`, and what reads them.

Two real ranks a framework drive all of its cases in one launch, and resume them in a second one.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from ddlbench.core import registry
from ddlbench.plan import launch
from ddlbench.settings.machine import load_machine

from tests.conftest import Once
from tests.contract.engine_cases import CASES, RANKS, spec_of

Results = list[dict[str, Any]]  # one a rank
ROOT = Path(__file__).resolve().parents[2]


def name_of(variant: str, recipe: str, model: str = "lenet") -> str:
    """A case's, from what was said about it."""
    (name,) = [n for n, c in CASES.items() if (c.variant, c.recipe, c.model) == (variant, recipe, model)]
    return name


@pytest.fixture(scope="session")
def engine_packages() -> None:
    for adapter in {case.adapter for case in CASES.values()}:
        pytest.importorskip(registry.member("frameworks", adapter).PACKAGE)


@pytest.fixture(scope="session")
def engines_folder(once: Once) -> Path:
    return once("engines", lambda folder: None)


@pytest.fixture(scope="session")
def results(engines_folder: Path, once: Once) -> Callable[..., Results]:
    """`results(case's name, phase)`: what each rank left."""

    def start(alike: tuple[str, str | None], phase: str) -> None:
        cases = {name: case for name, case in CASES.items() if case.launch == alike}
        program = ("python", "-m", "tests.contract.engine_probe", str(engines_folder), phase, *cases)
        argv = launch.command(spec_of(next(iter(cases.values()))), load_machine("local"), program)
        paths = [str(ROOT / "workflow"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PATH": path, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout[-20000:]  # of all ranks: the first to end is not the last to speak

    @cache
    def launched(alike: tuple[str, str | None], phase: str) -> None:
        if phase == "resumed":
            launched(alike, "first")
        once("-".join(["engines", *filter(None, alike), phase]), lambda _: start(alike, phase))

    def read(name: str, phase: str = "first") -> Results:
        if CASES[name].options.get("controller") == "mpi" and not built_with_mpi():
            pytest.skip("Horovod was built without MPI: apt-get install libopenmpi-dev, then envs/build-horovod.sh")
        launched(CASES[name].launch, phase)
        return [torch.load(engines_folder / f"{name}-{phase}-{rank}.pt", weights_only=True) for rank in range(RANKS)]

    return read


@cache
def built_with_mpi() -> bool:
    import horovod.torch as hvd

    return bool(hvd.mpi_built())


def mean_losses(of_ranks: Results) -> list[float]:
    return [sum(losses) / RANKS for losses in zip(*(r["losses"] for r in of_ranks), strict=True)]
