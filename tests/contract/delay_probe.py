"""What each rank executes in place of `ddlbench.train`: the same training, with delays in each step
if DELAY is set.

    input        120 ms before each batch, on both ranks
    backward     180 ms in the backward pass of rank 1
    transfer     90 ms behind each all-reduce, on both ranks

They are long beside what a busy machine does to a step. Each rank notes in `slept-<rank>` beside
the record how long it really slept [s]; `start` is that of epochs' first batches. A sleep on a busy
machine is longer than it was asked for. Annotations are no text here: DDP reads a hook's.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from ddlbench.train.__main__ import run_rank
from ddlbench.train.loaders import Batch
from ddlbench.train.loop import Training
from ddlbench.train.setup import Setup

INPUT_S, BACKWARD_S, TRANSFER_S = 0.120, 0.180, 0.090


class Delayed(Training):
    """The training with its delays."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.slept: Counter[str] = Counter()
        if not os.environ.get("DELAY"):
            return
        loader, engine = setup.loaders["train"], setup.engine
        epoch, backward = loader.epoch, engine.backward

        def slow_epoch(*arguments: Any) -> Iterator[Batch]:
            for number, batch in enumerate(epoch(*arguments)):
                self.sleep(INPUT_S, "input" if number else "start")
                yield batch

        def slow_backward(loss: torch.Tensor, last: bool) -> None:
            loss.register_hook(lambda _: self.sleep(BACKWARD_S, "backward"))
            backward(loss, last)

        loader.epoch = slow_epoch
        if setup.rank == 1:
            engine.backward = slow_backward
        engine.ddp.register_comm_hook(None, self.reduce)

    def sleep(self, seconds: float, what: str) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        self.slept[what] += time.perf_counter() - began

    def reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's own all-reduce, which then takes longer.

        In a thread: what waits for a future that is done already executes within the backward pass.
        """
        reduced: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        work = dist.all_reduce(bucket.buffer(), async_op=True)

        def later() -> None:
            work.wait()
            self.sleep(TRANSFER_S, "transfer")
            reduced.set_result(bucket.buffer().div_(dist.get_world_size()))

        Thread(target=later, daemon=True).start()
        return reduced

    def run(self) -> None:
        super().run()
        folder = self.setup.assignment.folder.parent
        (folder / f"slept-{self.setup.rank}").write_text(json.dumps(self.slept))


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), Delayed)
