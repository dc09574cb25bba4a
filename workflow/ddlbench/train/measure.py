"""What a run used besides time: memory, CPU, energy and network, from counters that the system
keeps anyway.

`setup.py` starts a rank's Meter when training starts, and `loop.py` stops it at the end;
`analysis/recorded.py` joins the ranks' values. MEASURES declares each column together with the
function that reads it, mostly of `counters.py`: a new column is an entry there. Nothing samples the
training itself: every value is the difference of a counter, or a peak that the kernel or the driver
remembers. What cannot be measured is null and has a reason; it is never zero.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ddlbench.core.columns import PROFILER, SHARING, Column, Why
from ddlbench.train import counters
from ddlbench.train.counters import NotMeasuredError, Rapl, cpu_s, node_cpu_s

# RAPL's counters begin again at max_energy_range_uj, 65 kJ at the least: no package draws that much
# in so long.
RAPL_S = 60.0
SM_CLOCK, GPU_SENSOR = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU of nvml.h
OF_CPU = "its memory is in peak_resident_bytes"
UNREAD = "the process that wrote the checkpoint did not measure it"


@dataclass(frozen=True)
class Measure:
    """A column and how a rank reads it.

    The value of a counter is its growth from `start` to `stop`, and restarts add up. Anything else
    is a peak or a level, read at the end; over restarts the largest counts.
    """

    column: Column
    read: Callable[[Meter], float]
    counter: bool = False


class Meter:
    """One rank's meter: reads MEASURES; `local_rank` 0 also reads what is the whole node's, whoever
    caused it.

    Beside the columns it leaves `cpu_s`, CPU time of this process and its child processes, and
    `wall_s`, the time from `start` to `stop`; `cpu_share` is one by the other. `node_cpu_s` is the
    CPU time of the whole node.
    """

    def __init__(
        self, device: str, local_rank: int, sys: Path = Path("/sys"), rapl_s: float = RAPL_S
    ) -> None:
        self._cuda, self._local_rank, self.sys = str(device).startswith("cuda"), local_rank, sys
        self._rapl_s = rapl_s
        self._rapl: Rapl | None = None
        self._ended = threading.Event()
        self._first: dict[str, float | Why] = {}
        self._began = 0.0

    def start(self) -> None:
        """Begin to measure; call it when training begins."""
        if self._cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        if self._local_rank == 0:
            with suppress(NotMeasuredError):  # `host_energy_j` has the reason
                self._rapl = Rapl(self.sys)
                threading.Thread(target=self._watch, args=(self._rapl,), daemon=True).start()
        self._waited_s = counters.waited_s()
        self._began = time.monotonic()
        self._first = {
            column: _attempt(read) for column, read in self._readers(counters=True).items()
        }

    def stop(self) -> dict[str, Any]:
        """Stop measuring, and return what `read` gives for the last time."""
        self._ended.set()
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return `{"values": {column: number or None}, "not_measured": {column: reason of each
        None}}`.
        """
        wall_s = time.monotonic() - self._began
        used: dict[str, float | Why] = {}
        for column, read in self._readers(counters=True).items():
            first, last = self._first[column], _attempt(read)
            if isinstance(first, Why) or isinstance(last, Why):
                used[column] = first if isinstance(first, Why) else last
            else:
                used[column] = (
                    last - first if last >= first else Why("the counter was reset during the run")
                )
        used |= {column: _attempt(read) for column, read in self._readers(counters=False).items()}
        cpu_s = used["cpu_s"]
        used["cpu_share"] = cpu_s if isinstance(cpu_s, Why) else cpu_s / wall_s
        used["wall_s"] = wall_s
        return {
            "values": {
                column: None if isinstance(value, Why) else value for column, value in used.items()
            },
            "not_measured": {
                column: str(value) for column, value in used.items() if isinstance(value, Why)
            },
        }

    def _readers(self, counters: bool) -> dict[str, Callable[[], float]]:
        """Return the function that reads each column of this rank: of counters, or of peaks and
        levels.
        """
        mine = [
            m
            for m in MEASURES
            if m.counter == counters and (self._local_rank == 0 or not m.column.once_a_node)
        ]
        readers: dict[str, Callable[[], float]] = {"cpu_s": cpu_s} if counters else {}
        if counters and self._local_rank == 0:
            readers["node_cpu_s"] = node_cpu_s
        return readers | {measure.column.in_record: partial(measure.read, self) for measure in mine}

    def gpu(self, otherwise: str) -> Any:
        """Return `torch.cuda`. Raises NotMeasuredError on CPUs, where the same is in column
        `otherwise`.
        """
        if not self._cuda:
            raise NotMeasuredError(f"the device is the CPU: {otherwise}")
        import torch

        return torch.cuda

    def device_used_bytes(self) -> float:
        """Return the memory in use on this rank's GPU, by whomever [bytes].

        Raises NotMeasuredError on CPUs.
        """
        free, total = self.gpu(OF_CPU).mem_get_info()
        return int(total - free)

    def device_energy_j(self) -> float:
        """Return the energy counter of this rank's GPU [J]. Raises NotMeasuredError."""
        self.gpu("its energy is in host_energy_j")
        return self.device_level("TotalEnergyConsumption") / 1e3

    def device_level(self, what: str, *args: int) -> float:
        """Return the value of NVML's function for this rank's GPU. Raises NotMeasuredError."""
        cuda = self.gpu("it has no such sensor")
        # By its UUID: NVML counts all GPUs of the node, PyTorch those that the process may see.
        return counters.nvml(
            f"GPU-{cuda.get_device_properties(cuda.current_device()).uuid}", what, *args
        )

    def near_cores_share(self) -> float:
        """Return the share of the cores that this rank may run on which lie on its GPU's NUMA node.

        Raises NotMeasuredError.
        """
        cuda = self.gpu("the device is not a GPU")
        near = counters.near_cores(self.sys, cuda.get_device_properties(cuda.current_device()))
        mine = os.sched_getaffinity(0)
        return len(mine & near) / len(mine)

    def host_energy_j(self) -> float:
        """Return RAPL's counters of this node [J]. Raises NotMeasuredError."""
        return (self._rapl or Rapl(self.sys)).joules()

    def _watch(self, rapl: Rapl) -> None:
        while not self._ended.wait(self._rapl_s):
            with suppress(NotMeasuredError):
                rapl.joules()

    def loader_resident_bytes(self) -> float:
        """Return the peak main memory of this process's children, added up [bytes].

        Raises NotMeasuredError.
        """
        children = counters.loader_processes()
        if not children and counters.waited_s() > self._waited_s:
            raise NotMeasuredError("the loader's processes had ended when training did")
        return sum(counters.peak_resident_bytes(str(child.pid)) for child in children)


