"""A fault for each rule of the audit, as one change of clean tables."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from tests.unit.audit_clean import Fault, Tables, put


def both(*faults: Fault) -> Fault:
    """Several faults at once."""

    def plant(tables: Tables) -> None:
        for fault in faults:
            fault(tables)

    return plant


def set_one(**values: Any) -> Fault:
    """One run has other values."""
    return put("runs", 6, **values)


def other_rates(tables: Tables) -> None:
    """One run's learning rate is multiplied by its workers once more, from the second epoch on."""
    run = tables["runs"].loc[6, "run"]
    tables["epochs"].loc[
        (tables["epochs"]["run"] == run) & (tables["epochs"]["epoch"] > 1), "lr_end"
    ] *= 2


def drop(where: Callable[[pd.DataFrame], Any]) -> Fault:
    """Some runs are not there."""
    return lambda tables: tables.update(
        runs=tables["runs"][~where(tables["runs"])].reset_index(drop=True)
    )


def speed(factor: float, where: Callable[[pd.DataFrame], Any]) -> Fault:
    """Some runs are faster by a factor."""
    rate, time = "throughput_images_per_s", "epoch_s"
    return put(
        "runs",
        where,
        **{rate: lambda runs: factor * runs[rate], time: lambda runs: runs[time] / factor},
    )


def in_blocks(tables: Tables) -> None:
    """All runs of DDP, then all of Horovod."""
    runs = tables["runs"].sort_values(["framework", "loader", "workers"], kind="stable").index
    tables["runs"].loc[runs, "started_s"] = [1.7e9 + 100.0 * n for n in range(len(runs))]


def copy(table: str, place: int, of: int, *columns: str) -> Fault:
    """A row has some values of another."""
    return lambda tables: put(table, place, **{c: tables[table].loc[of, c] for c in columns})(
        tables
    )


