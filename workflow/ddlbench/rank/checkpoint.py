"""Checkpoints of a run: every rank writes its part aside, and a rename makes them one.

`<run folder>/checkpoint/<step>/{rank-<n>.pt, checkpoint.json}`; the newest is kept. `ddlbench.run` decides whether a
run goes on from one; `train.py` says what is in it, and `setup.py` reads it. Parts are tensors and plain values:
loading one runs no code.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FOLDER = "checkpoint"
SUMMARY = "checkpoint.json"


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint in a run's folder; None if there is none."""
    whole = sorted((folder / FOLDER).glob(f"[0-9]*/{SUMMARY}"))
    return whole[-1].parent if whole else None


def summary(checkpoint: Path) -> dict[str, Any]:
    """What the checkpoint says of itself: where in training it was made, by how many ranks."""
    data: dict[str, Any] = json.loads((checkpoint / SUMMARY).read_text(encoding="utf-8"))
    return data


def save(
    folder: Path, step: int, rank: int, part: dict[str, Any], about: dict[str, Any], meet: Callable[[], Any]
) -> None:
    """Write this rank's part of the checkpoint at `step`. All ranks call it at once; `meet` waits for all of them.

    Raises OSError, for instance if the disk is full. The checkpoint before then stays whole.
    """
    import torch

    final = folder / FOLDER / f"{step:09d}"
    aside = final.with_name(f".{final.name}")
    aside.mkdir(parents=True, exist_ok=True)
    with (aside / f"rank-{rank}.pt").open("wb") as file:
        torch.save(part, file)
        file.flush()
        os.fsync(file.fileno())
    meet()
    if rank == 0:
        (aside / SUMMARY).write_text(json.dumps({"step": step, **about}), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        for other in (folder / FOLDER).iterdir():
            if other != final:
                shutil.rmtree(other)
    meet()


def load(checkpoint: Path, rank: int) -> dict[str, Any]:
    """This rank's part, on the CPU."""
    import torch

    part: dict[str, Any] = torch.load(checkpoint / f"rank-{rank}.pt", map_location="cpu", weights_only=True)
    return part


def random_state() -> dict[str, torch.Tensor]:
    """The state of torch's generators on this rank."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Put back what `random_state` gave."""
    import torch

    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
