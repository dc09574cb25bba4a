"""All measures of a run, from all modules that make some, and why those that are null have no value."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ddlbench.analysis import accuracy, recorded, resources, times
from ddlbench.analysis.record import Record
from ddlbench.core.columns import PROFILER, SHARING, UNKNOWN, Column, Values, Why

# Made of measures of more than one module.
MFU = Column(
    "mfu",
    "float64",
    "Model FLOPs utilization: the operations that the model asks for, divided by those that the workers could do at "
    "their peak (`peak_tflops_per_worker` of the machine) in the run's precision.",
    spoiled_by=(SHARING, PROFILER),
)
FULL_ENERGY = Column(
    "full_energy_j",
    "float64",
    "Energy of all epochs: `energy_j * full_train_s / train_s`.",
    "J",
    spoiled_by=(SHARING, PROFILER),
)
COLUMNS = (*times.COLUMNS, MFU, *accuracy.COLUMNS, *resources.COLUMNS, FULL_ENERGY, *recorded.COLUMNS)


def mfu(images_per_s: float, flops_per_image: float, workers: int, peak_tflops: float) -> float:
    """Model FLOPs utilization: the operations that the model asks for, by those that `workers` could do at their peak.

    Source: Chowdhery et al. 2022 (arXiv:2204.02311, section 4.1): what is computed twice to save memory does not count.
    """
    return images_per_s * flops_per_image / (workers * peak_tflops * 1e12)


def measures(record: Record, epochs: pd.DataFrame) -> Values:
    """The values of COLUMNS but `mfu`; a `Why` for each that is null. `epochs`: the run's rows of that table."""
    columns = [column for column in COLUMNS if column is not MFU]
    if not record.success:
        return {column.name: Why("the run did not end well") for column in columns}
    spec, reasons = record.spec, record.said("ddlbench_not_measured", {})
    values = accuracy.measures(record, epochs) | recorded.measures(record)
    values |= resources.resources(record.said("ddlbench_ranks", []), spec.device, reasons)
    if record.timed:
        values |= times.measures(record)
    values["full_energy_j"] = _full_energy(values) if record.timed else None
    spoiler, reason = (PROFILER, "the run carried a profiler") if spec.profiled else (SHARING, "")
    reason = reason or "other runs shared the machine (timed: false)"
    whole: Values = {}
    for column in columns:
        value = values.get(column.name)
        if spoiler in column.spoiled_by and not record.timed:
            value = Why(reason)
        elif not isinstance(value, Why) and pd.isna(value):
            value = Why(UNKNOWN)
        # A framework says what it cannot tell in some of its settings: other reasons come first.
        whole[column.name] = Why(reasons.get(column.name, UNKNOWN)) if value == Why(UNKNOWN) else value
    return whole


def mfu_of(run: Mapping[str, Any], values: Values, peaks: Mapping[str, float]) -> float | Why:
    """`mfu` of a run, from its settings and its other measures. `peaks`: TFLOP/s of a worker by precision."""
    rate, flops, precision = values["throughput_images_per_s"], values["flops_per_image"], run["precision"]
    if isinstance(rate, Why):
        return rate
    if isinstance(flops, Why):
        return Why(f"no flops_per_image: {flops}")
    if precision not in peaks:
        return Why(f"machine {run['machine']} has no peak_tflops_per_worker of {precision}")
    return mfu(rate, flops, run["workers"], peaks[precision])


def _full_energy(values: Values) -> float | Why:
    if isinstance(values["energy_j"], Why):
        return Why(f"no energy_j: {values['energy_j']}")
    if isinstance(values["full_train_s"], Why):
        return Why(values["full_train_s"])
    return float(values["energy_j"] * values["full_train_s"] / values["train_s"])
