"""Trainings that are not ours, for tests: small scripts of the standard library, and what their
runs leave.
"""

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.core.program import Program
from ddlbench.core.spec import RunSpec, of_program
from ddlbench.records import ours
from ddlbench.run.program import execute

STEP = r"step (?P<step>\d+).*?loss (?P<loss>\S+)"
# Steps of 10 ms; `{body}` is executed in each, with `step` and `rank`.
SCRIPT = """
import os, sys, time, signal, subprocess
rank, out = int(os.environ.get("RANK", 0)), sys.argv[1]
{before}
for step in range({first}, {first} + {steps}):
    time.sleep(0.01)
    {body}
{after}
"""
PRINT = 'print(f"step {step} loss {1 / (step + 1):.4f}")'


def spec(script: Path, workers: int = 1, **more: Any) -> RunSpec:
    """The run of a script by this Python, or by the command `command`."""
    given = {
        "command": f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{folder}}",
        "patterns": (STEP,),
    }
    program = Program(**{"name": "mine", **given, **more})
    return of_program(
        program,
        machine="local",
        device="cpu",
        workers=workers,
        workers_per_node=workers,
        global_batch=8,
    )


def script(
    folder: Path,
    body: str = PRINT,
    *,
    steps: int = 12,
    first: int = 0,
    before: str = "",
    after: str = "",
) -> Path:
    """A program whose name has a space."""
    path = folder / "my train.py"
    path.write_text(SCRIPT.format(body=body, steps=steps, first=first, before=before, after=after))
    return path


def launch(run: RunSpec) -> list[str]:
    """The line that starts its ranks here."""
    start = ["--start", str(run.workers)] if run.program and run.program.ranks == "each" else []
    return [sys.executable, "-m", "ddlbench.run.rank", *start]


def make(folder: Path, run: RunSpec, **more: Any) -> tuple[int, Path]:
    """The exit code of a run, and its folder."""
    place = folder / run.id
    place.mkdir(exist_ok=True)
    return execute(run, place, None, launch(run), **more), place


def made(folder: Path, run: RunSpec, **more: Any) -> Record:
    """The record of a run that ended well."""
    code, place = make(folder, run, **more)
    assert code == 0, failure(place)
    return ours.record(place)


def failure(place: Path) -> dict[str, Any]:
    """What a failed run left as its reason."""
    told: dict[str, Any] = json.loads((place / "failed" / "failure.json").read_text())
    return told


def losses(record: Record) -> Sequence[float]:
    """The loss of each step, over all ranks."""
    summed: list[float] = record.steps.groupby("step")["loss"].sum().tolist()
    return summed


MODULES = Path("/etc/profile.d/modules.sh")  # what makes `module` known to login shells


def module(folder: Path, name: str, **variables: str) -> Path:
    """A folder of environment modules with one in it, which sets these variables."""
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(
        "#%Module1.0\n" + "".join(f"setenv {name} {value}\n" for name, value in variables.items())
    )
    return folder


def stopped(folder: Path, run: RunSpec, **more: Any) -> tuple[int, Path]:
    """`make`, with the signal of a time limit once the program has begun to train."""
    waiter = threading.Thread(target=_stop, args=(folder / run.id,))
    waiter.start()
    done = make(folder, run, **more)
    waiter.join()
    return done


def _stop(place: Path) -> None:
    while not (place / ".partial/program/began").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGUSR1)
