"""Do the times of one of our records fit each other? What a log and its steps may say is asked in
`_sound.py`.

Each check raises RefusedError, which names the file and what does not fit: a clock was set, or
somebody wrote times that nobody measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddlbench.analysis.refusals import RefusedError
from ddlbench.core import kinds
from ddlbench.core.mllog import Event
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import STEP_PARTS

# Clocks of a record: steps are timed by the host's clock of intervals, on GPUs by events of the
# device; the log by the host's clock of the day. What they may differ by is a part of the time, and
# seconds.
#
# Chosen from 48 records of the demo on two loaded cores and 10 of an H200, of epochs of 1.7 to 25
# s. There an epoch of the log was 5 ms shorter to 124 ms longer than its steps (at most 1.3 %),
# `ddlbench_elapsed_s` 0 to 13 ms shorter than from run_start to run_stop, and epochs and
# validations left 15 to 170 ms of a run unfilled. A clock that NTP slews is off by 0.05 % at most.
# Gathering the steps of 1000 ranks takes rank 0 about half a second, at an epoch's end.
STEPS_LONGER = (0.1, 0.01)  # of what they are in; there is no reason for it but the clocks
STEPS_SHORTER = (0.5, 0.05)
ELAPSED = (0.5, 0.01)
UNFILLED = (2.0, 0.05)  # counters are read at the end: NVML may take a second


def check_clocks(
    path: Path, steps: pd.DataFrame, pauses: Collection[int] | None, an_epoch: int
) -> None:
    """Check that on each rank a step begins where the one before ended, so that the parts of steps
    sum to the clock, `end_s`.

    A step may begin later where an epoch begins, and after `pauses` steps, when a checkpoint was
    written or the run resumed from one; None: after any.
    """
    for rank, mine in steps.sort_values("step").groupby("rank"):
        end, step = mine["end_s"].to_numpy("float64"), mine["step"].to_numpy()
        took = mine[[*STEP_PARTS]].fillna(0.0).to_numpy("float64").sum(axis=1)
        gap = np.diff(end, prepend=0.0) - took
        free = (
            (step % an_epoch == 0) | np.isin(step, [*pauses])
            if pauses is not None
            else np.ones(len(step), bool)
        )
        free[0] = True
        stretch = np.flatnonzero(free)[
            np.cumsum(free) - 1
        ]  # where the stretch of steps without a pause began
        summed = np.cumsum(took)
        # Both are sums since then, as far as float32 tells seconds apart.
        off = np.cumsum(np.where(free, 0.0, gap))
        off -= off[stretch]
        room = (
            1e-4 + 1e-3 * (summed - summed[stretch] + took) + 4 * np.spacing(end.astype("float32"))
        )
        wrong = np.flatnonzero((np.abs(off) > room) | (gap < -room))
        if len(wrong):
            first = step[wrong[0]]
            raise RefusedError(
                path, f"the parts of step {first} on rank {rank} do not sum to its end time, end_s"
            )


def check_times(
    log: Path, events: Sequence[Event], path: Path, steps: pd.DataFrame, spec: RunSpec
) -> None:
    """Check that the times of a record fit each other: its steps fill the log's epochs, epochs and
    validations fill the run, and the run's length is `ddlbench_elapsed_s`. `path` is the file of
    the steps.

    Where a run resumed from a checkpoint, the log includes the time in between, and the clock of
    the steps does not.
    """
    at = {(event.key, event.metadata.get("epoch_num")): event.time_s for event in events}
    last = {event.key: event for event in events}
    stop_s = at["run_stop", None]
    run_s = stop_s - at["run_start", None]
    resumed = {int(event.value["step"]) for event in events if event.key == "ddlbench_resumed"}
    elapsed_s = last["ddlbench_elapsed_s"].value if "ddlbench_elapsed_s" in last else None
    if elapsed_s is not None:
        _check_agrees(
            log,
            "ddlbench_elapsed_s",
            elapsed_s,
            "the run",
            run_s,
            ELAPSED,
            None if resumed else ELAPSED,
        )
    ends_s = float(steps["end_s"].max())
    if not kinds.uses_built_in_loop(
        spec
    ):  # a program may do anything before, between and after its steps
        _check_agrees(path, "the last step's end", ends_s, "the run", run_s, STEPS_LONGER, None)
        return
    took = steps[[*STEP_PARTS]].fillna(0.0).sum(axis=1)
    begins = (steps["end_s"] - took).groupby([steps["epoch"], steps["rank"]]).min()
    spans = (
        (steps["end_s"].groupby([steps["epoch"], steps["rank"]]).max() - begins)
        .groupby("epoch")
        .max()
    )
    an_epoch = int(steps["step"].max() + 1) // spec.epochs
    logged = {
        number: at["epoch_stop", number] - at["epoch_start", number]
        for number in range(1, spec.epochs + 1)
    }
    # A profiler may write for long after a step; such a run has no speed.
    whole = [
        number for number in logged if not any(step // an_epoch == number - 1 for step in resumed)
    ]
    whole = [] if spec.profiled else whole
    for number, epoch_s in logged.items():
        shorter = STEPS_SHORTER if number in whole else None
        epoch = f"epoch {number}"
        _check_agrees(
            path,
            f"steps of {epoch}",
            float(spans[number - 1]),
            f"its {epoch}",
            epoch_s,
            STEPS_LONGER,
            shorter,
        )
    epochs_s, steps_s = (
        sum(float(of[number - first]) for number in whole)
        for of, first in ((logged, 0), (spans, 1))
    )
    _check_agrees(path, "all steps", steps_s, "the epochs", epochs_s, STEPS_LONGER, STEPS_SHORTER)
    if (elapsed_s is not None or not resumed) and not spec.profiled:
        tail_s = (run_s if elapsed_s is None else elapsed_s) - ends_s
        after_s = stop_s - at["epoch_stop", spec.epochs]
        _check_agrees(
            path,
            "what comes after the last step",
            tail_s,
            "what is after it",
            after_s,
            ELAPSED,
            ELAPSED,
        )
    _check_filled(log, at, run_s, spec.epochs, _pauses_after(events, an_epoch))


def _check_agrees(
    path: Path,
    what: str,
    took_s: float,
    within: str,
    logged_s: float,
    longer: tuple[float, float],
    shorter: tuple[float, float] | None,
) -> None:
    """Check that a time agrees with that of the log, as far as clocks may differ; `shorter` is None
    where the time may be of any shorter length.
    """
    room = [
        seconds + share * abs(logged_s) for seconds, share in (longer, shorter or (math.inf, 0.0))
    ]
    if not -room[1] <= took_s - logged_s <= room[0]:
        fault = (
            f"{what}: {took_s:.6g} s, but {within} takes {logged_s:.6g} s by the log: one of the"
            " clocks is wrong"
        )
        raise RefusedError(path, fault)


def _pauses_after(events: Sequence[Event], an_epoch: int) -> set[int]:
    """Return the epochs after which a checkpoint was written, or the run resumed from one."""
    said = [event.value for event in events if event.key == "ddlbench_checkpoint"]
    said += [event.value["step"] for event in events if event.key == "ddlbench_resumed"]
    return {int(step) // an_epoch for step in said if int(step) % an_epoch == 0}


def _check_filled(
    log: Path,
    at: Mapping[tuple[str, Any], float],
    run_s: float,
    epochs: int,
    paused: Collection[int],
) -> None:
    """Check that epochs and validations follow each other and fill the run."""
    moments = [("run_start", at["run_start", None])]
    for number in range(1, epochs + 1):
        names = ("epoch_start", "epoch_stop", "eval_start", "eval_stop")
        moments += [(f"{name} of epoch {number}", at[name, number]) for name in names]
    moments.append(("run_stop", at["run_stop", None]))
    unfilled_s = 0.0
    for place in range(0, len(moments), 2):
        (before, before_s), (after, after_s) = moments[place : place + 2]
        if after_s - before_s < -STEPS_LONGER[0]:
            raise RefusedError(log, f"{after} is earlier than {before}: the clock was set back")
        if (
            place % 4 or place // 4 not in paused
        ):  # after an epoch's validation there may be a checkpoint
            unfilled_s += after_s - before_s
    if unfilled_s > UNFILLED[0] + UNFILLED[1] * run_s:
        fault = (
            f"epochs and validations do not account for {unfilled_s:.6g} s of the run's {run_s:.6g}"
            " s: one of the clocks is wrong"
        )
        raise RefusedError(log, fault)
