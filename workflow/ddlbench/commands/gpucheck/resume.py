"""SIGUSR1, as SLURM sends it before a job's end: a checkpoint, exit code 75, and the same losses when it goes on."""

import signal
import subprocess
import threading
from collections.abc import Iterator

import numpy as np

from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench, last_words, losses
from ddlbench.core import notes

LIMIT_S = 180
TOLERANCE = {"cpu": 0.0, "cuda": 0.02}  # on GPUs, sums are not always made in one order


def check(bench: Bench) -> Iterator[Row]:
    """How it stopped, how it went on, and its losses against those of a run that was not stopped."""
    spec = bench.spec(epochs=20 if bench.tiny else 6)
    whole = bench.train(spec, "whole")
    command = bench.command(spec, "stopped")
    code, said = stopped_after_an_epoch(bench, command)
    yield Row("exit code after SIGUSR1", judged(code == notes.STOPPED), f"expected: {notes.STOPPED}; {said}", code)
    record = bench.train(spec, "stopped")
    step = record.said("ddlbench_resumed", {}).get("step", 0)
    total = len(whole.steps)
    yield Row("went on after step", judged(0 < step < total), f"expected: between 0 and {total}", step)
    off = float(np.max(np.abs(np.array(losses(record)) / np.array(losses(whole)) - 1)))
    compared = f"of {total} steps, against a run that was not stopped; expected: at most {TOLERANCE[bench.device]:.0%}"
    yield Row("losses apart", judged(off <= TOLERANCE[bench.device]), compared, 100 * off, "%")


def stopped_after_an_epoch(bench: Bench, command: list[str]) -> tuple[int, str]:
    """Start the run, signal it when it says that its first epoch is done; its exit code and last words."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=bench.environment()
    )
    patience_s = LIMIT_S * (2 if bench.tiny else 0.5)
    killer = threading.Timer(patience_s, process.kill)  # it never says so: then the row shows exit code -9
    killer.start()
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if line.startswith("epoch 1/"):
            process.send_signal(signal.SIGUSR1)
    code = process.wait()
    killer.cancel()
    return code, last_words(said)
