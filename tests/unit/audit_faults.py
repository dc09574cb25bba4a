"""A fault for each rule of the audit, as one change of clean tables; by what the rules are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from tests.unit.audit_clean import Fault, Tables, one


def set_one(**values: Any) -> Fault:
    """One run has other values."""
    return lambda tables: one(tables, **values)


def set_all(**values: Any) -> Fault:
    """All runs have other values; a function is asked with the table."""

    def change(tables: Tables) -> None:
        for column, value in values.items():
            tables["runs"][column] = value(tables["runs"]) if callable(value) else value

    return change


def other_rates(tables: Tables) -> None:
    """One run's learning rate is multiplied by its workers once more, from the second epoch on."""
    run = tables["runs"].loc[6, "run"]
    tables["epochs"].loc[(tables["epochs"]["run"] == run) & (tables["epochs"]["epoch"] > 1), "lr_end"] *= 2


def other_batches(tables: Tables) -> None:
    """Horovod's runs have another batch than DDP's on the same number of workers."""
    runs = tables["runs"]
    runs.loc[runs["framework"] == "horovod", "global_batch"] *= 2


def copied(tables: Tables) -> None:
    """A run stands twice, under two names."""
    for column in ("throughput_images_per_s", "train_s"):
        tables["runs"].loc[7, column] = tables["runs"].loc[6, column]


def drop(where: Callable[[pd.DataFrame], Any]) -> Fault:
    """Some runs are not there."""

    def change(tables: Tables) -> None:
        tables["runs"] = tables["runs"][~where(tables["runs"])].reset_index(drop=True)

    return change


def a_gap(tables: Tables) -> None:
    """16 workers instead of 4: nothing between 2 and 16."""
    runs = tables["runs"]
    large = runs["workers"] == 4
    runs.loc[large, "workers"] = 16


def speed(factor: float, where: Callable[[pd.DataFrame], Any]) -> Fault:
    """Some runs are faster by a factor."""

    def change(tables: Tables) -> None:
        runs = tables["runs"]
        runs.loc[where(runs), "throughput_images_per_s"] *= factor
        runs.loc[where(runs), "epoch_s"] /= factor

    return change


def inverted(tables: Tables) -> None:
    """DDP is slower at every number of workers, and slowest on one: its efficiency is above Horovod's."""
    speed(0.7, lambda runs: runs["framework"] == "ddp")(tables)
    speed(0.8, lambda runs: (runs["framework"] == "ddp") & (runs["workers"] == 1))(tables)


def in_blocks(tables: Tables) -> None:
    """All runs of DDP, then all of Horovod."""
    runs = tables["runs"].sort_values(["framework", "loader", "workers"], kind="stable").index
    tables["runs"].loc[runs, "started_s"] = [1.7e9 + 100.0 * n for n in range(len(runs))]


def weak(tables: Tables) -> None:
    """The batch grows with the workers, and with nothing else."""
    tables["runs"]["global_batch"] = 64 * tables["runs"]["workers"]


def convergence(tables: Tables) -> None:
    """ResNet-50 on ImageNet after three epochs."""
    tables["runs"]["model"], tables["runs"]["dataset"] = "resnet50", "imagenet"
    tables["epochs"]["top1"] = 0.78


def share(column: str, change: Callable[[pd.DataFrame], Any]) -> Fault:
    """A column of the shares is another."""

    def plant(tables: Tables) -> None:
        tables["kernels"][column] = change(tables["kernels"])

    return plant


def twin_rows(tables: Tables) -> None:
    """Two cells of one row stand in another."""
    for column in ("communication_percent", "input_percent"):
        tables["kernels"].loc[7, column] = tables["kernels"].loc[3, column]


def drifting(tables: Tables) -> None:
    """Runs get slower, by 3 % from the first to the last."""
    runs = tables["runs"]
    runs["throughput_images_per_s"] *= 1 - 0.03 * (runs["started_s"] - 1.7e9) / 4700


def slow_fourths(tables: Tables) -> None:
    """One repeat of each cell ran on a slow computer."""
    speed(0.9, lambda runs: runs["repeat"] == 3)(tables)


def contradicted(tables: Tables) -> None:
    tables["verdicts"].loc[1, ["verdict", "measured", "low", "high"]] = ["contradicted", 0.5, 0.48, 0.52]


def log_says(**values: Any) -> Fault:
    """Another's log says something else."""

    def plant(tables: Tables) -> None:
        for column, value in values.items():
            tables["submissions"].loc[0, column] = value

    return plant


