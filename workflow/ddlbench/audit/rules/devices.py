"""What GPUs and cores of a run were: held to less power, slower than the others, far from each
other.
"""

from __future__ import annotations

import pandas as pd

from ddlbench.audit import SC15, Findings, Material, rule
from ddlbench.audit._compare import differing, finding_per_row

SLOWER = 0.9  # of the mean clock of a run's GPUs, under which one of them is slow
HOT_C = 85.0  # from about here GPUs lower their clock
# of a rank's cores, on its GPU's NUMA node: so many has a rank that is bound to none, of two
# sockets
NEAR = 0.5
LEAST_W, MOST_NODE_W, MOST_DEVICE_W = (
    0.5,
    4000.0,
    1500.0,
)  # what a node without its GPUs, and a GPU, can draw
OVER_LIMIT = 1.1  # peaks of milliseconds go over a power limit, means of a training hardly


@rule(
    "error",
    "runs.device_power_limit_w",
    "give all GPUs one power limit (nvidia-smi --power-limit), and train the deviating runs again",
    f"{SC15}, rule 9",
    {"device_power_limit_w": 300.0},
    ["gpu"],
)
def same_power_limit(material: Material) -> Findings:
    """Check that runs that are compared ran on GPUs that may draw the same power.

    A GPU that is held to less lowers its clock: the side that had it looks slower.
    """
    runs = material.runs.assign(device_power_limit_w=material.runs["device_power_limit_w"].round())
    return differing(runs, "device_power_limit_w", ["machine", "gpu"], "power limits [W]")


@rule(
    "warning",
    "runs.device_clock_mhz runs.device_clock_least_mhz",
    "look at this GPU with nvidia-smi -q -d PERFORMANCE; name its node in exclude_nodes",
    "seen on clusters: each step waits for the GPU that is too hot",
    {"device_clock_mhz": 1900.0, "device_clock_least_mhz": 1200.0},
    ["device_temperature_c"],
)
def one_slow_device(material: Material) -> Findings:
    """Check that no GPU of a run has a clock far below that of the others, and that none is so hot
    that it lowers it.

    All ranks wait for the slowest one.
    """
    runs = material.runs
    says = (
        "at the end of the training a GPU ran at {device_clock_least_mhz} MHz, the mean of all is"
        " {device_clock_mhz} MHz"
    )
    slow = runs["device_clock_least_mhz"] < SLOWER * runs["device_clock_mhz"]
    yield from finding_per_row(runs, slow, says)
    if "device_temperature_c" in runs:
        hot = ~slow & (runs["device_temperature_c"] >= HOT_C)
        yield from finding_per_row(
            runs, hot, "at the end of the training a GPU had {device_temperature_c} degrees Celsius"
        )


@rule(
    "warning",
    "runs.cores_per_rank",
    "set cores_per_worker and workers_per_node of the machine's file to what a node has; on SLURM"
    " bind ranks near their GPUs (slurm_flags)",
    f"{SC15}, rule 9",
    {"cores_per_rank": 0.5},
    ["near_cores_least_share", "near_cores_share"],
)
def cores_of_ranks(material: Material) -> Findings:
    """Check that each rank has at least one core, and cores near its GPU.

    Ranks that share a core take turns. Cores on another NUMA node copy and launch more slowly.
    """
    runs = material.runs
    yield from finding_per_row(
        runs, runs["cores_per_rank"] < 1, "{cores_per_rank} hardware threads for each rank"
    )
    if "near_cores_least_share" in runs:
        far = runs["near_cores_least_share"] < NEAR
        yield from finding_per_row(
            runs,
            far,
            "of the cores of a rank, only a share of {near_cores_least_share} is near its GPU",
        )


@rule(
    "error",
    "runs.energy_j runs.train_s runs.nodes runs.workers",
    "do not use these energies; find out which counter is wrong",
    "seen on machines whose counters stand still or are in another unit",
    {"energy_j": 1e9},
    ["device_energy_j", "host_energy_j", "device_power_limit_w"],
)
def possible_power(material: Material) -> Findings:
    """Check that energy by time is a power that GPUs and nodes can draw.

    GPUs draw at most their limit. A node draws something, however little it does.
    """
    runs = material.runs
    limit = _column(runs, "device_power_limit_w").fillna(MOST_DEVICE_W / OVER_LIMIT)
    most_device = OVER_LIMIT * runs["workers"] * limit
    most_node = MOST_NODE_W * runs["nodes"]
    least = LEAST_W * runs["nodes"]
    on_gpus = _column(runs, "device_energy_j").notna()
    for name, low, high in (
        ("energy_j", least, most_node + most_device.where(on_gpus, 0.0)),
        ("device_energy_j", LEAST_W * runs["workers"], most_device),
        ("host_energy_j", least, most_node),
    ):
        power = _column(runs, name) / runs["train_s"]
        table = runs.assign(power=power, least=low, most=high)
        bad = power.notna() & ~power.between(low, high)
        found = [
            *finding_per_row(
                table,
                bad,
                name + " is {power} W over the training; plausible are {least} to {most} W",
            )
        ]
        yield from found
        if found:  # the parts of a sum that is wrong are the same cause
            return


def _column(runs: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return a column as numbers, nulls where the table has none."""
    if name not in runs:
        return pd.Series(float("nan"), runs.index)
    return pd.to_numeric(runs[name], errors="coerce")
