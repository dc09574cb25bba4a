"""What ranks do differently where a part looks inside: `python -m ddlbench.commands.gpucheck._ranks <what> <folder>`.

Each is the training of every run with one thing added; `INSIDE` names them.
"""

import argparse
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddlbench.train.__main__ import run_rank
from ddlbench.train.loaders import Batch
from ddlbench.train.loop import Training
from ddlbench.train.setup import Setup

SYNCS = "gpucheck_syncs"  # in the log: by what made the host wait, how often in COUNTED steps
FIRST_COUNTED, COUNTED = 4, 5  # steps before are of another kind: buffers are made, algorithms tried


class Overflowing(Training):
    """The gradients of the first step are infinite."""

    def step(self, epoch: int, step: int, batch: Batch) -> None:
        engine = self.setup.engine
        if epoch or step:
            return super().step(epoch, step, batch)
        backward = engine.backward
        engine.backward = lambda loss, last: backward(loss * float("inf"), last)  # type: ignore[method-assign]
        super().step(epoch, step, batch)
        engine.backward = backward  # type: ignore[method-assign]
        return None


class Counting(Training):
    """Counts what makes the host wait for the device in some steps of the first epoch."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.counts: Counter[str] = Counter()

    def step(self, epoch: int, step: int, batch: Batch) -> None:
        if epoch == 0 and FIRST_COUNTED <= step < FIRST_COUNTED + COUNTED:
            with Waits(self.counts):
                super().step(epoch, step, batch)
        else:
            super().step(epoch, step, batch)

    def validate(self, epoch: int, loss: float) -> None:
        self.setup.log.event(SYNCS, dict(self.counts))
        super().validate(epoch, loss)


class Waits(TorchDispatchMode):
    """Counts, while it is entered, reads of a tensor's value; on a GPU also all that CUDA's own watch of PyTorch
    (`torch.cuda.set_sync_debug_mode`) notices, which is copies and reads, and explicit waits, which it does not.
    """

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts, self.cuda = counts, torch.cuda.is_available()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.counts["value of a tensor read"] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Any:
        if self.cuda:
            self.caught = warnings.catch_warnings(record=True)
            self.seen = self.caught.__enter__()
            warnings.simplefilter("always")
            self.synchronize = torch.cuda.synchronize
            torch.cuda.synchronize = self._synchronize
            torch.cuda.set_sync_debug_mode("warn")
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self.cuda:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize = self.synchronize
            self.caught.__exit__(*error)
            noticed = sum("synchronizing CUDA operation" in str(warning.message) for warning in self.seen or [])
            self.counts["noticed by CUDA's watch"] += noticed

    def _synchronize(self, device: Any = None) -> None:
        self.counts["torch.cuda.synchronize"] += 1
        self.synchronize(device)


INSIDE: dict[str, type[Training]] = {
    "overflow": Overflowing,
    "count": Counting,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench.commands.gpucheck._ranks", description=__doc__)
    parser.add_argument("what", choices=sorted(INSIDE))
    parser.add_argument("folder", type=Path)
    a = parser.parse_args()
    run_rank(a.folder, INSIDE[a.what])


if __name__ == "__main__":
    main()
