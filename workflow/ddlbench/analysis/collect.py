"""Records to tables: `runs` (a row a run), `epochs` (a row a run and epoch) and `learning_rates`.

Warm-up is cut here, never in the log: the first epoch; in a run of one epoch, the first tenth of its steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddlbench.analysis.scaling import throughput
from ddlbench.record import MLLOG, STEPS, Event, read_log
from ddlbench.spec import RunSpec

# Columns and their types, which hold even where all is null.
ORIGIN = {
    "hosts": "str",
    "torch_version": "str",
    "horovod_version": "str",
    "deepspeed_version": "str",
    "commit": "str",
    "uncommitted_changes": "boolean",
    "command": "str",
}
MEASURES = {
    "throughput_images_per_s": "float64",
    "epoch_s": "float64",
    "train_s": "float64",
    "data_wait_s": "float64",
    "compute_s": "float64",
    "communication_s": "float64",
    "final_top1": "float64",
    "best_top1": "float64",
    "final_loss": "float64",
}
EPOCHS = {
    "run": "str",
    "epoch": "int64",
    "lr": "float64",
    "lr_end": "float64",
    "loss": "float64",
    "top1": "float64",
    "train_s": "float64",
    "throughput_images_per_s": "float64",
}
LEARNING_RATES = {"run": "str", "epoch": "float64", "lr": "float64"}
RATES_AN_EPOCH = 20
STEP_TIMES = ["data_wait_s", "compute_s", "communication_s"]


def collect(records: Sequence[Path], tables: Path) -> None:
    """Read records, folders with `run.mllog` and `steps.parquet`; write tables into a folder, rows by run id.

    `runs.parquet`, `runs.csv`: the columns of a RunSpec; `status`: success, or failed for a log without a
    successful end, whose measures are null; where, with what and how the run was made; `images`, those of the
    training split; and the measures. `throughput_images_per_s`; `epoch_s`, train images by throughput;
    `data_wait_s`, `compute_s` and `communication_s`, the mean of a step over ranks: all after warm-up.
    `train_s`: the whole training with its validation. These six are null where the run was not timed, or was
    profiled. `final_top1` and `best_top1`: fractions, null for loader synthetic, which trains on random data.
    `final_loss`: that of the last epoch.

    `epochs.parquet`, `epochs.csv`: successful runs' epochs, counted from 1: learning rate of the first and of
    the last step, mean loss of a step, top-1, time of its training steps [s] and throughput [images/s]. The
    first epoch is as it was measured, warm-up included.

    `learning_rates.parquet`: successful runs' rates. `epoch` counts from 0 and has a fraction, `lr` is the
    rate of the step that began then; at most 20 steps an epoch, its first and last among them.

    Raises ValueError, naming the file, for a log that does not say which run it is of and for steps that do
    not add up.
    """
    parts = sorted((_read(folder) for folder in records), key=lambda part: str(part[0]["run"]))
    runs = pd.DataFrame([row for row, _, _ in parts]).astype(ORIGIN | MEASURES)
    epochs = pd.concat([table for _, table, _ in parts], ignore_index=True)
    rates = pd.concat([table for _, _, table in parts], ignore_index=True)
    tables.mkdir(parents=True, exist_ok=True)
    _write(rates, tables / "learning_rates.parquet")
    for name, table in (("epochs", epochs), ("runs", runs)):
        _write(table, tables / f"{name}.csv")
        _write(table, tables / f"{name}.parquet")


def _read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """A run's row, its epochs and its learning rates; the latter two are empty if it failed."""
    log = folder / MLLOG
    events = list(read_log(log))
    last = {event.key: event for event in events}
    if "ddlbench_spec" not in last:
        raise ValueError(f"{log}: has no ddlbench_spec, so nothing says which run it is of")
    spec = RunSpec.from_json(json.dumps(last["ddlbench_spec"].value))
    images: int = last["train_samples"].value
    success = "run_stop" in last and last["run_stop"].metadata.get("status") == "success"
    row = spec.columns() | {"status": "success" if success else "failed"} | _origin(last)
    row |= {"images": images} | dict.fromkeys(MEASURES)
    if not success:
        return row, _empty(EPOCHS), _empty(LEARNING_RATES)
    steps = pd.read_parquet(folder / STEPS)
    _check(steps, spec, images, folder / STEPS)
    steps = steps.sort_values(["step", "rank"])
    epochs = _epochs(steps, events, spec)
    row |= {
        "final_top1": epochs["top1"].iloc[-1],
        "best_top1": epochs["top1"].max(),
        "final_loss": epochs["loss"].iloc[-1],
    }
    if spec.timed and not spec.profiled:
        row |= {"train_s": last["run_stop"].time_s - last["run_start"].time_s} | _timing(steps, spec, images)
    return row, epochs, _learning_rates(steps, spec)


