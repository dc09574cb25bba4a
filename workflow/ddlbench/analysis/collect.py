"""Records to tables; what is in them says `collect`. `resources.py` and `kernels.py` make parts of a run's row.

Warm-up is cut here, never in the log: the first epoch; in a run of one epoch, the first tenth of its steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ddlbench import registry
from ddlbench.analysis import failures, times
from ddlbench.analysis.kernels import SHARES, shares
from ddlbench.analysis.resources import UNKNOWN, WHOLE, resources
from ddlbench.analysis.scaling import throughput
from ddlbench.analysis.times import STEP_TIMES
from ddlbench.record import KERNELS, MLLOG, STEPS, Event, read_log
from ddlbench.spec import RunSpec

# Columns and their types, which hold even where all is null.
ORIGIN = {
    "hosts": "str",
    "framework_version": "str",
    "loader_version": "str",
    "torch_version": "str",
    "commit": "str",
    "uncommitted_changes": "boolean",
    "command": "str",
}
TIMES = {
    "throughput_images_per_s": "float64",
    "epoch_s": "float64",
    "validation_s": "float64",
    "train_s": "float64",
    "full_train_s": "float64",
    **dict.fromkeys(STEP_TIMES, "float64"),
    "compute_s": "float64",
    "communication_transfer_s": "float64",
    "communication_wait_s": "float64",
    "mfu": "float64",
}
MEASURES = {
    **TIMES,
    "final_top1": "float64",
    "best_top1": "float64",
    "final_top5": "float64",
    "best_top5": "float64",
    "final_loss": "float64",
    "peak_device_memory_bytes": "Int64",
    "peak_device_reserved_bytes": "Int64",
    "peak_resident_bytes": "Int64",
    "loader_resident_bytes": "Int64",
    "parameters_bytes": "Int64",
    "gradients_bytes": "Int64",
    "optimizer_bytes": "Int64",
    "cpu_cores": "float64",
    "energy_j": "float64",
    "device_energy_j": "float64",
    "host_energy_j": "float64",
    "full_energy_j": "float64",
    "network_sent_bytes": "Int64",
    "network_received_bytes": "Int64",
    "flops_per_image": "Int64",
    "skipped_steps": "Int64",
    "resumes": "Int64",
}
EPOCHS = {
    "run": "str",
    "epoch": "int64",
    "lr": "float64",
    "lr_end": "float64",
    "loss": "float64",
    "top1": "float64",
    "top5": "float64",
    "train_s": "float64",
    "throughput_images_per_s": "float64",
}
LEARNING_RATES = {"run": "str", "epoch": "float64", "lr": "float64"}
MEDIANS = {"run": "str"} | dict.fromkeys(STEP_TIMES, "float64")
NOT_MEASURED = {"run": "str", "column": "str", "reason": "str"}
FAILURES = dict.fromkeys(failures.COLUMNS, "str")
# Every table's columns but those of `runs`, which has a RunSpec's too.
TABLES = {
    "epochs": EPOCHS,
    "learning_rates": LEARNING_RATES,
    "step_times": MEDIANS,
    "kernels": SHARES,
    "not_measured": NOT_MEASURED,
    "failures": FAILURES,
}
RATES_AN_EPOCH = 20
NO_CSV = {"learning_rates"}  # for figures; hundreds of rows a run
Rows = list[dict[str, Any]]


def collect(folders: Sequence[Path], tables: Path, peaks: Mapping[str, float] | None = None) -> None:
    """Read run folders and write tables into a folder, rows by run id, each as parquet and, but one, as csv.

    `peaks` are the machine's `peak_tflops_per_worker`, by precision.

    Folders with a record (`run.mllog`, `steps.parquet`) are in all tables but `failures`; see `failures.py` for those
    without.

    `runs`: the columns of a RunSpec; `status`: success, or failed for a log without a successful end, whose measures
    are null; where, with what and how the run was made; `images`, those of the training split; `extrapolated`: only
    some of its epochs were trained; and the measures. Times are in seconds, means after warm-up if not said otherwise:

    - `throughput_images_per_s`; `epoch_s`: train images by throughput; `validation_s`: a validation.
    - `train_s`: the training as it was made, with validation and warm-up, without interruptions. `full_train_s`: that
      of all epochs, `train_s + (of_epochs - epochs) * (epoch_s + validation_s)`.
    - `data_wait_s`, `forward_s`, `backward_s`, `communication_s`, `optimizer_s`: parts of a step, over ranks.
      `compute_s` = forward + backward + optimizer.
    - `communication_transfer_s` and `communication_wait_s` add up to `communication_s`. In a synchronous step every
      rank waits for the last to come, which waits for nobody: of each step, transfer is the least communication of
      any rank, and a rank's wait is its own less that. Null with one worker.
    - `final_*` and `best_*`: fractions; null for loaders that have nothing to learn from, and final accuracies where
      only some epochs were trained. `final_loss`: that of the last epoch trained.
    - bytes and joules: see `measure.py` and `resources.py`; memory and state are the largest rank's. `energy_j` is
      devices and hosts together; `full_energy_j` that of all epochs, `energy_j * full_train_s / train_s`.
    - `flops_per_image`: of a forward and a backward pass (`models.flops_per_image`); `mfu`: the share of the machine's
      peak in the run's precision (`times.mfu`).
    - `cpu_cores`: busy cores a rank, its loader's processes included.
    - `skipped_steps`: left out because fp16 overflowed; `resumes`: how often it went on from a checkpoint.

    `not_measured`: a row for each measure of `runs` that is null, and its reason.

    `epochs`: successful runs' epochs, counted from 1: learning rate of the first and of the last step, mean loss of a
    step, top-1, top-5, time of its training steps [s] and throughput [images/s]. The first epoch is as it was measured,
    warm-up included.

    `learning_rates` (no csv): successful runs' rates. `epoch` counts from 0 and has a fraction, `lr` is the rate of the
    step that began then; at most 20 steps an epoch, its first and last among them.

    `step_times`: of timed runs, the median of each part of a step over steps and ranks after warm-up.

    `kernels`: of profiled runs, shares of kernel time (see `kernels.py`).

    Raises ValueError, naming the file, for a log that does not say which run it is of and for steps that do
    not add up.
    """
    read = (_read(folder, peaks or {}) for folder in folders if (folder / MLLOG).exists())
    parts = sorted(read, key=lambda part: str(part["runs"][0]["run"]))
    joined: dict[str, Rows] = {
        name: [row for part in parts for row in part[name]] for name in TABLES if name != "failures"
    }
    joined["failures"] = failures.failures(folders)
    runs = pd.DataFrame([part["runs"][0] for part in parts])
    tables.mkdir(parents=True, exist_ok=True)
    for name, columns in TABLES.items():
        write(pd.DataFrame(joined[name], columns=list(columns)).astype(columns), tables / name, csv=name not in NO_CSV)
    write(
        runs.astype({column: kind for column, kind in (ORIGIN | MEASURES).items() if column in runs}), tables / "runs"
    )


def _read(folder: Path, peaks: Mapping[str, float]) -> dict[str, Rows]:
    """A run's rows of every table."""
    log = folder / MLLOG
    events = list(read_log(log))
    last = {event.key: event for event in events}
    if "ddlbench_spec" not in last:
        raise ValueError(f"{log}: has no ddlbench_spec, so nothing says which run it is of")
    spec = RunSpec.from_json(json.dumps(last["ddlbench_spec"].value))
    images: int = last["train_samples"].value
    success = "run_stop" in last and last["run_stop"].metadata.get("status") == "success"
    row = spec.columns() | {"status": "success" if success else "failed"} | _origin(spec, last)
    row |= {"images": images, "extrapolated": spec.epochs < spec.full_epochs}
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    measures: dict[str, Any] = {}
    why = dict.fromkeys(MEASURES, "the run did not end well")
    if success:
        steps = pd.read_parquet(folder / STEPS)
        _check(steps, spec, images, folder / STEPS)
        steps = steps.sort_values(["step", "rank"])
        epochs = _epochs(steps, events, spec)
        measures, why = _measures(steps, epochs, events, last, spec, images)
        why |= _mfu(measures, spec, peaks)
        rows["epochs"] = _rows(epochs)
        rows["learning_rates"] = _rows(_learning_rates(steps, spec))
        if spec.timed and not spec.profiled:
            timed = times.after_warm_up(steps, spec)
            rows["step_times"] = [{"run": spec.id} | {name: float(timed[name].median()) for name in STEP_TIMES}]
        if spec.profiled:
            rows["kernels"] = _kernels(folder, spec, rows["not_measured"])
    nulls = [column for column in MEASURES if pd.isna(measures.get(column))]
    rows["not_measured"] += [{"run": spec.id, "column": c, "reason": why.get(c, UNKNOWN)} for c in nulls]
    rows["runs"] = [row | {column: measures.get(column) for column in MEASURES}]
    return rows


