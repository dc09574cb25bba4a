"""ResNet-50 on pictures that lie on the device, in the ways that studies use, against published rates of such GPUs.

Each way twice: as cuDNN chooses its algorithms by itself, and after it has timed them (option `cudnn_benchmark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddlbench.commands.gpucheck import FAIL, Row
from ddlbench.commands.gpucheck._bench import RunFailedError, images_per_s, skipped
from ddlbench.commands.gpucheck._published import compare

if TYPE_CHECKING:
    from ddlbench.commands.gpucheck._bench import Bench
    from ddlbench.core.spec import RunSpec

LIMIT_S = 600
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
        made[what] = bench.spec(framework, precision, options=options)
        made[f"{what}, cudnn_benchmark"] = bench.spec(
            framework, precision, options={**options, "cudnn_benchmark": True}
        )
    return made


def check(bench: Bench) -> Iterator[Row]:
    """One row per run."""
    wanted = runs(bench)
    yield from skipped(bench, wanted)
    for what, spec in wanted.items():
        if bench.lacks(spec):
            continue
        try:
            rate = images_per_s(bench.train(spec))
        except RunFailedError as error:
            yield Row(what, FAIL, str(error))
            continue
        yield compare(what, rate, gpu_name(bench), spec)


def gpu_name(bench: Bench) -> str | None:
    """Gives the name as the driver says it; None on a CPU."""
    if bench.device != "cuda":
        return None
    import torch

    return str(torch.cuda.get_device_name())
