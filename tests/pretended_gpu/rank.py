"""The process of a rank on the pretended GPU, or on the CPU: `python -m tests.pretended_gpu.rank
<folder>`.

It is the training of every run. On the pretended GPU operators are computed by `compute.py`; on any
GPU, what made the host wait goes into the log. TRY_STOP makes the rank ask itself to stop after so
many steps, as SLURM would; with TRY_OVERFLOW the first step's gradients are infinite; with
TRY_INFERENCE it is a rank of inference.
"""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._inductor as inductor
from ddlbench.train.__main__ import run_rank
from ddlbench.train.inference import __main__ as inference
from ddlbench.train.loop import Training

from tests.pretended_gpu import say_gpu
from tests.pretended_gpu.compute import Computing, Waits

WAITS = "pretended_gpu_waits"  # in the log
STEADY = 12  # DDP's own log waits in steps 2 to 11


class Counting(Training):
    """Says in which phase of training the host is."""

    waits: Any = SimpleNamespace(phase="", counts={})  # on CPUs

    def phase(self, name: str) -> None:
        self.waits.phase = name

    def step(self, epoch: int, step: int, batch: Any) -> None:
        whole = epoch * self.setup.steps + step
        if str(whole) == os.environ.get("TRY_STOP"):
            os.kill(os.getpid(), signal.SIGUSR1)
        steady = whole >= STEADY
        self.phase("step" if steady else "first steps")
        engine = self.setup.engine
        backward = engine.backward
        if whole == 0 and "TRY_OVERFLOW" in os.environ:
            engine.backward = lambda loss, last: backward(loss * float("inf"), last)  # type: ignore[method-assign]
        super().step(epoch, step, batch)
        engine.backward = backward  # type: ignore[method-assign]
        self.phase("batch" if steady else "first batches")

    def validate(self, epoch: int, loss: float) -> None:
        self.phase("validation")
        super().validate(epoch, loss)
        self.phase("batch" if epoch + 1 < self.setup.spec.epochs else "end of run")

    def agree(self) -> bool:
        before = self.waits.phase
        self.phase("agreement")
        agreed = super().agree()
        self.phase(before)
        return agreed

    def write_rows(self, began: Any) -> None:
        self.phase("rows")
        super().write_rows(began)
        self.phase("end of epoch")

    def save(self, step: int) -> None:
        self.phase("checkpoint")
        super().save(step)
        self.phase("batch")

    def run(self) -> None:
        self.phase("first batches")
        event = self.setup.log.stop

        def stop(key: str, **more: Any) -> None:
            if key == "run_stop" and torch.cuda.is_available():
                said = {phase: dict(counts) for phase, counts in self.waits.counts.items()}
                library = self.waits.library
                elsewhere = (
                    library.gpu_timed_events_elsewhere() if "PRETENDED_GPUS" in os.environ else 0
                )
                self.setup.log.event(WAITS, {"waits": said, "elsewhere": elsewhere})
            event(key, **more)

        self.setup.log.stop = stop  # type: ignore[method-assign]
        super().run()


def main() -> None:
    if torch.cuda.is_available():
        Counting.waits = Waits()
        say_gpu()
    if not torch.cuda.is_available() or "PRETENDED_GPUS" in os.environ:
        Computing().__enter__()
        # A compiled model's program then calls operators, which can be computed, not kernels of its
        # own.
        inductor.config.patch(inductor.lite_mode_options).__enter__()
    inference.main() if "TRY_INFERENCE" in os.environ else run_rank(Path(sys.argv[1]), Counting)


if __name__ == "__main__":
    main()
