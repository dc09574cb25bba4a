"""Where a run's time went, and from two runs: where the efficiency went. Accounting of what was
recorded, no model.

Times are those of the median worker of each step (of two, the less busy one). Busy excludes
transfer and waiting. So what one slow rank costs is waiting, and what costs all of them is in its
own part. `parts` gives the seconds of one run, `waterfall` what each part took away from
efficiency.
"""

from typing import Any

import numpy as np
import pandas as pd

from ddlbench.analysis import times
from ddlbench.analysis.record import Record
from ddlbench.analysis.scaling import in_series
from ddlbench.analysis.together import BATCH, KEYS, SERIES, usable
from ddlbench.core.columns import Column
from ddlbench.core.mllog import train_s
from ddlbench.core.step_rows import STEP_PARTS

PARTS = {
    "input_s": "Waiting for images, but not at the start of an epoch",
    "waiting_s": (
        "Waiting for the slowest rank: the median worker's wait for gradients, beyond `transfer_s`"
    ),
    "transfer_s": (
        "Transfer: the shortest wait for gradients of any rank, as the last rank waits for no other"
    ),
    "compute_s": "Forward pass, backward pass and optimizer",
    "together_s": (
        "`waiting_s`, `transfer_s` and `compute_s` in one, where the framework cannot measure them"
        " separately"
    ),
    "epochs_s": (
        "Start and end of epochs: until the first batch is there, and from the last step to the"
        " validation"
    ),
    "validation_s": "Validation",
    "checkpoint_s": "Checkpoints, and agreeing about them",
    "unexplained_s": "What is left of `total_s`; of a program also its pauses",
}
SPLIT = ("waiting_s", "transfer_s", "compute_s")  # null where there is `together_s`
COLUMNS = (
    Column("run", "str", "The run, a timed one."),
    Column("images", "int64", "Images that were trained on, over all epochs and ranks.", "images"),
    Column(
        "total_s",
        "float64",
        "The whole training as it was made, warm-up included (`train_s`).",
        "s",
    ),
    *(Column(name, "float64", f"{means}.", "s") for name, means in PARTS.items()),
)


