"""Steps and events to a run's measures of time. What each means says `collect.collect`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ddlbench.analysis.scaling import throughput
from ddlbench.record import Event
from ddlbench.spec import RunSpec

# The parts of a step, in the order in which it makes them.
STEP_TIMES = ["data_wait_s", "forward_s", "backward_s", "communication_s", "optimizer_s"]


def after_warm_up(steps: pd.DataFrame, spec: RunSpec) -> pd.DataFrame:
    """The steps that count; none if warm-up was all there is."""
    if spec.epochs > 1:
        return steps[steps["epoch"] > 0]
    return steps[steps["step"] >= max(1, steps["step"].nunique() // 10)]


def wall_s(steps: pd.DataFrame) -> pd.Series[float]:
    """Wall time of each epoch's steps [s]: that of the rank which needed longest."""
    step_s = steps[STEP_TIMES].sum(axis=1)  # what was not measured of it is in the others
    return step_s.groupby([steps["epoch"], steps["rank"]]).sum().groupby(level="epoch").max()


def mfu(images_per_s: float, flops_per_image: float, workers: int, peak_tflops: float) -> float:
    """Model FLOPs utilization: the operations that the model asks for, by those that `workers` could do at their peak.

    Source: Chowdhery et al. 2022 (arXiv:2204.02311, section 4.1): what is computed twice to save memory does not count.
    """
    return images_per_s * flops_per_image / (workers * peak_tflops * 1e12)


def measures(steps: pd.DataFrame, events: Sequence[Event], spec: RunSpec, images: int) -> dict[str, float]:
    """Measures of a timed run by column; without those after warm-up if warm-up was all there is."""
    last = {event.key: event for event in events}
    train_s: float = last["run_stop"].time_s - last["run_start"].time_s
    if "ddlbench_elapsed_s" in last:
        train_s = last["ddlbench_elapsed_s"].value
    found = {"train_s": train_s} | _after(after_warm_up(steps, spec), events, spec, images)
    left = spec.full_epochs - spec.epochs
    if not left:
        found["full_train_s"] = train_s
    elif "epoch_s" in found:
        found["full_train_s"] = train_s + left * (found["epoch_s"] + found["validation_s"])
    return found


def _after(timed: pd.DataFrame, events: Sequence[Event], spec: RunSpec, images: int) -> dict[str, float]:
    if timed.empty:
        return {}
    rate = throughput(float(timed["images"].sum()), float(wall_s(timed).sum()))
    means = {name: float(timed[name].mean()) for name in STEP_TIMES}
    found = {"throughput_images_per_s": rate, "epoch_s": images / rate, **means}
    found["compute_s"] = means["forward_s"] + means["backward_s"] + means["optimizer_s"]
    found["validation_s"] = _validation_s(events)
    if spec.workers > 1:
        transfer = float(timed.groupby("step")["communication_s"].min().mean())
        found["communication_transfer_s"] = transfer
        found["communication_wait_s"] = means["communication_s"] - transfer
    return found


def _validation_s(events: Sequence[Event]) -> float:
    """Mean time of a validation after the first, or of the only one."""
    at = {
        key: {e.metadata["epoch_num"]: e.time_s for e in events if e.key == key} for key in ("eval_start", "eval_stop")
    }
    took = [at["eval_stop"][n] - at["eval_start"][n] for n in sorted(at["eval_stop"]) if n in at["eval_start"]]
    return float(np.mean(took[1:] or took)) if took else float("nan")
