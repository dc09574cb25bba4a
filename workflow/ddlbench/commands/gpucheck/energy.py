"""Whether the energy that was counted, over the time that it took, is a power that the device can have."""

from collections.abc import Iterator

from ddlbench.commands.gpucheck import MEASURED, SKIPPED, Row, judged
from ddlbench.commands.gpucheck._bench import Bench

LIMIT_S = 120
MOST = 1.1  # of the power limit: the counter is of millijoules, the limit holds on the mean over some seconds
LEAST = 0.2  # an idle A100 takes an eighth of its limit


def check(bench: Bench) -> Iterator[Row]:
    """One row for the device, one for the host."""
    record = bench.train(bench.spec())
    rank = record.said("ddlbench_ranks")[0]
    reasons = record.said("ddlbench_not_measured", {})
    for column, what in (("device_energy_j", "GPU"), ("host_energy_j", "CPUs and memory")):
        if rank.get(column) is None:
            yield Row(f"power of {what}", SKIPPED, str(reasons.get(column, "not measured")))
            continue
        limit = power_limit_w() if column == "device_energy_j" else None
        yield judge(f"power of {what}", rank[column] / rank["wall_s"], limit)


def judge(what: str, power_w: float, limit_w: float | None) -> Row:
    """Plausible is a busy device's: between LEAST and MOST of its limit. Nobody says what a host's is."""
    if limit_w is None:
        return Row(what, MEASURED, "energy over time, validation in it", power_w, "W")
    compared = f"expected: {LEAST:.0%} to {MOST:.0%} of its limit, {limit_w:.0f} W (NVML)"
    return Row(what, judged(LEAST * limit_w <= power_w <= MOST * limit_w), compared, power_w, "W")


def power_limit_w() -> float:
    """What the driver holds the first visible GPU to."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    return float(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1e3
