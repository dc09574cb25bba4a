"""Runs that a study interrupts on purpose: that it happened, and that it happens once.

`train/interruption.py` is how ranks die. Their note is kept in the run's folder until the record is whole, so that a
supervisor that is killed meanwhile interrupts the run no second time.
"""

import json
from pathlib import Path
from typing import Any

from ddlbench.core.files import write_json
from ddlbench.core.spec import RunSpec
from ddlbench.train import interruption

KEPT = ".interruption.json"
AGAIN = -1  # in place of an exit code: the run is to be started again


def still_to_come(spec: RunSpec, folder: Path) -> int | None:
    """After how many steps this try is to be interrupted; None if it is not."""
    return None if kept(spec, folder) else spec.interrupt_steps


def happened(spec: RunSpec, folder: Path, partial: Path) -> bool:
    """Whether the ranks of this try died as they were to; keeps their note."""
    if spec.interrupt_steps is None or kept(spec, folder):
        return False
    try:
        note = json.loads((partial / interruption.NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    write_json(folder / KEPT, {"spec": json.loads(spec.to_json()), "note": note})
    return True


def kept(spec: RunSpec, folder: Path) -> dict[str, Any] | None:
    """What ranks of an earlier try of this run left when they died: step, checkpoint_s, time_s."""
    try:
        told = json.loads((folder / KEPT).read_text(encoding="utf-8"))
        note: dict[str, Any] = told["note"]
        return note if told["spec"] == json.loads(spec.to_json()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