def parts(record: Record) -> dict[str, Any]:
    """Return a timed run's row of table `losses` (COLUMNS): its parts add up to `total_s`, each as
    one worker spent it [s].
    """
    steps, spec = record.steps, record.spec
    busy = steps["forward_s"] + steps["backward_s"] + steps["optimizer_s"]
    split = bool(steps["communication_s"].notna().all())
    table = steps.assign(busy=busy + (steps["data_wait_s"] if split else 0.0))
    table["order"] = steps["data_wait_s"] if not split else table["busy"]
    # Of each step the row of the worker in the middle.
    table = table.sort_values(["step", "order", "rank"], kind="stable")
    place = table.groupby("step").cumcount()
    middle = table[place == (spec.workers - 1) // 2].set_index("step")
    starts = middle.index.to_numpy() % (len(middle) // spec.epochs) == 0
    waited = middle["data_wait_s"].to_numpy()
    row: dict[str, Any] = {
        "run": spec.id,
        "images": int(steps["images"].sum()),
        "total_s": train_s(record.last),
    }
    row |= dict.fromkeys(PARTS)
    if "data_wait_s" not in times.why_unknown(record):  # else it is in the rest of the step
        row["input_s"] = float(waited[~starts].sum())
    compute = float(busy.loc[table.index[place == (spec.workers - 1) // 2]].sum())
    if split:
        transfer = float(steps.groupby("step")["communication_s"].min().sum())
        row |= {"compute_s": compute, "transfer_s": transfer}
        row["waiting_s"] = float(middle["communication_s"].sum()) - transfer
    else:
        row["together_s"] = compute
    row |= _between_steps(record, float(waited[starts].sum()))
    row["unexplained_s"] = row["total_s"] - sum(
        row[name] or 0.0 for name in PARTS if name != "unexplained_s"
    )
    return row


def _between_steps(record: Record, waited_s: float) -> dict[str, float]:
    """Return the times between steps, on rank 0; `waited_s`: how long the first steps of epochs
    waited for their batch.

    Nobody knows what a user's program does between two steps: only what is before the first and
    behind the last one is returned.
    """
    steps = record.steps[record.steps["rank"] == 0]
    took = steps[[*STEP_PARTS]].sum(axis=1).to_numpy()
    ends, epochs = steps["end_s"].to_numpy(dtype=np.float64), steps["epoch"].to_numpy()
    gaps = np.clip(np.append(ends[1:] - took[1:], train_s(record.last)) - ends, 0.0, None)
    # Moments have the digits of float32: after hours, what looks like a gap of milliseconds is
    # rounding.
    gaps = np.where(gaps > 4 * np.spacing(np.abs(ends).astype(np.float32)), gaps, 0.0)
    first = max(0.0, float(ends[0] - took[0]))  # until the first epoch is requested from the loader
    if record.spec.program:
        return {"epochs_s": waited_s + first + float(gaps[-1])}
    last = np.append(epochs[1:] != epochs[:-1], True)  # of its epoch
    at = {
        (event.key, event.metadata["epoch_num"]): event.time_s
        for event in record.events
        if "epoch_num" in event.metadata
    }
    checkpoints, validations, ended = float(gaps[~last].sum()), 0.0, 0.0
    for number, gap in enumerate(gaps[last].tolist(), start=1):
        if ("eval_stop", number) not in at:  # its validation was not recorded
            ended += gap
            continue
        validated = at["eval_stop", number] - at["eval_start", number]
        # From a validation to the next epoch there is nothing but a checkpoint. A stop in between
        # is no part of it.
        rest = max(0.0, gap - validated)
        saved = (
            at.get(("epoch_start", number + 1), at["eval_stop", number]) - at["eval_stop", number]
        )
        saved = min(max(0.0, saved), rest)
        validations, checkpoints, ended = (
            validations + min(validated, gap),
            checkpoints + saved,
            ended + rest - saved,
        )
    return {
        "epochs_s": waited_s + ended + first,
        "validation_s": validations,
        "checkpoint_s": checkpoints,
    }


def waterfall(runs: pd.DataFrame, losses: pd.DataFrame) -> pd.DataFrame:
    """Split the efficiency into its losses: one row per series of runs and worker count beyond its
    baseline, with the columns below.

    `efficiency` is that of the whole training as it was made, from total times over total images of
    all repeats. Each part of PARTS is the efficiency that it cost: worker-seconds per image beyond
    the baseline's, as a share of all worker-seconds per image. `efficiency` and the parts add up to
    1. A part below 0 is better than at the baseline.

    Where a run of a comparison cannot split its parts, both sides count as `together_s`.
    """
    runs = usable(runs)
    names = [*KEYS, "run", "repeat", "workers", "global_batch", "scaling"]
    runs = runs[[name for name in names if name in runs]]  # `compute_s` there is of a step
    table = in_series(runs).merge(losses.rename(columns={"images": "trained"}), on="run")
    rows = []
    for _, series in table.groupby(list(SERIES), dropna=False):
        counts = [(int(str(workers)), group) for workers, group in series.groupby("workers")]
        ref, base = counts[0]
        for workers, group in counts[1:]:
            whole = not (base["together_s"].notna().any() or group["together_s"].notna().any())
            before, now = (
                _per_image(side, n, whole) for side, n in ((base, ref), (group, workers))
            )
            row = {key: group[key].iloc[0] for key in SERIES} | {
                "workers": workers,
                "ref_workers": ref,
            }
            row |= {"repeats": len(group), "efficiency": before["total_s"] / now["total_s"]}
            row |= {name: (now[name] - before[name]) / now["total_s"] for name in PARTS}
            rows.append(row)
    names = [*SERIES, "workers", "ref_workers", "repeats", "efficiency", *PARTS]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(BATCH, "Int64"))


def _per_image(runs: pd.DataFrame, workers: int, split: bool) -> dict[str, float]:
    """Return the worker-seconds per image of each part, over all repeats."""
    seconds = {name: float(runs[name].fillna(0.0).sum()) for name in ("total_s", *PARTS)}
    if not split:
        seconds["together_s"] += sum(seconds.pop(name) for name in SPLIT)
        seconds |= dict.fromkeys(SPLIT, 0.0)
    return {name: value * workers / float(runs["trained"].sum()) for name, value in seconds.items()}