# CPU time by wall time: from counters that every rank leaves, so it has no reader.
CPU_CORES = Column(
    "cpu_cores",
    "float64",
    "Mean number of busy CPU cores per rank, the processes of its loader included: CPU time divided"
    " by wall time.",
    over_ranks="mean",
    spoiled_by=(SHARING, PROFILER),
    recorded_as="cpu_share",
)


def _peak(name: str, description: str, read: Callable[[Meter], float], **more: Any) -> Measure:
    """Define a peak or a level of each rank [bytes]; the largest rank's counts."""
    return Measure(Column(name, "Int64", description, "bytes", over_ranks="max", **more), read)


def _level(
    name: str, description: str, unit: str, read: Callable[[Meter], float], over_ranks: str = "mean"
) -> Measure:
    """Define a level that a rank's GPU reports when training has ended."""
    return Measure(Column(name, "float64", description, unit, over_ranks=over_ranks), read)


def _least(name: str, description: str, unit: str, recorded_as: str) -> Column:
    """Define a column for the rank with the least of a level."""
    return Column(name, "float64", description, unit, over_ranks="min", recorded_as=recorded_as)


def _counter(
    name: str,
    kind: str,
    description: str,
    unit: str,
    read: Callable[[Meter], float],
    once_a_node: bool = True,
) -> Measure:
    """Define a counter, added up over ranks or nodes."""
    spoiled = (SHARING, PROFILER)
    column = Column(
        name, kind, description, unit, over_ranks="sum", once_a_node=once_a_node, spoiled_by=spoiled
    )
    return Measure(column, read, counter=True)


