"""What a run used besides time: memory, CPU, energy and network, from counters that the system keeps anyway.

`train.py` starts a rank's Meter with training and stops it at its end; `analysis/resources.py` makes columns of it.
Nothing samples the training itself: every value is a counter's difference or a peak that the kernel or the driver
remembers. What cannot be measured is null and has a reason, never zero.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# RAPL's counters begin again at max_energy_range_uj, 65 kJ at the least: no package draws that much in so long.
RAPL_S = 60.0
INFINIBAND = 32  # ARPHRD_INFINIBAND of linux/if_arp.h: a network interface over InfiniBand


class NotMeasuredError(Exception):
    """Its text is the reason why a column is null."""


class Meter:
    """One rank's meter; `local_rank` 0 also reads what is the whole node's, with everything else that ran there.

    Values of `stop`, each from `start` to `stop` if not said otherwise:

    - `peak_device_memory_bytes`: most memory that tensors took on the GPU; `peak_device_reserved_bytes`: most that
      PyTorch held for them. Other libraries' (NCCL's buffers, DALI's) are in neither.
    - `peak_resident_bytes`: most main memory of this process since it began; `loader_resident_bytes`: the sum of its
      child processes' (loader workers), which counts pages that they share more than once.
    - `cpu_s`: CPU time, user and system, of this process and its child processes; `cpu_share`: by wall time, in cores.
    - `wall_s`: the time itself.
    - `device_energy_j`: the GPU's own counter (Volta or newer), whoever used the GPU.
    - `host_energy_j`: RAPL's counters of all CPU packages and their memory, once a node.
    - `network_sent_bytes`, `network_received_bytes`: all network interfaces but loopback, and InfiniBand, once a node.
    """

    def __init__(self, device: str, local_rank: int, sys: Path = Path("/sys"), rapl_s: float = RAPL_S) -> None:
        self._cuda, self._local_rank, self._sys = str(device).startswith("cuda"), local_rank, sys
        self._rapl_s = rapl_s
        self._rapl: Rapl | None = None
        self._ended = threading.Event()
        self._first: dict[str, float | str] = {}
        self._began = 0.0

    def start(self) -> None:
        """Begin to measure; call it when training begins."""
        if self._cuda:
            import torch

            torch.cuda.reset_peak_memory_stats(self._local_rank)
        if self._local_rank == 0:
            with suppress(NotMeasuredError):  # `_host_energy_j` says the reason
                self._rapl = Rapl(self._sys)
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
        found: dict[str, float | str] = {}
        for column, read in self._counters().items():
            first, last = self._first[column], _attempt(read)
            if isinstance(first, str) or isinstance(last, str):
                found[column] = first if isinstance(first, str) else last
            else:
                found[column] = last - first if last >= first else "the counter was reset meanwhile"
        found |= {column: _attempt(read) for column, read in self._peaks().items()}
        cpu_s = found["cpu_s"]
        found["cpu_share"] = cpu_s if isinstance(cpu_s, str) else cpu_s / wall_s
        found["wall_s"] = wall_s
        return {
            "values": {column: None if isinstance(value, str) else value for column, value in found.items()},
            "not_measured": {column: value for column, value in found.items() if isinstance(value, str)},
        }

    def _counters(self) -> dict[str, Callable[[], float]]:
        counters: dict[str, Callable[[], float]] = {"cpu_s": cpu_s, "device_energy_j": self._device_energy_j}
        if self._local_rank == 0:
            counters["host_energy_j"] = self._host_energy_j
            counters["network_sent_bytes"] = lambda: network_bytes(self._sys)[0]
            counters["network_received_bytes"] = lambda: network_bytes(self._sys)[1]
        return counters

    def _peaks(self) -> dict[str, Callable[[], float]]:
        return {
            "peak_device_memory_bytes": lambda: self._device_bytes("max_memory_allocated"),
            "peak_device_reserved_bytes": lambda: self._device_bytes("max_memory_reserved"),
            "peak_resident_bytes": lambda: peak_resident_bytes("self"),
            "loader_resident_bytes": self._loader_resident_bytes,
        }

    def _device_bytes(self, name: str) -> float:
        if not self._cuda:
            raise NotMeasuredError("the device is the CPU: its memory is in peak_resident_bytes")
        import torch

        return int(getattr(torch.cuda, name)(self._local_rank))

    def _device_energy_j(self) -> float:
        if not self._cuda:
            raise NotMeasuredError("the device is the CPU: its energy is in host_energy_j")
        import torch

        # By its UUID: NVML counts all GPUs of the node, PyTorch those that the process may see.
        return device_energy_j(f"GPU-{torch.cuda.get_device_properties(self._local_rank).uuid}")

    def _host_energy_j(self) -> float:
        return (self._rapl or Rapl(self._sys)).joules()

    def _watch(self, rapl: Rapl) -> None:
        while not self._ended.wait(self._rapl_s):
            with suppress(NotMeasuredError):
                rapl.joules()

    def _loader_resident_bytes(self) -> float:
        children = _psutil().Process().children(recursive=True)
        if not children and _waited_s() > self._waited_s:
            raise NotMeasuredError("the loader's processes had ended when training did")
        return sum(peak_resident_bytes(str(child.pid)) for child in children)


def merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What the processes used that trained one after the other, each going on from the checkpoint of the one before:
    sums of counters, the largest of peaks; `cpu_share` anew. Null where one of them is.
    """
    reasons = {column: reason for part in reversed(parts) for column, reason in part["not_measured"].items()}
    columns = [column for column in parts[-1]["values"] if column not in reasons]
    found = {column: [part["values"][column] for part in parts] for column in columns}
    values = {c: max(of) if c.endswith("_bytes") and "network" not in c else sum(of) for c, of in found.items()}
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
    found = re.search(r"^VmHWM:\s+(\d+) kB", _read(Path("/proc", process, "status")), re.M)
    if not found:
        raise NotMeasuredError(f"/proc/{process}/status has no VmHWM")
    return int(found[1]) * 1024


def _waited_s() -> float:
    """CPU time of child processes that have ended [s]."""
    times = os.times()
    return times.children_user + times.children_system


def _attempt(read: Callable[[], float]) -> float | str:
    """What it reads, or the reason why it cannot."""
    try:
        return read()
    except NotMeasuredError as error:
        return str(error)


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
