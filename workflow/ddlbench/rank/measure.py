"""What a run used besides time: memory, CPU, energy and network, from counters that the system keeps anyway.

`train.py` starts a rank's Meter when training starts and stops it at the end; `analysis/resources.py` joins the ranks'
values. MEASURES declares each column together with the function that reads it: a new one is an entry there.
Nothing samples the training itself: every value is the difference of a counter, or a peak that the kernel or the
driver remembers. What cannot be measured is null and has a reason; it is never zero.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ddlbench.columns import PROFILER, SHARING, Column, Why

# RAPL's counters begin again at max_energy_range_uj, 65 kJ at the least: no package draws that much in so long.
RAPL_S = 60.0
INFINIBAND = 32  # ARPHRD_INFINIBAND of linux/if_arp.h: a network interface over InfiniBand


class NotMeasuredError(Exception):
    """Its text is the reason why a column is null."""


@dataclass(frozen=True)
class Measure:
    """A column and how a rank reads it. Of a counter, the value is its growth from `start` to `stop`; restarts add up.
    What is no counter is a peak or a level, read at the end; over restarts the largest counts.
    """

    column: Column
    read: Callable[[Meter], float]
    counter: bool = False


class Meter:
    """One rank's meter: reads MEASURES; `local_rank` 0 also reads what is the whole node's, whoever caused it.

    Beside the columns it leaves `cpu_s`, CPU time of this process and its child processes, and `wall_s`, the time
    from `start` to `stop`; `cpu_share` is one by the other.
    """

    def __init__(self, device: str, local_rank: int, sys: Path = Path("/sys"), rapl_s: float = RAPL_S) -> None:
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

            torch.cuda.reset_peak_memory_stats(self._local_rank)
        if self._local_rank == 0:
            with suppress(NotMeasuredError):  # `host_energy_j` says the reason
                self._rapl = Rapl(self.sys)
                threading.Thread(target=self._watch, args=(self._rapl,), daemon=True).start()
        self._waited_s = _waited_s()
        self._began = time.monotonic()
        self._first = {column: _attempt(read) for column, read in self._counters().items()}

    def stop(self) -> dict[str, Any]:
        """What `read` gives, for the last time."""
        self._ended.set()
        return self.read()

    def read(self) -> dict[str, Any]:
        """`{"values": {column: number or None}, "not_measured": {column: reason of each None}}`."""
        wall_s = time.monotonic() - self._began
        used: dict[str, float | Why] = {}
        for column, read in self._counters().items():
            first, last = self._first[column], _attempt(read)
            if isinstance(first, Why) or isinstance(last, Why):
                used[column] = first if isinstance(first, Why) else last
            else:
                used[column] = last - first if last >= first else Why("the counter was reset meanwhile")
        used |= {column: _attempt(read) for column, read in self._peaks().items()}
        cpu_s = used["cpu_s"]
        used["cpu_share"] = cpu_s if isinstance(cpu_s, Why) else cpu_s / wall_s
        used["wall_s"] = wall_s
        return {
            "values": {column: None if isinstance(value, Why) else value for column, value in used.items()},
            "not_measured": {column: str(value) for column, value in used.items() if isinstance(value, Why)},
        }

    def _counters(self) -> dict[str, Callable[[], float]]:
        return {"cpu_s": cpu_s} | self._readers(counters=True)

    def _peaks(self) -> dict[str, Callable[[], float]]:
        return self._readers(counters=False)

    def _readers(self, counters: bool) -> dict[str, Callable[[], float]]:
        mine = [m for m in MEASURES if m.counter == counters and (self._local_rank == 0 or not m.column.once_a_node)]
        return {measure.column.in_record: partial(measure.read, self) for measure in mine}

    def device_bytes(self, name: str) -> float:
        """What a function of `torch.cuda` says of this rank's GPU [bytes]. Raises NotMeasuredError on CPUs."""
        if not self._cuda:
            raise NotMeasuredError("the device is the CPU: its memory is in peak_resident_bytes")
        import torch

        return int(getattr(torch.cuda, name)(self._local_rank))

    def device_energy_j(self) -> float:
        """The counter of this rank's GPU [J]. Raises NotMeasuredError."""
        if not self._cuda:
            raise NotMeasuredError("the device is the CPU: its energy is in host_energy_j")
        import torch

        # By its UUID: NVML counts all GPUs of the node, PyTorch those that the process may see.
        return device_energy_j(f"GPU-{torch.cuda.get_device_properties(self._local_rank).uuid}")

    def host_energy_j(self) -> float:
        """RAPL's counters of this node [J]. Raises NotMeasuredError."""
        return (self._rapl or Rapl(self.sys)).joules()

    def _watch(self, rapl: Rapl) -> None:
        while not self._ended.wait(self._rapl_s):
            with suppress(NotMeasuredError):
                rapl.joules()

    def loader_resident_bytes(self) -> float:
        """Most main memory of this process's children, added up [bytes]. Raises NotMeasuredError."""
        children = _psutil().Process().children(recursive=True)
        if not children and _waited_s() > self._waited_s:
            raise NotMeasuredError("the loader's processes had ended when training did")
        return sum(peak_resident_bytes(str(child.pid)) for child in children)


