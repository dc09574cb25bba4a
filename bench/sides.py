"""Sides of `overhead.py` and `trainers.py`: they start together and train in turns, epoch by epoch.

What a shared machine does meanwhile then hits all sides alike: an epoch is compared with the
others' that came right before or after it. Ranks wait for their turn (`ranks/stopwatch.py`) without
using the processor. Where its memory comes to lie makes a process some percent faster or slower for
all its life, so that many starts are needed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
from ddlbench.core.spec import RunSpec
from ddlbench.plan import launch
from ddlbench.settings.machine import load_machine

MACHINE = load_machine("local")
END_S = 10.0  # a side that is asked to end has so long
RANKS = Path(__file__).resolve().parent / "ranks"  # what a rank executes


@dataclass(frozen=True)
class Measured:
    """Of each epoch after the first: images/s by the slowest rank, and CPU-ms an image, all ranks
    and their loader processes; `loss` as the sides agree.
    """

    images_per_s: list[float]
    cpu_ms: list[float]
    loss: float

    def __add__(self, later: Measured) -> Measured:
        """Of two starts."""
        return Measured(
            self.images_per_s + later.images_per_s, self.cpu_ms + later.cpu_ms, later.loss
        )


@dataclass(frozen=True)
class Side:
    """How a side is started. Its ranks leave `timed-<rank>.json` in the folder; `loss` reads what
    they leave out.
    """

    argv: list[str]
    folder: Path
    loss: Callable[[], float] | None = None


def ours(spec: RunSpec, data: Path, folder: Path, last_steps: int) -> Side:
    """The run by ddlbench; `loss` is the mean of so many last steps, of its record."""
    run = ["python", "-m", "ddlbench.run", "--spec", spec.to_json(), "--folder", str(folder)]
    program = ("python", str(RANKS / "ddlbench_rank.py"))
    argv = [
        *run,
        "--manifest",
        str(data / "manifest.json"),
        "--",
        *launch.command(spec, MACHINE, program),
    ]

    def loss() -> float:
        steps = pq.read_table(folder / "steps.parquet").to_pandas()
        return float(steps.groupby("step").loss.sum().tail(last_steps).mean())  # the sum over ranks

    return Side(argv, folder, loss)


def train(sides: Sequence[Side], workers: int, scratch: Path, starts: int) -> list[Measured]:
    """Let all sides train in turns, from so many starts, of which each has another side begin. From
    now on SIGTERM ends this process as Ctrl-C does, with all that it started.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found: dict[int, Measured] = {}
    for start in range(starts):
        order = [(number + start) % len(sides) for number in range(len(sides))]
        for number, now in zip(
            order, _train([sides[n] for n in order], workers, scratch), strict=True
        ):
            found[number] = found[number] + now if number in found else now
    return [found[number] for number in range(len(sides))]


def _train(sides: Sequence[Side], workers: int, scratch: Path) -> list[Measured]:
    """One start. An error of a side ends the benchmark, with what it printed."""
    turns = scratch / "turns"
    shutil.rmtree(turns, ignore_errors=True)
    turns.mkdir()
    held = []  # what was written into a pipe is lost when nobody has it open
    for side in range(len(sides)):
        for rank in range(workers):
            os.mkfifo(turns / f"{side}-{rank}")
            held.append(os.open(turns / f"{side}-{rank}", os.O_RDWR))
            if side == 0:
                os.write(held[-1], b"!")
    started = []
    for number, side in enumerate(sides):
        shutil.rmtree(side.folder, ignore_errors=True)
        side.folder.mkdir(parents=True)
        turn = {
            "BENCH_TURNS": str(turns),
            "BENCH_SIDE": str(number),
            "BENCH_SIDES": str(len(sides)),
        }
        turn["BENCH_PID"] = str(os.getpid())
        with (turns / f"{number}.log").open("w") as log:
            environment = os.environ | turn
            started.append(
                subprocess.Popen(
                    side.argv, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
    try:
        codes: list[int | None] = [None]
        while None in codes:
            codes = [process.poll() for process in started]
            for number, code in enumerate(codes):
                if code:
                    output = (turns / f"{number}.log").read_text()
                    sys.exit(f"{sides[number].argv}\n{output}\nexit code {code}")
            time.sleep(0.5)
    finally:
        for process in started:
            end(process)
        for pipe in held:
            os.close(pipe)
    return [measured(side) for side in sides]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a side with all that it started: at once, if it does not end within a few seconds when it
    is asked to.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def measured(side: Side) -> Measured:
    """What the ranks of a side left in its folder."""
    ranks = [json.loads(path.read_text()) for path in side.folder.glob("timed-*.json")]
    images = sum(rank["images"] for rank in ranks)
    wall_s = [max(seconds) for seconds in zip(*(rank["wall_s"] for rank in ranks), strict=True)]
    cpu_s = [sum(seconds) for seconds in zip(*(rank["cpu_s"] for rank in ranks), strict=True)]
    loss = side.loss() if side.loss else sum(rank["loss"] for rank in ranks) / len(ranks)
    return Measured([images / s for s in wall_s[1:]], [1e3 * s / images for s in cpu_s[1:]], loss)


def spread(ratios: Sequence[float]) -> str:
    """The median and its 95 % interval."""
    low, high = bounds(ratios)
    return f"{median(ratios):5.3f} ({low:5.3f}..{high:5.3f})"


def bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which two of the values the true one lies with 95 % confidence, however they are
    distributed (order statistics: Conover 1999, Practical Nonparametric Statistics, section 3.2):
    if they are independent, which those of one start are not quite. Of fewer than six values the
    least and the most, which is less.
    """
    ordered, n = sorted(ratios), len(ratios)
    beyond, total = 0, 0.0
    while beyond < n // 2 and total + comb(n, beyond) / 2**n <= 0.025:
        total += comb(n, beyond) / 2**n
        beyond += 1
    low, high = max(0, beyond - 1), min(n - 1, n - beyond)
    return ordered[low], ordered[high]
