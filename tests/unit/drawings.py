"""Small tables made by hand, and figures drawn of them."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from ddlbench.analysis.losses import PARTS
from ddlbench.analysis.sheets import costs
from ddlbench.core import registry
from ddlbench.core.record import STEP_PARTS
from ddlbench.settings.config import CONFIG
from ddlbench.show.figures import FigureMember, Options, Tables, _data
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.specs import run_spec

SPEC = run_spec(
    device="cuda", dataset="imagenet", model="resnet50", loader="dali-cpu", workers=4, global_batch=256, epochs=3
)

OPTIONS = Options(title="How it scales", device="cpu", device_name="CPU core")

REFERENCE = pd.read_csv(CONFIG / "references/aach2023.csv")

KERNELS = pd.read_csv(CONFIG / "references/aach2023-kernels.csv")

FIGURES = registry.members("figures")

MIB = 2**20
OTHER_LOSSES = [name for name in PARTS if name not in ("transfer_s", "compute_s", "together_s")]

NOTHING = dict.fromkeys(("parameters_bytes", "gradients_bytes", "optimizer_bytes"))


def row(rate: float, top1: float = 0.5, **changes: object) -> dict[str, object]:
    """A finished run of 1200 images; its batch grows with its workers if no other is given."""
    spec = replace(SPEC, **{"global_batch": 64 * changes.get("workers", 4)} | changes)
    measures = {"throughput_images_per_s": rate, "epoch_s": 1200 / rate, "final_top1": top1}
    measures["full_train_s"] = 3 * 1200 / rate + 6  # 2 s each epoch are no training steps
    measures |= {"flops_per_image": 24e9, "step_p5_s": 0.001, "step_p95_s": 0.02, "restart_s": None}
    measures |= {"images": 1200, "network_sent_bytes": 1_500_000, "images_seen": 3600, "energy_j": 1800.0}
    sizes = {"parameters_bytes": 100 * MIB, "gradients_bytes": 50 * MIB, "optimizer_bytes": 200 * MIB}
    measures |= sizes | {"peak_device_memory_bytes": None, "peak_resident_bytes": 1000 * MIB}
    return spec.columns() | {"status": "success"} | measures


def repeats(rate: float, *factors: float, **changes: object) -> list[dict[str, object]]:
    """Finished runs that differ in their repeat: as many as `factors` of this rate, or three near it."""
    return [row(rate * by, repeat=n, **changes) for n, by in enumerate(factors or (0.995, 1.0, 1.005), start=1)]


def tables(*rows: dict[str, object]) -> Tables:
    """Tables whose runs climb to their top-1 in three epochs, with rates of one step an epoch."""
    runs = pd.DataFrame(rows)
    epochs = [
        {"run": r["run"], "epoch": e, "top1": r["final_top1"] * e / 3, "lr": 0.1 / e, "loss": 2.0 / e}
        for r in rows
        for e in (1, 2, 3)
    ]
    table = pd.DataFrame(epochs)
    times = pd.DataFrame([{"run": r["run"]} | {part: (n + 1) / 1e3 for n, part in enumerate(STEP_PARTS)} for r in rows])
    shares = {"communication_percent": 20.0, "input_percent": 10.0, "computation_percent": 50.0}
    shares |= {"elementwise_percent": 15.0, "other_percent": 5.0}
    kernels = runs[["run", "model", "framework", "loader", "workers"]].assign(**shares)
    rates = table[["run", "lr"]].assign(epoch=table["epoch"] - 1.0)
    spent = [{"run": r["run"], "images": 3600, "total_s": r["full_train_s"], "transfer_s": 1.0} for r in rows]
    losses = pd.DataFrame(spent).assign(compute_s=lambda t: t["total_s"] - 1, **dict.fromkeys(OTHER_LOSSES, 0.0))
    losses["together_s"] = float("nan")
    named = ["run", *costs.ALIKE, *costs.LENGTH]
    curve = [("chosen", 1800.0, 3.0), ("Young", 900.0, 2.0), ("Daly", 880.0, 1.9), (None, 60.0, 9.0), (None, 9e4, 20.0)]
    spent_on = [runs[named].assign(interval=i, interval_s=s, loss_percent=loss) for i, s, loss in curve]
    prices = pd.concat(spent_on).assign(checkpoint_s=2.0, restart_s=30.0, between_s=2e5, n=1, why=None)
    prices = prices.assign(node_hours=10.0, loss_node_hours=0.3, cost=None, loss_cost=None, currency=None)
    asked = {"precision": "fp32", "member": "plain", "batch": 4, "cpu": "AMD EPYC", "gpu": None}
    asked |= {"latency_p50_s": 0.002, "latency_p95_s": 0.003}
    latencies = runs[["run", "model", "recipe", "workers", "repeat"]].assign(**asked)
    latencies["throughput_images_per_s"] = runs["throughput_images_per_s"]
    latencies = latencies[latencies["throughput_images_per_s"].notna()]
    counted = {"module": "(model)", "depth": 0, "deepspeed_flops_per_image": 8e9 / 3, "torch_flops_per_image": 8e9}
    counted |= {"published_flops_per_image": None, "published_by": None}
    operations = runs.loc[runs["status"] == "success", ["run", "model", "image_size"]].assign(**counted)
    more = {"losses": losses, "costs": prices, "inference": latencies, "operations": operations}
    return more | {"runs": runs, "epochs": table, "learning_rates": rates, "step_times": times, "kernels": kernels}


def draw(plot: str, shown: Tables, options: Options = OPTIONS) -> Figure:
    """As the workflow does: the data into a file, the picture from the file."""
    member: FigureMember = registry.member("figures", plot)
    options = replace(options, frameworks=tuple(sorted(set(shown["runs"]["framework"]))))
    with TemporaryDirectory() as folder:
        path = Path(folder, "figure.csv")
        _data.write(member.data({name: shown[name] for name in member.TABLES}, options), path)
        figure = member.draw(_data.read(path), options)
    figure.draw_without_rendering()
    return figure


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """The points of each line of a panel by label."""
    drawn = {str(line.get_label()): [tuple(p) for p in line.get_xydata()] for line in axes.get_lines()}
    return {label: points for label, points in drawn.items() if points and not label.startswith("_")}


def legend(figure: Figure) -> list[str]:
    return [text for text in said(figure) if not text.startswith("n = ")]


def said(figure: Figure) -> list[str]:
    """The whole legend: also of how many repeats points are, and what bars are."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


SCALING = tables(
    row(100.0, workers=4),
    row(150.0, workers=8),
    row(80.0, workers=4, framework="horovod"),
    row(120.0, workers=8, framework="horovod"),
)


def bars(axes: Axes) -> dict[str, list[float]]:
    """The ends of a panel's bars from inside out by their names; parts of no length left out."""
    places = {place: label.get_text() for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    found: dict[str, list[float]] = {}
    for patch in axes.patches:
        if patch.get_width():
            name = places[patch.get_y() + patch.get_height() / 2]
            found.setdefault(name, []).append(round(patch.get_x() + patch.get_width(), 6))
    return found