# CPU time by wall time: from counters that every rank leaves, so it has no reader.
CPU_CORES = Column(
    "cpu_cores",
    "float64",
    "Busy CPU cores per rank, the processes of its loader included: CPU time divided by wall time.",
    over_ranks="mean",
    spoiled_by=(SHARING, PROFILER),
    recorded_as="cpu_share",
)
MEASURES = (
    Measure(
        Column(
            "peak_device_memory_bytes",
            "Int64",
            "Most memory that tensors took on the GPU. Memory of other libraries (NCCL's buffers, DALI) is not in it.",
            "bytes",
            over_ranks="max",
        ),
        lambda meter: meter.device_bytes("max_memory_allocated"),
    ),
    Measure(
        Column(
            "peak_device_reserved_bytes",
            "Int64",
            "Most memory that PyTorch held on the GPU for tensors. Memory of other libraries is not in it.",
            "bytes",
            over_ranks="max",
        ),
        lambda meter: meter.device_bytes("max_memory_reserved"),
    ),
    Measure(
        Column(
            "peak_resident_bytes",
            "Int64",
            "Most main memory that the rank's process had since it began.",
            "bytes",
            over_ranks="max",
            spoiled_by=(PROFILER,),  # it keeps its events in main memory
        ),
        lambda meter: peak_resident_bytes("self"),
    ),
    Measure(
        Column(
            "loader_resident_bytes",
            "Int64",
            "Most main memory of the loader's processes, added up; pages that they share count more than once.",
            "bytes",
            over_ranks="max",
        ),
        lambda meter: meter.loader_resident_bytes(),
    ),
    Measure(
        Column(
            "device_energy_j",
            "float64",
            "Energy of the GPUs by their own counters (Volta or newer), whoever used them.",
            "J",
            over_ranks="sum",
            spoiled_by=(SHARING, PROFILER),
        ),
        lambda meter: meter.device_energy_j(),
        counter=True,
    ),
    Measure(
        Column(
            "host_energy_j",
            "float64",
            "Energy of all CPU packages and their memory, by RAPL's counters, once per node.",
            "J",
            over_ranks="sum",
            once_a_node=True,
            spoiled_by=(SHARING, PROFILER),
        ),
        lambda meter: meter.host_energy_j(),
        counter=True,
    ),
    Measure(
        Column(
            "network_sent_bytes",
            "Int64",
            "Bytes sent over all network interfaces except loopback, and InfiniBand, once per node. Null where all "
            "ranks ran on one node: their traffic does not pass there.",
            "bytes",
            over_ranks="sum",
            once_a_node=True,
            spoiled_by=(SHARING, PROFILER),
        ),
        lambda meter: network_bytes(meter.sys)[0],
        counter=True,
    ),
    Measure(
        Column(
            "network_received_bytes",
            "Int64",
            "Bytes received, counted and null like `network_sent_bytes`.",
            "bytes",
            over_ranks="sum",
            once_a_node=True,
            spoiled_by=(SHARING, PROFILER),
        ),
        lambda meter: network_bytes(meter.sys)[1],
        counter=True,
    ),
)
COLUMNS = (*(measure.column for measure in MEASURES[:4]), CPU_CORES, *(measure.column for measure in MEASURES[4:]))


def merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Usage over restarts, from what each process of a rank read: counters add up, peaks take the maximum, and
    `cpu_share` is computed anew. Null where one of the processes has no value.
    """
    reasons = {column: reason for part in reversed(parts) for column, reason in part["not_measured"].items()}
    columns = [column for column in parts[-1]["values"] if column not in reasons]
    peaks = {measure.column.in_record for measure in MEASURES if not measure.counter}
    values: dict[str, Any] = {}
    for column in columns:
        of_parts = [part["values"][column] for part in parts]
        values[column] = max(of_parts) if column in peaks else sum(of_parts)
    if "cpu_share" in values:
        values["cpu_share"] = values["cpu_s"] / values["wall_s"]
    return {"values": values | dict.fromkeys(reasons), "not_measured": reasons}


class Rapl:
    """The node's CPU energy since this object was made [J]; counters that began again are followed if read in time.

    Zones of the kernel's powercap interface (Documentation/power/powercap): packages, and the memory (`dram`) within
    them, which packages do not include. `psys` is left out: it includes the packages.
    """

    def __init__(self, sys: Path) -> None:
        self._lock = threading.Lock()
        self._spent_uj = 0
        self._zones: list[tuple[Path, int]] = []
        folder = sys / "class/powercap"
        for zone in sorted(folder.glob("intel-rapl:*")):
            name = _read(zone / "name")
            if name.startswith("package") or name == "dram":
                self._zones.append((zone / "energy_uj", _number(zone / "max_energy_range_uj")))
        if not self._zones:
            raise NotMeasuredError(f"{folder} has no RAPL zones of CPU packages")
        self._last = [_number(path) for path, _ in self._zones]

    def joules(self) -> float:
        """Raises NotMeasuredError where the counters may not be read; that is root's alone on most systems."""
        with self._lock:
            for number, (path, largest) in enumerate(self._zones):
                now = _number(path)
                self._spent_uj += (now - self._last[number]) % (largest + 1)
                self._last[number] = now
            return self._spent_uj / 1e6


def device_energy_j(uuid: str) -> float:
    """A GPU's energy since its driver was loaded [J], by NVML's counter of millijoules. Raises NotMeasuredError."""
    try:
        import pynvml
    except ImportError:
        raise NotMeasuredError("nvidia-ml-py is not installed (no Python package pynvml)") from None
    try:
        pynvml.nvmlInit()
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByUUID(uuid))) / 1e3
    except pynvml.NVMLError as error:
        raise NotMeasuredError(f"NVML: {error}") from None


def network_bytes(sys: Path) -> tuple[int, int]:
    """(sent, received) bytes of the node since its interfaces came up. Raises NotMeasuredError.

    Network interfaces that are devices (bridges, bonds and the like carry the same bytes again), or all but loopback
    where none is (a container); and InfiniBand ports, whose counters are in units of four bytes and include IP.
    """
    ports = sorted((sys / "class/infiniband").glob("*/ports/*/counters"))
    links = sorted(path for path in (sys / "class/net").glob("*") if path.name != "lo" and path.is_dir())
    links = [path for path in links if (path / "device").exists()] or links
    if ports:
        links = [path for path in links if _number(path / "type") != INFINIBAND]
    if not ports and not links:
        raise NotMeasuredError(f"{sys}/class/net has no interface but loopback")
    sent = sum(_number(path / "statistics/tx_bytes") for path in links)
    received = sum(_number(path / "statistics/rx_bytes") for path in links)
    sent += 4 * sum(_number(path / "port_xmit_data") for path in ports)
    received += 4 * sum(_number(path / "port_rcv_data") for path in ports)
    return sent, received


def cpu_s() -> float:
    """CPU time of this process and all that it started, ended ones included [s]."""
    psutil = _psutil()
    process = psutil.Process()
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def peak_resident_bytes(process: str) -> int:
    """The most main memory that a process had, by its number or `self` (VmHWM). Raises NotMeasuredError."""
    line = re.search(r"^VmHWM:\s+(\d+) kB", _read(Path("/proc", process, "status")), re.M)
    if not line:
        raise NotMeasuredError(f"/proc/{process}/status has no VmHWM")
    return int(line[1]) * 1024


def _waited_s() -> float:
    """CPU time of child processes that have ended [s]."""
    times = os.times()
    return times.children_user + times.children_system


def _attempt(read: Callable[[], float]) -> float | Why:
    """What it reads, or the reason why it cannot."""
    try:
        return read()
    except NotMeasuredError as error:
        return Why(error)


def _psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise NotMeasuredError("psutil is not installed") from None
    return psutil


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise NotMeasuredError(f"{path}: {error.strerror}") from None


def _number(path: Path) -> int:
    text = _read(path)
    if not text.isdigit():
        raise NotMeasuredError(f"{path}: {text!r} is no number")
    return int(text)
