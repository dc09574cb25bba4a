"""Counters that the system keeps anyway: energy, network, CPU time, memory. `measure.py` makes
measures of them.

Each function raises NotMeasuredError, whose text is the reason, where its counter is not there or
may not be read.
"""

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

INFINIBAND = 32  # ARPHRD_INFINIBAND of linux/if_arp.h: a network interface over InfiniBand


class NotMeasuredError(Exception):
    """The error that a column cannot be measured; its text is the reason why the column is null."""


class Rapl:
    """The node's CPU energy since this object was made [J].

    Counters start again at their maximum; read often enough, they are followed.

    Zones of the kernel's powercap interface (Documentation/power/powercap): packages, and their
    memory (`dram`), which packages do not include. `psys` is left out because it includes the
    packages.
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
        """Return the energy since this object was made [J].

        Raises NotMeasuredError where the counters may not be read: on most systems only root may.
        """
        with self._lock:
            for number, (path, largest) in enumerate(self._zones):
                now = _number(path)
                self._spent_uj += (now - self._last[number]) % (largest + 1)
                self._last[number] = now
            return self._spent_uj / 1e6


def nvml(uuid: str, what: str, *args: int) -> float:
    """Return the value of NVML's function `nvmlDeviceGet<what>` for a GPU, in its units.

    Raises NotMeasuredError.
    """
    try:
        import pynvml
    except ImportError:
        raise NotMeasuredError("nvidia-ml-py is not installed (no Python package pynvml)") from None
    try:
        pynvml.nvmlInit()
        return float(
            getattr(pynvml, f"nvmlDeviceGet{what}")(pynvml.nvmlDeviceGetHandleByUUID(uuid), *args)
        )
    except pynvml.NVMLError as error:
        raise NotMeasuredError(f"NVML: {error}") from None


def near_cores(sys: Path, device: Any) -> set[int]:
    """Return the cores on the NUMA node of a GPU, of which torch's properties are given.

    Raises NotMeasuredError.
    """
    number = f"{device.pci_domain_id:04x}:{device.pci_bus_id:02x}:{device.pci_device_id:02x}.0"
    ranges = _read(sys / "bus/pci/devices" / number / "local_cpulist")
    ends = ([int(end) for end in part.split("-")] for part in ranges.split(",") if part)
    return {core for part in ends for core in range(part[0], part[-1] + 1)}


def network_bytes(sys: Path) -> tuple[int, int]:
    """Return (sent, received) bytes of the node since its interfaces came up.

    Raises NotMeasuredError.

    Counted are network interfaces that are devices, because bridges, bonds and the like carry the
    same bytes again. Where no interface is a device (a container), all but loopback count.
    InfiniBand ports count too; their counters are in units of four bytes and include IP.
    """
    ports = sorted((sys / "class/infiniband").glob("*/ports/*/counters"))
    links = sorted(
        path for path in (sys / "class/net").glob("*") if path.name != "lo" and path.is_dir()
    )
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
    """Return the CPU time of this process and all that it started, ended ones included [s]."""
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def node_cpu_s() -> float:
    """Return the CPU time of all processes of this node since it was started, plus what other
    guests of its host took [s].
    """
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def loader_processes() -> list[Any]:
    """List all processes that this one started, except those in which torch.compile compiles."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if not any("_inductor/compile_worker" in word for word in child.cmdline()):
                found += [child, *child.children(recursive=True)]
    return found


def peak_resident_bytes(process: str) -> int:
    """Return the peak main memory of a process, given by its number or `self` (VmHWM) [bytes].

    Raises NotMeasuredError.
    """
    line = re.search(r"^VmHWM:\s+(\d+) kB", _read(Path("/proc", process, "status")), re.M)
    if not line:
        raise NotMeasuredError(f"/proc/{process}/status has no VmHWM")
    return int(line[1]) * 1024


def waited_s() -> float:
    """Return the CPU time of child processes that have ended [s]."""
    times = os.times()
    return times.children_user + times.children_system


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise NotMeasuredError(f"{path}: {error.strerror}") from None


def _number(path: Path) -> int:
    text = _read(path)
    if not text.isdigit():
        raise NotMeasuredError(f"{path}: {text!r} is not a number")
    return int(text)
