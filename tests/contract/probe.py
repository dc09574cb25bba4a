"""What each rank executes in place of `ddlbench.train`: the same training, and then its parameters kept.

With PROBE_FAILS=<rank> that rank raises in its third step, while the others wait for its gradients.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from ddlbench import ranks, recipe
from ddlbench.spec import RunSpec
from ddlbench.train import train


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    spec = RunSpec.from_json(json.dumps(job["spec"]))
    rank = ranks.here(spec.workers).rank
    if os.environ.get("PROBE_FAILS") == str(rank):
        fail_in_step(2)
    model = train(spec, folder, Path(job["data"]), job["facts"])
    # Beside the record, because run.py clears away the folder that ranks write into.
    torch.save(model.state_dict(), folder.parent / f"state-{rank}.pt")


def fail_in_step(step: int) -> None:
    """The loop asks for the learning rate once a step: there is where this rank's training ends."""
    asked = iter(range(step))
    right = recipe.learning_rate

    def failing(spec: RunSpec, epoch: float) -> float:
        if next(asked, None) is None:
            raise RuntimeError("the probe fails, as it was told to")
        return right(spec, epoch)

    recipe.learning_rate = failing


if __name__ == "__main__":
    main()
