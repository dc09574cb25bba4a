"""Launches of `engine_probe.py`, for tests of what it left: fixture `results`, and what reads them.

Two real ranks a framework drive all of its cases in one launch, and resume them in a second one.
"""

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.plan import launch
from ddlbench.settings.machine import load_machine

from tests.conftest import PATHS, ROOT, Once
from tests.contract.engine_cases import CASES, RANKS, spec_of

Results = list[dict[str, Any]]  # one a rank


def name_of(variant: str, recipe: str, model: str = "lenet") -> str:
    """A case's, from what was said about it."""
    (name,) = [
        n for n, c in CASES.items() if (c.variant, c.recipe, c.model) == (variant, recipe, model)
    ]
    return name


def drive(spec: RunSpec, folder: Path, phase: str, names: Iterable[str]) -> None:
    """Launch the ranks of a run, which drive these cases."""
    program = ("python", "-m", "tests.contract.engine_probe", str(folder), phase, *names)
    argv = launch.command(
        spec, replace(load_machine("local"), workers_per_node=spec.workers), program
    )
    told = os.environ | PATHS | {"OMP_NUM_THREADS": "1", "PROBE_RANKS": str(spec.workers)}
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[
        -20000:
    ]  # of all ranks: the first to end is not the last to speak


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
        drive(spec_of(next(iter(cases.values()))), engines_folder, phase, cases)

    @cache
    def launched(alike: tuple[str, str | None], phase: str) -> None:
        if phase == "resumed":
            launched(alike, "first")
        once("-".join(["engines", *filter(None, alike), phase]), lambda _: start(alike, phase))

    def read(name: str, phase: str = "first") -> Results:
        launched(CASES[name].launch, phase)
        return [
            torch.load(engines_folder / f"{name}-{phase}-{rank}.pt", weights_only=True)
            for rank in range(RANKS)
        ]

    return read


def mean_losses(of_ranks: Results) -> list[float]:
    return [sum(losses) / RANKS for losses in zip(*(r["losses"] for r in of_ranks), strict=True)]
