"""Rates of ResNet-50 on one GPU that others have published (`config/references/resnet50-one-gpu.csv`), and ours beside.

Judged are only runs that are made as the published one was: the same kind of GPU, precision, and layout of memory.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from ddlbench.commands.gpucheck import MEASURED, Row, judged
from ddlbench.settings.config import CONFIG

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec

FILE = CONFIG / "references" / "resnet50-one-gpu.csv"
# Ours needs this share of what is judged against. The published rates are those of GPUs with faster memory (A100 with
# 80 GB: 2.0 TB/s, with 40 GB: 1.6 TB/s), and most steps of ResNet-50 wait for memory.
ENOUGH = 0.75


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
