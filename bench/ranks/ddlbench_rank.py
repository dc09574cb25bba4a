"""Our side of `overhead.py` and `trainers.py`: what each rank executes in place of
`ddlbench.train`.

The same training, with a stopwatch around the training part of each epoch: also what ddlbench does
once an epoch (rows of steps written, ranks agreeing) is in it.
"""

import sys
from pathlib import Path

from ddlbench.train.__main__ import run_rank
from ddlbench.train.loop import Training
from stopwatch import Stopwatch


class Timed(Training):
    """The training, timed."""

    def run(self) -> None:
        self.stopwatch = Stopwatch()
        super().run()
        # Beside the record, because ddlbench.run clears away the folder that ranks write into.
        s = self.setup
        self.stopwatch.write(
            s.assignment.folder.parent, s.rank, s.images["train"] // s.spec.workers
        )

    def train(self, epoch: int, done: int) -> tuple[float, bool]:
        with self.stopwatch.epoch():
            return super().train(epoch, done)


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), Timed)
