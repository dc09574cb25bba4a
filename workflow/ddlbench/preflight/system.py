"""The state of a node that the kernel shows: CPU governors and InfiniBand ports, from sysfs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def state(sys: Path = Path("/sys")) -> dict[str, Any]:
    """`governors`: how many CPUs have each; `infiniband`: by port, its state and its rate [Gbit/s].

    Both are empty where the kernel shows none: in most virtual machines there are no governors, and without InfiniBand
    no ports. A port is `mlx5_0/1`; its rate is None if the kernel's words for it are not understood.
    """
    governors: dict[str, int] = {}
    for path in sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"):
        if name := _read(path):
            governors[name] = governors.get(name, 0) + 1
    ports = {}
    for path in sorted(sys.glob("class/infiniband/*/ports/*")):
        if _read(path / "link_layer") not in ("InfiniBand", ""):
            continue  # Ethernet by the same card; its interface may be meant to be down
        ports[f"{path.parts[-3]}/{path.name}"] = {"state": _state(path), "gbit_per_s": _rate(path)}
    return {"governors": governors, "infiniband": ports}


def _state(port: Path) -> str:
    """ACTIVE, INIT, DOWN, ... of the kernel's `4: ACTIVE`."""
    return _read(port / "state").split(":")[-1].strip() or "unknown"


def _rate(port: Path) -> float | None:
    """200.0 of the kernel's `200 Gb/sec (4X HDR)`."""
    match = re.match(r"([\d.]+) Gb/sec", _read(port / "rate"))
    return float(match[1]) if match else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
