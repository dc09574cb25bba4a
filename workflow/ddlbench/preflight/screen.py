"""What one rank finds out about its node and its device, for `nodes.py` to compare: state first, then load.

`scout.py` calls it where the machine file says `preflight: {nodes: ...}`. What GPUs say of their own faults is DCGM's
to ask (docs/nodes.md).
"""

import os
import re
import socket
from pathlib import Path
from typing import Any

from ddlbench.core.notes import topology
from ddlbench.preflight import load
from ddlbench.run.facts import cpu


def look(device: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Finds the rank's node by the name that SLURM has for it, its state, and what its device is."""
    gpu = facts.get("gpu") if device == "cuda" else None
    return {
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "kind": gpu["name"] if gpu else cpu(),
        "system": state(),
        "rates": None,
        **topology(),
    }


def strain(seen: dict[str, Any], device: str, facts: dict[str, Any]) -> None:
    """Puts the device under load and writes into `seen` what came of it. All ranks of a node do it at once."""
    if device == "cpu" or facts.get("gpu"):  # else `judge.py` says that a GPU is missing
        seen["rates"] = load.rates(device)


def state(sys: Path = Path("/sys")) -> dict[str, Any]:
    """Reads from sysfs `governors`: how many CPUs have each; `infiniband`: by port, its state and its rate [Gbit/s].

    Both are empty where the kernel shows none: in most virtual machines there are no governors, and without InfiniBand
    no ports. A port is `mlx5_0/1`; its state is ACTIVE, INIT, DOWN, ... of the kernel's `4: ACTIVE`; its rate is 200.0
    of `200 Gb/sec (4X HDR)`, or None if the kernel's words for it are not understood.
    """
    governors: dict[str, int] = {}
    for path in sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"):
        if name := _read(path):
            governors[name] = governors.get(name, 0) + 1
    ports = {}
    for path in sorted(sys.glob("class/infiniband/*/ports/*")):
        if _read(path / "link_layer") not in ("InfiniBand", ""):
            continue  # Ethernet by the same card; its interface may be meant to be down
        rate = re.match(r"([\d.]+) Gb/sec", _read(path / "rate"))
        ports[f"{path.parts[-3]}/{path.name}"] = {
            "state": _read(path / "state").split(":")[-1].strip() or "unknown",
            "gbit_per_s": float(rate[1]) if rate else None,
        }
    return {"governors": governors, "infiniband": ports}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
