"""Our side of `overhead.py` and `trainers.py`: what each rank executes in place of `ddlbench.rank.train`.

The same training, with a stopwatch around the training part of each epoch: also what ddlbench does once an epoch
(rows of steps written, ranks agreeing) is in it.
"""

import sys
from pathlib import Path

from ddlbench.rank.train import Training, run_rank
from stopwatch import Stopwatch


class Timed(Training):
    """The training, timed."""

    def run(self) -> None:
        self.stopwatch = Stopwatch()
        super().run()
        # Beside the record, because ddlbench.run clears away the folder that ranks write into.
        self.stopwatch.write(self.folder.parent, self.rank, self.images["train"] // self.spec.workers)

    def train(self, epoch: int) -> bool:
        with self.stopwatch.epoch():
            return super().train(epoch)


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), Timed)
