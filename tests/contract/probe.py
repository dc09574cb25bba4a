"""What each rank executes in place of `ddlbench.train`: the same training, and then its parameters
kept.

PROBE_FAILS=<rank> makes that rank raise in its third step while the others wait for its gradients;
with PROBE_DOES it does something else there (see `MISDEEDS`), at step PROBE_STEP.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from ddlbench.train.__main__ import run_rank
from ddlbench.train.loaders import Batch
from ddlbench.train.loop import Training
from weights import whole  # beside this file, which is started as a script


def fail() -> None:
    raise RuntimeError("the probe fails, as it was told to")


MISDEEDS = {
    "raise": fail,
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda: time.sleep(10_000),
    "memory": lambda: torch.empty(1 << 60),
    "nothing": lambda: None,
}


class Probe(Training):
    """The training, with its misdeed, its step times and its weights at the end."""

    def step(self, epoch: int, step: int, batch: Batch) -> None:
        now = epoch * self.setup.steps + step
        if os.environ.get("PROBE_FAILS") == str(self.setup.rank) and now == int(
            os.environ.get("PROBE_STEP", "2")
        ):
            (self.setup.assignment.folder.parent.parent / "misdeed").touch()
            does = os.environ.get("PROBE_DOES", "raise")
            if does == "nan":
                batch = (batch[0] * float("nan"), batch[1])
            else:
                MISDEEDS[does]()
        time.sleep(float(os.environ.get("PROBE_SLEEP_S", "0")))
        super().step(epoch, step, batch)

    def run(self) -> None:
        super().run()
        # Beside the record, because ddlbench.run clears away the folder that ranks write into.
        folder = self.setup.assignment.folder.parent
        torch.save(whole(self.setup.engine.model), folder / f"state-{self.setup.rank}.pt")


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), Probe)
