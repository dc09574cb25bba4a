"""ResNet-50 on pictures that lie on the device, in the ways that studies use, against published rates of such GPUs.

Each way twice: as cuDNN chooses its algorithms by itself, and after it has timed them (option `cudnn_benchmark`).
Judged by what others published (`config/references/resnet50-one-gpu.csv`) are only runs that are made as the published
one was: the same kind of GPU, precision, and layout of memory.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from ddlbench.commands.gpucheck import MEASURED, Row, judged
from ddlbench.commands.gpucheck._bench import Bench, each, images_per_s
from ddlbench.core.spec import RunSpec
from ddlbench.settings.config import CONFIG

LIMIT_S = 600
FILE = CONFIG / "references" / "resnet50-one-gpu.csv"
# Ours needs this share of what is judged against. The published rates are those of GPUs with faster memory (A100 with
# 80 GB: 2.0 TB/s, with 40 GB: 1.6 TB/s), and most steps of ResNet-50 wait for memory.
ENOUGH = 0.75
LAST = {"channels_last": True}
FAST = {"channels_last": True, "compile": True}


def runs(bench: Bench) -> dict[str, RunSpec]:
    """The runs, by what a row calls them: each way, and the same with option `cudnn_benchmark`."""
    ways: dict[str, tuple[str, str, dict[str, bool]]] = {
        "ddp, bf16": ("ddp", "bf16", {}),
        "ddp, bf16, channels last": ("ddp", "bf16", LAST),
        "ddp, bf16, channels last, compiled": ("ddp", "bf16", FAST),
        "ddp, fp16, channels last": ("ddp", "fp16", LAST),
        "ddp, tf32": ("ddp", "tf32", {}),
        "deepspeed, bf16": ("deepspeed", "bf16", {}),
        "fsdp, bf16": ("fsdp", "bf16", {}),
    }
    made = {}
    for what, (framework, precision, options) in ways.items():
        for name, more in ((what, {}), (f"{what}, cudnn_benchmark", {"cudnn_benchmark": True})):
            made[name] = bench.spec(framework, precision, options=options | more)
    return made


def check(bench: Bench) -> Iterator[Row]:
    """One row per run."""
    gpu = None
    if bench.device == "cuda":
        import torch

        gpu = str(torch.cuda.get_device_name())
    yield from each(bench, runs(bench), lambda what, spec: compare(what, images_per_s(bench.train(spec)), gpu, spec))


def published(file: Path = FILE) -> list[dict[str, str]]:
    """The rows of the file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def compare(what: str, rate: float, gpu: str | None, spec: RunSpec, file: Path = FILE) -> Row:
    """Our rate [images/s] beside those published for this kind of GPU and precision."""
    if gpu is None:
        return Row(what, MEASURED, "a CPU; published are rates of GPUs", rate, "images/s")
    kind = [row for row in published(file) if row["gpu"] in gpu and row["precision"] == spec.recipe.precision]
    if not kind:
        return Row(what, MEASURED, f"no rate in {spec.recipe.precision} is published here for {gpu}", rate, "images/s")
    beside = ", ".join(
        f"{rate / float(row['images_per_s']):.0%} of {row['images_per_s']} ({row['of']})" for row in kind
    )
    layout = "channels last" if spec.option("channels_last") else "contiguous"
    yardsticks = [float(row["images_per_s"]) for row in kind if row["judged"] == layout]
    if not yardsticks:
        return Row(what, MEASURED, beside, rate, "images/s")
    return Row(what, judged(rate >= ENOUGH * max(yardsticks)), f"{beside}; enough: {ENOUGH:.0%}", rate, "images/s")
