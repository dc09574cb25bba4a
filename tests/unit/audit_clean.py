"""Tables in which no rule of the audit has anything to find: a study of 48 runs."""

from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

import pandas as pd
from ddlbench.analysis import summary
from ddlbench.audit import Material, all_rules
from ddlbench.audit.check import audit
from ddlbench.audit.material import of_tables

from tests.builders.plans import run_spec

Tables = dict[str, pd.DataFrame]
Fault = Callable[[Tables], None]
IMAGES, EPOCHS, BATCH = 6400, 3, 256
RATES = {("ddp", "native"): 900.0, ("ddp", "synthetic"): 1000.0, ("horovod", "native"): 890.0}
RATES[("horovod", "synthetic")] = 990.0


def study() -> Tables:
    """Two frameworks with two loaders on 1, 2 and 4 workers, four times each, one after the other
    in mixed order.
    """
    runs: list[dict[str, Any]] = []
    for repeat in (1, 2, 3, 4):
        for workers in (1, 2, 4):
            for (framework, loader), rate in RATES.items():
                runs.append(run(framework, loader, workers, repeat, rate, len(runs)))
    table = pd.DataFrame(runs)
    epochs = pd.DataFrame([row for one in runs for row in epochs_of(one)])
    null = [
        {"run": one["run"], "column": c, "reason": "no meter"}
        for one in runs
        for c in one
        if one[c] is None
    ]
    return {
        "runs": table,
        "epochs": epochs,
        "not_measured": pd.DataFrame(null, columns=["run", "column", "reason"]),
        "failures": pd.DataFrame(columns=["run", "cause"]),
        "refused": pd.DataFrame(columns=["run", "file", "what", "what_to_do"]),
        "submissions": submissions(),
        "convergence": pd.DataFrame(
            {"global_batch": [64, 256, 4096], "mean_epochs_to_0.759": [30.0, 35.0, 40.0]}
        ),
    }


def submissions() -> pd.DataFrame:
    """Five logs of others, whose numbers fit one another."""
    rows = [
        {
            "run": f"org-system-resnet-result_{n}",
            "org": "org",
            "benchmark": "resnet",
            "status": "success",
        }
        | {"said_images_per_s": 1010.0, "clock_images_per_s": 1000.0, "clocks": "epochs"}
        | {"run_images_per_s": 900.0, "reached": 0.76, "statuses": "success"}
        | {"said_samples": 1281167.0, "samples": 1281167.0, "clock_back_s": 0.0}
        | {"system": "system", "division": "closed"}
        for n in range(5)
    ]
    return pd.DataFrame(rows)


