"""trainer: the Hugging Face Trainer's `trainer_state.json`, the newest in the program's folder.

The file says steps and losses, and no times. It counts samples, so that ranks which train each for itself, and would
look twice as fast, are refused. Times come from the lines that the Trainer prints as it logs, one for each entry.
"""

import json
import re
from pathlib import Path
from typing import Any

from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Output, Reading, StepEnd, UnreadError, reading

LOSS = re.compile(r"\{'loss': ")
NAME = "trainer_state.json"
FAR = 0.1  # the Trainer rounds, and an epoch's last batch may be smaller


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """What the Trainer prints as it logs."""
    return [LOSS]


def read(source: Output) -> Reading:
    """The steps that the Trainer logged. Raises UnreadError without a file, or without entries in it."""
    path = source.newest(NAME)
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        log = [entry for entry in state["log_history"] if "loss" in entry and "step" in entry]
        evaluated = [entry for entry in state["log_history"] if "eval_loss" in entry]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadError(f"{path}: cannot be read ({error!r})") from None
    if not log:
        raise UnreadError(f"{path}: has no entry with a loss in log_history: lower logging_steps")
    _check_batch(source.spec, path, state)
    first = min((line.rank for line in source.lines if LOSS.search(line.text)), default=0)
    stamps = [line.time_s for line in source.lines if LOSS.search(line.text) and line.rank == first]
    if source.again_s and len(stamps) > len(log):  # what was trained behind the checkpoint was trained again
        before = sum(at < source.again_s[-1] for at in stamps)
        del stamps[max(0, before - len(stamps) + len(log)) : before]
    if len(stamps) != len(log):
        raise UnreadError(f"{path}: {len(log)} entries with a loss, and {len(stamps)} printed: these have the times")
    points = [
        StepEnd(at, entry["step"], entry.get("loss"), entry.get("learning_rate"))
        for at, entry in zip(stamps, log, strict=True)
    ]
    at = dict(zip([entry["step"] for entry in log], stamps, strict=True))
    evaluations = [
        Evaluation(at.get(entry["step"], stamps[-1]), entry.get("eval_accuracy"), entry["eval_loss"])
        for entry in evaluated
    ]
    return reading(source, points, evaluations)


def _check_batch(spec: RunSpec, path: Path, state: dict[str, Any]) -> None:
    """Raises UnreadError if the Trainer counted other samples per step than it was told."""
    ends = [entry for entry in state["log_history"] if "train_samples_per_second" in entry]
    if not ends or not ends[-1].get("step"):
        return
    counted = ends[-1]["train_samples_per_second"] * ends[-1]["train_runtime"] / ends[-1]["step"]
    if abs(counted - spec.global_batch) > FAR * spec.global_batch:
        why = f"in place of {spec.global_batch}: its ranks train each for itself, or the command does not say the batch"
        raise UnreadError(f"{path}: the Trainer counted {counted:.0f} samples per step {why}")