def _rows(table: pd.DataFrame) -> Rows:
    return [dict(zip(map(str, table), values, strict=True)) for values in table.itertuples(index=False)]


def _origin(spec: RunSpec, last: dict[str, Event]) -> dict[str, Any]:
    """Where, with what and how the run was made, as far as it came to say so."""
    facts = last["ddlbench_facts"].value if "ddlbench_facts" in last else {}
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else [facts]
    hosts = sorted({rank["host"] for rank in ranks if "host" in rank})
    versions = facts.get("versions", {})
    # A member names the package whose version says most about it; what none names is in the log.
    framework = getattr(registry.member("frameworks", spec.adapter), "DISTRIBUTION", None)
    loader = getattr(registry.member("loaders", spec.loader), "DISTRIBUTION", None)
    return {
        "hosts": ",".join(hosts),
        "framework_version": versions.get(framework),
        "loader_version": versions.get(loader),
        "torch_version": versions.get("torch"),
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


def _measures(
    steps: pd.DataFrame,
    epochs: pd.DataFrame,
    events: list[Event],
    last: dict[str, Event],
    spec: RunSpec,
    images: int,
) -> tuple[dict[str, Any], dict[str, str]]:
    """A successful run's measures, and why some are null."""
    why: dict[str, str] = {}
    resumes = sum(event.key == "ddlbench_resumed" for event in events)
    skipped = last["ddlbench_skipped_steps"].value if "ddlbench_skipped_steps" in last else None
    flops = last["ddlbench_flops_per_image"].value if "ddlbench_flops_per_image" in last else None
    measures: dict[str, Any] = {"resumes": resumes, "skipped_steps": skipped, "flops_per_image": flops}
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else []
    said = last["ddlbench_not_measured"].value if "ddlbench_not_measured" in last else {}
    values, reasons = resources(ranks, spec.device, said)
    measures |= values
    why |= reasons
    _accuracy(measures, why, epochs, spec)
    if spec.timed and not spec.profiled:
        measures |= times.measures(steps, events, spec, images)
        if measures["energy_j"] is not None and "full_train_s" in measures:
            measures["full_energy_j"] = measures["energy_j"] * measures["full_train_s"] / measures["train_s"]
        why |= dict.fromkeys(set(TIMES) - measures.keys(), "its few steps are all warm-up")
        if spec.workers == 1:
            why |= dict.fromkeys(("communication_transfer_s", "communication_wait_s"), "one worker waits for nobody")
    else:
        reason = "the run carried a profiler" if spec.profiled else "other runs shared the machine (timed: false)"
        unfit = [*TIMES, *WHOLE, "energy_j", "full_energy_j"]
        if spec.profiled:  # which keeps its events in main memory
            unfit += ["peak_resident_bytes"]
        why |= _drop(measures, unfit, reason)
    if pd.isna(measures.get("communication_s")) and "communication_s" in said:
        why = dict.fromkeys(("communication_transfer_s", "communication_wait_s"), said["communication_s"]) | why
    why.setdefault("full_energy_j", f"no energy_j: {why.get('energy_j', UNKNOWN)}")
    # A framework says what it cannot tell in some of its settings: other reasons come first.
    return measures, why | said | {column: reason for column, reason in why.items() if reason != UNKNOWN}


def _mfu(measures: dict[str, Any], spec: RunSpec, peaks: Mapping[str, float]) -> dict[str, str]:
    """Add `mfu` where the run has a throughput; the reason if it is the only thing missing."""
    rate, flops = measures.get("throughput_images_per_s"), measures["flops_per_image"]
    peak = peaks.get(spec.recipe.precision)
    if rate is None:
        return {}
    if flops is None:
        return {"mfu": f"no flops_per_image: {UNKNOWN}"}
    if peak is None:
        return {"mfu": f"machine {spec.machine} has no peak_tflops_per_worker of {spec.recipe.precision}"}
    measures["mfu"] = times.mfu(rate, flops, spec.workers, peak)
    return {}


def _drop(measures: dict[str, Any], columns: Sequence[str], reason: str) -> dict[str, str]:
    """Make columns null, for this reason."""
    for column in columns:
        measures[column] = None
    return dict.fromkeys(columns, reason)


def _accuracy(measures: dict[str, Any], why: dict[str, str], epochs: pd.DataFrame, spec: RunSpec) -> None:
    measures["final_loss"] = epochs["loss"].iloc[-1]
    for name in ("top1", "top5"):
        measures |= {f"final_{name}": epochs[name].iloc[-1], f"best_{name}": epochs[name].max()}
        columns = (f"final_{name}", f"best_{name}")
        if not _learns(spec):
            why |= dict.fromkeys(columns, f"loader {spec.loader} has nothing to learn from")
        elif spec.epochs < spec.full_epochs:
            why |= _drop(measures, columns, f"{spec.epochs} of {spec.full_epochs} epochs were trained")


def _learns(spec: RunSpec) -> bool:
    """Whether accuracy means something: a loader of random pictures says LEARNS = False."""
    return bool(getattr(registry.member("loaders", spec.loader), "LEARNS", True))


def _epochs(steps: pd.DataFrame, events: list[Event], spec: RunSpec) -> pd.DataFrame:
    first = steps[steps["rank"] == 0].groupby("epoch")
    # Over ranks a step's losses add up to the mean over its images.
    loss = steps.groupby(["epoch", "step"])["loss"].sum().groupby(level="epoch").mean()
    top1 = {e.metadata["epoch_num"] - 1: e.value for e in events if e.key == "eval_accuracy"}
    stats = {e.metadata["epoch_num"] - 1: e.value for e in events if e.key == "tracked_stats"}
    top5 = {n: s["correct_top5"] / s["seen"] for n, s in stats.items() if s.get("correct_top5") is not None}
    table = pd.DataFrame({"lr": first["lr"].first(), "lr_end": first["lr"].last(), "loss": loss})
    table["top1"] = pd.Series(top1, dtype="float64") if _learns(spec) else np.nan
    table["top5"] = pd.Series(top5, dtype="float64") if _learns(spec) else np.nan
    timed = spec.timed and not spec.profiled
    table["train_s"] = times.wall_s(steps) if timed else np.nan
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


def _kernels(folder: Path, spec: RunSpec, not_measured: Rows) -> Rows:
    """A profiled run's row of `kernels`, or the reason why it has none."""
    found = shares(pd.read_parquet(folder / KERNELS)) if (folder / KERNELS).exists() else None
    reason = None
    if found is None:
        reason = f"the profiler left no {KERNELS}"
    elif spec.workers > 1 and found["communication_percent"] == 0:
        reason = f"the profiler cannot see how framework {spec.framework} communicates here"
    if reason:
        not_measured += [{"run": spec.id, "column": name, "reason": reason} for name in SHARES if "_percent" in name]
        return []
    return [
        {name: getattr(spec, name) for name in ("model", "framework", "loader", "workers")}
        | {"run": spec.id}
        | (found or {})
    ]


def write(table: pd.DataFrame, path: Path, csv: bool = True) -> None:
    """`<path>.parquet` and, if wanted, `<path>.csv`: aside, then renamed: what has its name is whole."""
    for suffix in [".csv"] * csv + [".parquet"]:
        aside = path.with_name(f".{path.name}{suffix}")
        if suffix == ".csv":
            table.to_csv(aside, index=False)
        else:
            table.to_parquet(aside, index=False)
        aside.replace(path.with_name(path.name + suffix))