# In a study's tables.
STUDIES: dict[str, Fault] = {
    "same-samples": set_one(images=6000),
    "same-data": set_one(data_sha256="e" * 64),
    "same-batch": other_batches,
    "same-learning-rates": other_rates,
    "same-initial-weights": set_one(initial_weights_sha256="9" * 64),
    "same-precision": set_one(precision="bf16"),
    "same-augmentation": set_one(augmentation="imagenet"),
    "same-image-size": set_one(image_size=64),
    "same-recipe": set_one(weight_decay=0.5),
    "same-validation-set": set_one(validation_images=900),
    "same-operations": set_one(flops_per_image=2 * 10**6),
    "same-cache-state": set_one(data_cached_share=0.0),
    "same-versions": set_one(torch_version="2.1"),
    "same-commit": set_one(commit="d" * 40),
    "same-hardware": set_one(gpu="H100"),
    "same-resources": set_one(loader_threads=7),
    "same-kernel": set_one(kernel="6.2"),
    "same-hosts": set_one(hosts="node0,node9"),
    "same-environment": set_one(command="env OMP_NUM_THREADS=2 HF_TOKEN=... python -m ddlbench.train"),
    "contradicted-claims": contradicted,
    "said-rates": log_says(said_images_per_s=126.0),
    "said-samples": log_says(said_samples=312.0),
    "clocks-back": log_says(clock_back_s=3.5),
    "whole-validation-set": set_one(validated_images=64),
    "missing-reasons": lambda tables: tables.update(
        not_measured=tables["not_measured"].query("column != 'peak_resident_bytes'")
    ),
    "missing-points": drop(lambda runs: (runs["loader"] == "native") & (runs["workers"] == 4)),
    "single-runs": drop(lambda runs: runs["repeat"] > 1),
    "uneven-repeats": drop(lambda runs: (runs["framework"] == "ddp") & (runs["repeat"] > 2)),
    "missing-repeats": drop(lambda runs: (runs["framework"] == "ddp") & (runs["repeat"] == 2)),
    "same-seed": set_all(seed=1),
    "failed-runs": lambda tables: tables.update(failures=pd.DataFrame({"run": ["a"], "cause": ["killed"]})),
    "refused-records": lambda tables: tables.update(
        refused=pd.DataFrame({"run": ["a"], "file": ["a/run.mllog"], "what": ["ends twice"], "what_to_do": [""]})
    ),
    "extrapolated": set_one(extrapolated=True),
    "speed-without-accuracy": lambda tables: (weak(tables), set_all(final_top1=None)(tables))[0],
    "accuracy-of-other-settings": lambda tables: (
        set_all(final_top1=lambda runs: runs["final_top1"].where(runs["loader"] == "synthetic"))(tables),
        set_all(
            throughput_images_per_s=lambda runs: runs["throughput_images_per_s"].where(runs["loader"] == "native"),
            recipe=lambda runs: runs["loader"].map({"native": "fast", "synthetic": "careful"}),
        )(tables),
    )[0],
    "batch-confounded": weak,
    "copied-runs": copied,
    "repeated-cells": twin_rows,
    "multiple-columns": share("input_percent", lambda kernels: 0.7 * kernels["communication_percent"]),
    "shares-add-up": share("other_percent", lambda kernels: 30.0),
    "rates-against-clocks": set_one(throughput_images_per_s=4000.0),
    "impossible-clocks": set_one(train_s=1.0),
    "timed-share": set_one(train_s=1000.0),
    "steady": set_one(steady=False),
    "stalls": set_one(stalls=9),
    "data-before-clock": set_one(data_before_clock_s=5.0),
    "clock-resolution": set_all(clock_resolution_s=0.016),
    "overlapping-runs": lambda tables: one(tables, started_s=tables["runs"].loc[5, "started_s"] + 1.0),
    "run-order": in_blocks,
    "drift": drifting,
    "normality": slow_fourths,
    "untested-normality": drop(lambda runs: runs["repeat"] > 2),
    "slow-repeat": set_one(throughput_images_per_s=1000.0),
    "energy-window": set_one(device="cuda", train_s=2.0),
    "energy-per-node": set_one(workers_per_node=2),
    "impossible-utilisation": set_one(mfu=1.2),
    "accuracy-range": set_one(final_top1=1.9),
    "diverged": set_one(final_loss=7.0),
    "convergence": convergence,
    "uncommitted-changes": set_one(uncommitted_changes=True),
    "origin-recorded": set_one(commit=None),
    "resumed-runs": set_one(resumes=2),
    "skipped-steps": set_one(skipped_steps=100),
    "slow-base": speed(0.3, lambda runs: runs["loader"] == "native"),
    "common-base": inverted,
    "superlinear": speed(1.2, lambda runs: runs["workers"] > 1),
    "sparse-lines": a_gap,
    "no-upper-bound": lambda tables: (
        drop(lambda runs: runs["loader"] == "synthetic")(tables),
        set_all(mfu=None)(tables),
    )[0],
    "only-synthetic": drop(lambda runs: runs["loader"] == "native"),
}


def number(quantity: str, workers: int, **values: Any) -> Fault:
    """One published number is another."""

    def plant(tables: Tables) -> None:
        numbers = tables["numbers"]
        place = numbers.index[(numbers["quantity"] == quantity) & (numbers["workers"] == workers)][0]
        for column, value in values.items():
            numbers.loc[place, column] = value

    return plant


def more(**values: Any) -> Fault:
    """One more published number."""

    def plant(tables: Tables) -> None:
        row = tables["numbers"].iloc[[-1]].assign(**values)
        tables["numbers"] = pd.concat([tables["numbers"], row], ignore_index=True)

    return plant


# In published numbers.
NUMBERS: dict[str, Fault] = {
    "base-is-named": number("efficiency", 64, ref_workers=None),
    "base-rate-is-named": number("speed-up", 64, base_images_per_s=None),
    "impossible-efficiency": number("efficiency", 64, value=-0.1),
    "efficiency-from-speed-up": number("efficiency", 64, value=0.6),
    "efficiency-from-runtimes": number("runtime", 64, value=9000.0),
    "contradicting-numbers": more(quantity="efficiency", workers=64, value=0.5, global_batch=4096),
    "mixed-scaling": number("throughput", 64, global_batch=2048),
    "missing-values": number("throughput", 64, value=None),
    "gpu-hours": more(quantity="cost", unit="GPU h", value=12.0),
    "published-accuracy-range": number("top1", 4, value=176.1),
    "source-is-named": number("throughput", 64, source=None),
    "claims-against-tables": lambda tables: tables.update(claims=tables["claims"].assign(value=0.5)),
}
FAULTS = {**STUDIES, **NUMBERS}
