"""What one rank finds out about its node and its device, for `nodes.py` to compare: state, and rates under load.

`scout.py` calls it where the machine file says `preflight: {nodes: ...}`. What GPUs say of their own faults is DCGM's
to ask (docs/nodes.md).
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlbench.core.notes import topology
from ddlbench.run.facts import cpu
from ddlbench.slurm import step

WINDOWS, WINDOW_S = 10, 0.5  # longer than the periods in which a limit on CPU time is kept (0.1 s)
SIZES = {"cpu": 1024, "cuda": 8192}  # of square matrices: enough work to fill the device
COPIED = {"cpu": 128 << 20, "cuda": 1 << 30}  # bytes: more than caches hold


def look(device: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Finds the rank's node by the name that SLURM has for it, its state, and what its device is."""
    gpu = facts.get("gpu") if device == "cuda" else None
    return {
        "node": step.node(),
        "kind": gpu["name"] if gpu else cpu(),
        "system": state(),
        "rates": None,
        **topology(),
    }


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


def rates(device: str) -> dict[str, list[float]]:
    """Rates of WINDOWS windows: `matmul_flops_per_s` and `memory_bytes_per_s`. On GPUs the products are in bf16 (before
    Ampere in fp16), on CPUs in fp32, by as many threads as the rank has in training. A copy counts as read and
    written."""
    import torch

    size, copied = SIZES[device], COPIED[device]
    half = torch.bfloat16 if device == "cuda" and torch.cuda.is_bf16_supported(False) else torch.float16
    kind = torch.float32 if device == "cpu" else half
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    product = _windows(device, lambda: torch.mm(a, b, out=out))
    source = torch.ones(copied, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = _windows(device, lambda: target.copy_(source))
    return {
        "matmul_flops_per_s": [2.0 * size**3 * rate for rate in product],
        "memory_bytes_per_s": [2.0 * copied * rate for rate in copy],
    }


def _windows(device: str, work: Callable[[], Any]) -> list[float]:
    """How often `work` was done per second, in each window. What comes before the windows warms up."""
    import torch

    def done() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    done()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < WINDOW_S:
        work()
        done()
        count += 1
    per_s = []
    for _ in range(WINDOWS):
        began = time.perf_counter()
        for _ in range(count):
            work()
        done()
        per_s.append(count / (time.perf_counter() - began))
    return per_s
