"""Tables of finished runs: `tables(row(100.0), row(150.0, workers=8))`."""

from dataclasses import replace

import pandas as pd
from ddlbench.analysis.losses import PARTS
from ddlbench.analysis.sheets import costs
from ddlbench.core.step_rows import STEP_PARTS
from ddlbench.show.figures import Tables

from tests.builders.plans import run_spec

SPEC = run_spec(
    device="cuda",
    dataset="imagenet",
    model="resnet50",
    loader="dali-cpu",
    workers=4,
    global_batch=256,
    epochs=3,
)


MIB = 2**20


OTHER_LOSSES = [name for name in PARTS if name not in ("transfer_s", "compute_s", "together_s")]


def row(rate: float, top1: float = 0.5, **changes: object) -> dict[str, object]:
    """A finished run of 1200 images; its batch grows with its workers if no other is given."""
    spec = replace(SPEC, **{"global_batch": 64 * changes.get("workers", 4)} | changes)
    measures = {"throughput_images_per_s": rate, "epoch_s": 1200 / rate, "final_top1": top1}
    measures["full_train_s"] = 3 * 1200 / rate + 6  # 2 s each epoch are no training steps
    measures |= {"flops_per_image": 24e9, "step_p5_s": 0.001, "step_p95_s": 0.02, "restart_s": None}
    measures |= {
        "images": 1200,
        "network_sent_bytes": 1_500_000,
        "images_seen": 3600,
        "energy_j": 1800.0,
    }
    sizes = {
        "parameters_bytes": 100 * MIB,
        "gradients_bytes": 50 * MIB,
        "optimizer_bytes": 200 * MIB,
    }
    measures |= sizes | {"peak_device_memory_bytes": None, "peak_resident_bytes": 1000 * MIB}
    return spec.columns() | {"status": "success"} | measures


def repeats(rate: float, *factors: float, **changes: object) -> list[dict[str, object]]:
    """Finished runs that differ in their repeat: as many as `factors` of this rate, or three near
    it.
    """
    return [
        row(rate * by, repeat=n, **changes)
        for n, by in enumerate(factors or (0.995, 1.0, 1.005), start=1)
    ]


def tables(*rows: dict[str, object]) -> Tables:
    """Tables whose runs climb to their top-1 in three epochs, with rates of one step an epoch."""
    runs = pd.DataFrame(rows)
    epochs = [
        {
            "run": r["run"],
            "epoch": e,
            "top1": r["final_top1"] * e / 3,
            "lr": 0.1 / e,
            "loss": 2.0 / e,
        }
        for r in rows
        for e in (1, 2, 3)
    ]
    table = pd.DataFrame(epochs)
    times = pd.DataFrame(
        [
            {"run": r["run"]} | {part: (n + 1) / 1e3 for n, part in enumerate(STEP_PARTS)}
            for r in rows
        ]
    )
    shares = {"communication_percent": 20.0, "input_percent": 10.0, "computation_percent": 50.0}
    shares |= {"elementwise_percent": 15.0, "other_percent": 5.0}
    kernels = runs[["run", "model", "framework", "loader", "workers"]].assign(**shares)
    rates = table[["run", "lr"]].assign(epoch=table["epoch"] - 1.0)
    spent = [
        {"run": r["run"], "images": 3600, "total_s": r["full_train_s"], "transfer_s": 1.0}
        for r in rows
    ]
    losses = pd.DataFrame(spent).assign(
        compute_s=lambda t: t["total_s"] - 1, **dict.fromkeys(OTHER_LOSSES, 0.0)
    )
    losses["together_s"] = float("nan")
    named = ["run", *costs.ALIKE, *costs.LENGTH]
    curve = [
        ("chosen", 1800.0, 3.0),
        ("Young", 900.0, 2.0),
        ("Daly", 880.0, 1.9),
        (None, 60.0, 9.0),
        (None, 9e4, 20.0),
    ]
    spent_on = [
        runs[named].assign(interval=i, interval_s=s, loss_percent=loss) for i, s, loss in curve
    ]
    prices = pd.concat(spent_on).assign(
        checkpoint_s=2.0, restart_s=30.0, between_s=2e5, n=1, why=None
    )
    prices = prices.assign(train_s=3.6e4, node_hours=10.0, cost=None, currency=None)
    prices = prices.assign(loss_node_hours=0.3, loss_cost=None)
    asked = {"precision": "fp32", "member": "plain", "batch": 4, "cpu": "AMD EPYC", "gpu": None}
    asked |= {"latency_p50_s": 0.002, "latency_p95_s": 0.003}
    latencies = runs[["run", "model", "recipe", "workers", "repeat"]].assign(**asked)
    latencies["throughput_images_per_s"] = runs["throughput_images_per_s"]
    latencies = latencies[latencies["throughput_images_per_s"].notna()]
    counted = {
        "module": "(model)",
        "depth": 0,
        "deepspeed_flops_per_image": 8e9 / 3,
        "torch_flops_per_image": 8e9,
    }
    counted |= {"published_flops_per_image": None, "published_by": None}
    operations = runs.loc[runs["status"] == "success", ["run", "model", "image_size"]].assign(
        **counted
    )
    more = {"losses": losses, "costs": prices, "inference": latencies, "operations": operations}
    return more | {
        "runs": runs,
        "epochs": table,
        "validations": pd.DataFrame(columns=["run", "top1", "validated_s"]),
        "learning_rates": rates,
        "step_times": times,
        "kernels": kernels,
    }


SCALING = tables(
    row(100.0, workers=4),
    row(150.0, workers=8),
    row(80.0, workers=4, framework="horovod"),
    row(120.0, workers=8, framework="horovod"),
)
