"""ResNet-50 on pictures that lie on the device, in the ways that studies use, against published rates of such GPUs.

Each way twice: as cuDNN chooses its algorithms by itself, and after it has tried them (`cudnn.benchmark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddlbench.gpucheck import FAIL, Row
from ddlbench.gpucheck._bench import RunFailedError, images_per_s, skipped
from ddlbench.gpucheck._published import compare

if TYPE_CHECKING:
    from ddlbench.gpucheck._bench import Bench
    from ddlbench.spec import RunSpec

LIMIT_S = 600
LAST = {"channels_last": True}
FAST = {"channels_last": True, "compile": True}


def runs(bench: Bench) -> dict[str, RunSpec]:
    """The ways, by what a row calls them."""
    return {
        "ddp, bf16": bench.spec(),
        "ddp, bf16, channels last": bench.spec(options=LAST),
        "ddp, bf16, channels last, compiled": bench.spec(options=FAST),
        "ddp, fp16, channels last": bench.spec(precision="fp16", options=LAST),
        "ddp, tf32": bench.spec(precision="tf32"),
        "deepspeed, bf16": bench.spec("deepspeed"),
        "fsdp, bf16": bench.spec("fsdp"),
    }


def check(bench: Bench) -> Iterator[Row]:
    """Two rows per way."""
    wanted = runs(bench)
    yield from skipped(bench, wanted)
    for what, spec in wanted.items():
        if bench.lacks(spec):
            continue
        for inside, said in (("no-search", ""), ("search", ", cudnn.benchmark")):
            try:
                rate = images_per_s(bench.train(spec, inside, inside))
            except RunFailedError as error:
                yield Row(what + said, FAIL, str(error))
                continue
            yield compare(what + said, rate, gpu_name(bench), spec)


def gpu_name(bench: Bench) -> str | None:
    """As the driver says it; None on a CPU."""
    if bench.device != "cuda":
        return None
    import torch

    return str(torch.cuda.get_device_name())