# The batch grows with the workers, and with nothing else.
WEAK = put("runs", global_batch=lambda runs: 64 * runs["workers"])
FAULTS: dict[str, Fault] = {
    "same-samples": set_one(images=6000),
    "same-data": set_one(data_sha256="e" * 64),
    "same-batch": put("runs", lambda runs: runs["framework"] == "horovod", global_batch=512),
    "same-learning-rates": other_rates,
    "same-initial-weights": set_one(initial_weights_sha256="9" * 64),
    "same-precision": set_one(precision="bf16"),
    "same-recipe": set_one(weight_decay=0.5),
    "same-losses": put("runs", lambda runs: runs["framework"] == "horovod", final_loss=0.25),
    "same-cut": put(
        "runs", lambda runs: runs["framework"] == "horovod", cut_steps=60, timed_steps=15
    ),
    "same-operations": set_one(flops_per_image=2 * 10**6),
    "nodes-confounded": both(
        put("runs", lambda runs: runs["framework"] == "ddp", hosts="node0"),
        put("runs", lambda runs: runs["framework"] == "horovod", hosts="node1"),
    ),
    "same-options": put(
        "runs",
        lambda runs: runs["framework"] == "ddp",
        options='{"framework": "ddp", "compile": true}',
    ),
    "same-cache-state": set_one(data_cached_share=0.0),
    "same-versions": set_one(torch_version="2.1"),
    "same-hardware": set_one(gpu="H100"),
    "same-resources": set_one(loader_threads=7),
    "same-hosts": set_one(hosts="node0,node9"),
    "same-environment": set_one(
        command="env OMP_NUM_THREADS=2 HF_TOKEN=... python -m ddlbench.train"
    ),
    "proved-readings": set_one(reading="read, not proved", reading_proved=False),
    "printed-rates": set_one(
        printed_samples_per_s=500.0, clock_samples_per_s=900.0, printed_rate_agrees=False
    ),
    "pauses-known": set_one(pauses_known=False, with_pauses_per_s=400.0),
    "ranks-apart": set_one(
        ranks_together="no", ranks_evidence="a rank was ahead of another by 7 steps"
    ),
    "ranks-confirmed": set_one(
        ranks_together="unconfirmed", ranks_evidence="no process listened at MASTER_PORT"
    ),
    "said-rates": put("submissions", 0, said_images_per_s=126.0),
    "rate-of-the-run": put("submissions", 0, run_images_per_s=160.0),
    "ended-as-said": put("submissions", 0, reached=0.5),
    "five-results": lambda tables: tables.update(submissions=tables["submissions"].iloc[:3]),
    "said-samples": put("submissions", 0, said_samples=312.0),
    "clocks-back": put("submissions", 0, clock_back_s=3.5),
    "validation-set-of-its-own": set_one(validation="one picture in 10 of each class, by name"),
    "whole-validation-set": set_one(validated_images=64),
    "missing-points": drop(lambda runs: (runs["loader"] == "native") & (runs["workers"] == 4)),
    "few-repeats": drop(lambda runs: runs["repeat"] > 1),
    "uneven-repeats": drop(lambda runs: (runs["framework"] == "ddp") & (runs["repeat"] > 2)),
    "missing-repeats": drop(lambda runs: (runs["framework"] == "ddp") & (runs["repeat"] == 2)),
    "same-seed": put("runs", seed=1),
    "failed-runs": lambda tables: tables.update(
        failures=pd.DataFrame({"run": ["a"], "cause": ["killed"]})
    ),
    "refused-records": lambda tables: tables.update(
        refused=pd.DataFrame(
            {"run": ["a"], "file": ["a/run.mllog"], "what": ["ends twice"], "what_to_do": [""]}
        )
    ),
    "extrapolated": set_one(extrapolated=True),
    "speed-without-accuracy": both(WEAK, put("runs", final_top1=None)),
    "accuracy-of-other-settings": put(
        "runs",
        final_top1=lambda runs: runs["final_top1"].where(runs["loader"] == "synthetic"),
        throughput_images_per_s=lambda runs: runs["throughput_images_per_s"].where(
            runs["loader"] == "native"
        ),
        recipe=lambda runs: runs["loader"].map({"native": "fast", "synthetic": "careful"}),
    ),
    "batch-confounded": WEAK,
    "copied-runs": copy("runs", 7, 6, "throughput_images_per_s", "train_s"),
    "timed-share": set_one(train_s=1000.0),
    "steady": set_one(steady=False),
    "stalls": set_one(stalls=9),
    "overlapping-runs": set_one(started_s=lambda runs: runs.loc[5, "started_s"] + 1.0),
    "run-order": in_blocks,
    "drift": put(  # by 3 % from the first run to the last
        "runs",
        throughput_images_per_s=lambda runs: (
            runs["throughput_images_per_s"] * (1 - 0.03 * (runs["started_s"] - 1.7e9) / 4700)
        ),
    ),
    "slow-repeat": set_one(throughput_images_per_s=1000.0),
    "energy-window": set_one(device="cuda", train_s=2.0),
    "energy-per-node": set_one(workers_per_node=2),
    "impossible-utilisation": set_one(mfu=1.2),
    "diverged": set_one(final_loss=7.0),
    "convergence": both(
        put("runs", model="resnet50", dataset="imagenet"), put("epochs", top1=0.78)
    ),
    "origin-recorded": set_one(commit=None),
    "resumed-runs": set_one(resumes=2),
    "skipped-steps": set_one(skipped_steps=100),
    "slow-base": speed(0.3, lambda runs: runs["loader"] == "native"),
    "common-base": both(  # DDP is slower at every number of workers, and slowest on one
        speed(0.7, lambda runs: runs["framework"] == "ddp"),
        speed(0.8, lambda runs: (runs["framework"] == "ddp") & (runs["workers"] == 1)),
    ),
    "superlinear": speed(1.2, lambda runs: runs["workers"] > 1),
    "sparse-lines": put("runs", lambda runs: runs["workers"] == 4, workers=16),
    "no-upper-bound": both(drop(lambda runs: runs["loader"] == "synthetic"), put("runs", mfu=None)),
    "only-synthetic": drop(lambda runs: runs["loader"] == "native"),
}
