#!/usr/bin/env python
"""What the recorder costs: a bare loop beside the same loop with the recorder in it, in turns, in one process.

    python bench/recorder.py [--steps 2000] [--rounds 20] [--device cuda]

It prints the cost per step [us], from the best round of each loop, and the median ratio of both loops' times. With
`--device cuda` each step is some matrix products on the GPU, whose losses the recorder reads when they are there; the
bare loop ends with the same wait for the GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recorder"))


def work_of(device: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """One step's work, which gives its loss, and what waits for all of it."""
    if device == "cpu":
        return lambda: float(sum(range(5000))), lambda: None
    import torch

    x = torch.randn(2048, 2048, device=device)

    def multiply() -> torch.Tensor:
        return (x @ x @ x).sum()

    return multiply, torch.cuda.synchronize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args()
    work, wait = work_of(a.device)
    # On a CPU, of which others may take their share, what counts is this thread's own time.
    clock = time.thread_time if a.device == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DDLBENCH_RECORDER"] = folder
        from ddlbench_recorder import Recorder

        rec = Recorder()

        def took(recorded: bool) -> float:
            wait()
            began = clock()
            for _ in rec.batches(range(a.steps)) if recorded else range(a.steps):
                loss = work()
                if recorded:
                    rec.step(loss, samples=32)
            wait()
            return clock() - began

        took(True)
        pairs = [(took(False), took(True)) for _ in range(a.rounds)]
        rec._close()
        rows = sum(path.stat().st_size for path in Path(folder).glob("*.steps"))
    bare, mine = (min(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(mine / bare for bare, mine in pairs)
    print(f"{1e6 * (mine - bare) / a.steps:.1f} us per step in the best of {a.rounds} rounds; median ratio {ratio:.4f}")
    print(f"{rows / ((a.rounds + 1) * a.steps):.0f} bytes per step")


if __name__ == "__main__":
    main()