MEASURES = (
    _peak(
        "peak_device_memory_bytes",
        "Most memory that tensors took on the GPU. Memory of other libraries (NCCL's buffers, DALI)"
        " is not in it.",
        lambda meter: int(meter.gpu(OF_CPU).max_memory_allocated()),
    ),
    _peak(
        "peak_device_reserved_bytes",
        "Most memory that PyTorch held on the GPU for tensors. Memory of other libraries is not"
        " in it.",
        lambda meter: int(meter.gpu(OF_CPU).max_memory_reserved()),
    ),
    _peak(
        "device_used_bytes",
        "Memory in use on the GPU when training ended, whoever used it: PyTorch, NCCL, the driver,"
        " and DALI, whose decoder takes room for the largest picture for each of its threads, in"
        " training and in validation.",
        Meter.device_used_bytes,
    ),
    _peak(
        "peak_resident_bytes",
        "Most main memory that the rank's process had since it began.",
        lambda meter: counters.peak_resident_bytes("self"),
        spoiled_by=(PROFILER,),  # it keeps its events in main memory
    ),
    _peak(
        "loader_resident_bytes",
        "Most main memory of the loader's processes, added up; pages that they share count more"
        " than once.",
        Meter.loader_resident_bytes,
    ),
    _level(
        "device_clock_mhz",
        "Clock of the GPU's multiprocessors when training ended, by NVML.",
        "MHz",
        lambda meter: meter.device_level("ClockInfo", SM_CLOCK),
    ),
    _level(
        "device_power_limit_w",
        "Power that the driver holds the GPU to, by NVML.",
        "W",
        lambda meter: meter.device_level("EnforcedPowerLimit") / 1e3,
    ),
    _level(
        "device_temperature_c",
        "Temperature of the GPU when training ended, by NVML.",
        "degrees Celsius",
        lambda meter: meter.device_level("Temperature", GPU_SENSOR),
        over_ranks="max",
    ),
    _level(
        "near_cores_share",
        "Of the cores that a rank may run on, the share on its GPU's NUMA node. Cores of another"
        " node copy and launch more slowly.",
        "",
        Meter.near_cores_share,
    ),
    _counter(
        "device_energy_j",
        "float64",
        "Energy of the GPUs by their own counters (Volta or newer), whoever used them.",
        "J",
        Meter.device_energy_j,
        once_a_node=False,
    ),
    _counter(
        "host_energy_j",
        "float64",
        "Energy of all CPU packages and their memory, by RAPL's counters, once per node.",
        "J",
        Meter.host_energy_j,
    ),
    _counter(
        "network_sent_bytes",
        "Int64",
        "Bytes sent over all network interfaces except loopback, and InfiniBand, once per node."
        " Null where all ranks ran on one node: their traffic does not pass there.",
        "bytes",
        lambda meter: counters.network_bytes(meter.sys)[0],
    ),
    _counter(
        "network_received_bytes",
        "Int64",
        "Bytes received, counted and null like `network_sent_bytes`.",
        "bytes",
        lambda meter: counters.network_bytes(meter.sys)[1],
    ),
)
# One rank of many, which a mean hides.
LEAST = (
    _least(
        "device_clock_least_mhz",
        "Clock of the slowest rank's GPU, as `device_clock_mhz`.",
        "MHz",
        "device_clock_mhz",
    ),
    _least(
        "near_cores_least_share",
        "`near_cores_share` of the rank with the fewest near cores.",
        "",
        "near_cores_share",
    ),
)
COLUMNS = (*(measure.column for measure in MEASURES), CPU_CORES, *LEAST)


def merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the usage over restarts, from what each process of a rank read: counters add up, peaks
    take the maximum, and `cpu_share` is computed anew. Null where one of the processes has no
    value.
    """
    # A checkpoint may be from before a column was added.
    reasons = {
        column: UNREAD
        for part in parts
        for column in parts[-1]["values"]
        if column not in part["values"]
    }
    reasons |= {
        column: reason
        for part in reversed(parts)
        for column, reason in part["not_measured"].items()
    }
    columns = [column for column in parts[-1]["values"] if column not in reasons]
    peaks = {measure.column.in_record for measure in MEASURES if not measure.counter}
    values: dict[str, Any] = {}
    for column in columns:
        of_parts = [part["values"][column] for part in parts]
        values[column] = max(of_parts) if column in peaks else sum(of_parts)
    if "cpu_share" in values:
        values["cpu_share"] = values["cpu_s"] / values["wall_s"]
    return {"values": values | dict.fromkeys(reasons), "not_measured": reasons}


def _attempt(read: Callable[[], float]) -> float | Why:
    """Return what it reads, or the reason why it cannot."""
    try:
        return read()
    except NotMeasuredError as error:
        return Why(error)