def _empty(columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(columns=list(columns)).astype(columns)


def _origin(last: dict[str, Event]) -> dict[str, Any]:
    """Where, with what and how the run was made, as far as it came to say so."""
    facts = last["ddlbench_facts"].value if "ddlbench_facts" in last else {}
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else [facts]
    hosts = sorted({rank["host"] for rank in ranks if "host" in rank})
    versions = facts.get("versions", {})
    return {
        "hosts": ",".join(hosts),
        "torch_version": versions.get("torch"),
        "horovod_version": versions.get("horovod"),
        "deepspeed_version": versions.get("deepspeed"),
        "commit": facts.get("commit"),
        "uncommitted_changes": facts.get("uncommitted_changes"),
        "command": facts.get("command"),
    }


def _check(steps: pd.DataFrame, spec: RunSpec, images: int, path: Path) -> None:
    """Raises ValueError if ranks or epochs are missing, or an epoch has not as many images as the split."""
    ranks, epochs = sorted(steps["rank"].unique()), sorted(steps["epoch"].unique())
    if ranks != list(range(spec.workers)):
        raise ValueError(f"{path}: has steps of {len(ranks)} ranks, the run had {spec.workers} workers")
    if epochs != list(range(spec.epochs)):
        raise ValueError(f"{path}: has steps of {len(epochs)} epochs, the run had {spec.epochs}")
    for epoch, seen in steps.groupby("epoch")["images"].sum().items():
        if seen != images:
            raise ValueError(f"{path}: epoch {epoch} has {seen} images over all ranks, train_samples is {images}")


def _wall_s(steps: pd.DataFrame) -> pd.Series[float]:
    """Wall time of each epoch's steps [s]: that of the rank which needed longest."""
    step_s = steps[STEP_TIMES].sum(axis=1)  # a communication that was not measured is within compute
    return step_s.groupby([steps["epoch"], steps["rank"]]).sum().groupby(level="epoch").max()


def _timing(steps: pd.DataFrame, spec: RunSpec, images: int) -> dict[str, float]:
    """Measures of time after warm-up; none if warm-up was all there is."""
    if spec.epochs > 1:
        timed = steps[steps["epoch"] > 0]
    else:
        timed = steps[steps["step"] >= max(1, steps["step"].nunique() // 10)]
    if timed.empty:
        return {}
    rate = throughput(float(timed["images"].sum()), float(_wall_s(timed).sum()))
    means = {name: float(timed[name].mean()) for name in STEP_TIMES}
    return {"throughput_images_per_s": rate, "epoch_s": images / rate, **means}


def _epochs(steps: pd.DataFrame, events: list[Event], spec: RunSpec) -> pd.DataFrame:
    first = steps[steps["rank"] == 0].groupby("epoch")
    # Over ranks a step's losses add up to the mean over its images.
    loss = steps.groupby(["epoch", "step"])["loss"].sum().groupby(level="epoch").mean()
    top1 = {e.metadata["epoch_num"] - 1: e.value for e in events if e.key == "eval_accuracy"}
    table = pd.DataFrame({"lr": first["lr"].first(), "lr_end": first["lr"].last(), "loss": loss})
    # Random pictures teach nothing: what synthetic scores is no accuracy.
    table["top1"] = np.nan if spec.loader == "synthetic" else pd.Series(top1, dtype="float64")
    timed = spec.timed and not spec.profiled
    table["train_s"] = _wall_s(steps) if timed else np.nan
    table["throughput_images_per_s"] = throughput(
        steps.groupby("epoch")["images"].sum().astype("float64"), table["train_s"]
    )
    table = table.reset_index()
    return table.assign(run=spec.id, epoch=table["epoch"] + 1)[list(EPOCHS)].astype(EPOCHS)


def _learning_rates(steps: pd.DataFrame, spec: RunSpec) -> pd.DataFrame:
    one = steps[steps["rank"] == 0]
    count = len(one) // spec.epochs
    kept = np.linspace(0, count - 1, min(count, RATES_AN_EPOCH)).round()
    one = one[(one["step"] % count).isin(kept)]
    table = pd.DataFrame({"run": spec.id, "epoch": one["step"] / count, "lr": one["lr"]})
    return table.astype(LEARNING_RATES)


def _write(table: pd.DataFrame, path: Path) -> None:
    """Aside, then renamed: what has its name is whole."""
    aside = path.with_name(f".{path.name}")
    if path.suffix == ".csv":
        table.to_csv(aside, index=False)
    else:
        table.to_parquet(aside, index=False)
    aside.replace(path)