def run(
    framework: str, loader: str, workers: int, repeat: int, rate: float, place: int
) -> dict[str, Any]:
    """A row of table runs, whose numbers fit one another; `place` moves its times a little."""
    spec = run_spec(
        machine="cluster",
        framework=framework,
        loader=loader,
        workers=workers,
        workers_per_node=1,
        global_batch=BATCH,
        epochs=EPOCHS,
        repeat=repeat,
        recipe="demo",
    )
    # Noise without a drift: normal quantiles in an order that has nothing to do with time.
    noise = NormalDist(0.0, 0.001).inv_cdf((29 * place % 48 + 0.5) / 48)
    throughput = rate * workers**0.95 * (1 + noise)
    steps = IMAGES // spec.global_batch
    epoch_s = IMAGES / throughput
    compute, wait = 0.8 * epoch_s / steps, 0.1 * epoch_s / steps
    values: dict[str, Any] = dict.fromkeys((column.name for column in summary.COLUMNS), None)
    values |= {
        "throughput_images_per_s": throughput,
        "epoch_s": epoch_s,
        "validation_s": 0.5,
        "train_s": 3.2 * epoch_s + 0.6,
        "full_train_s": 3.2 * epoch_s + 0.6,
        "data_wait_s": wait,
        "compute_s": compute,
        "communication_s": 0.05 * epoch_s / steps,
        "final_top1": 0.9,
        "best_top1": 0.91,
        "final_top5": 0.99,
        "best_top5": 0.99,
        "final_loss": 0.2,
        "mfu": 0.3,
        "energy_j": 100.0,
        "flops_per_image": 10**6,
        "skipped_steps": 0,
        "resumes": 0,
        "steps": steps * EPOCHS,
        "cut_steps": steps,
        "timed_steps": steps * (EPOCHS - 1),
        "steady": True,
        "stalls": 0,
        "step_median_s": epoch_s / steps,
        "step_max_s": 1.1 * epoch_s / steps,
        "images_seen": IMAGES * EPOCHS,
        "evaluations": EPOCHS,
        "validation_images": 1000,
        "validated_images": 1000,
        "started_s": 1.7e9 + 100.0 * place,
        "run_s": 3.2 * epoch_s + 5.0,
        "data_before_clock_s": 0.01,
        "clock_resolution_s": 1e-9,
        "printed_samples_per_s": throughput,
        "clock_samples_per_s": throughput,
        "printed_rate_agrees": True,
        "pauses_known": True,
        "data_cached_share": 1.0,
        "begun_s": 1.7e9 + 100.0 * place - 3.0,
        "device_clock_mhz": 1980.0,
        "device_clock_least_mhz": 1980.0,
        "device_power_limit_w": 400.0,
        "device_temperature_c": 60.0,
        "near_cores_least_share": 1.0,
        "cores_per_rank": 8.0,
        "others_cores": 0.1,
    }
    origin = {
        "hosts": ",".join(f"node{n}" for n in range(workers)),
        "framework_version": "2.0" if framework == "ddp" else "0.28",
        "loader_version": "3.0",
        "torch_version": "2.0",
        "python_version": "3.11.7",
        "cpu": "EPYC",
        "gpu": "A100",
        "driver": "570",
        "kernel": "6.1",
        "data_sha256": None if loader == "synthetic" else "d" * 64,
        "validation": None if loader == "synthetic" else "its own",
        "commit": "c" * 40,
        "command": "env OMP_NUM_THREADS=1 HF_TOKEN=... python -m ddlbench.train",
        "uncommitted_changes": False,
        "reading": "counted by the training loop",
        "reading_proved": True,
        "ranks_together": "yes",
        "confirmed": True,
        "ranks_evidence": "the training loop averages their gradients",
        "initial_weights_sha256": f"{repeat}" * 64,
    }
    about = {"status": "success", "images": IMAGES, "extrapolated": False}
    about |= {"place": place + 1, "planned_place": place + 1}
    return spec.columns() | about | origin | values


def epochs_of(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A run's rows of table epochs."""
    return [
        {
            "run": one["run"],
            "epoch": epoch,
            "lr": 0.1 / epoch,
            "lr_end": 0.09 / epoch,
            "loss": 1.0 / epoch,
            "top1": 0.3 * epoch,
            "train_s": one["epoch_s"],
        }
        for epoch in range(1, EPOCHS + 1)
    ]


def changed(fault: Fault, tables: Tables) -> Tables:
    """The tables with a fault planted."""
    copy = {name: table.copy() for name, table in tables.items()}
    fault(copy)
    return copy


def found(rule: str, tables: Tables) -> list[dict[str, str]]:
    """Return the findings of one rule."""
    if any(need.startswith("numbers.") for need in all_rules()[rule].needs):
        material = of_tables(tables)
    else:  # `numbers` take time to make
        material = Material(tables)
    return audit(material, [rule])


def put(
    table: str, where: int | Callable[[pd.DataFrame], Any] | None = None, /, **values: Any
) -> Fault:
    """Rows of a table (a place, a condition; None: all) get other values; a function is asked with
    the table.
    """

    def plant(tables: Tables) -> None:
        rows = tables[table]
        for column, given in values.items():
            value = given(rows) if callable(given) else given
            if isinstance(value, float) and column in rows and rows[column].dtype.kind == "i":
                rows[column] = rows[column].astype("float64")
            if where is None:
                rows[column] = value
            else:
                rows.loc[where(rows) if callable(where) else [where], column] = value

    return plant


def one(tables: Tables, **values: Any) -> None:
    """Give one run (the 6th: horovod, native, 2 workers, repeat 1) other values."""
    put("runs", 6, **values)(tables)
