"""What one rank finds out about its node and its device, for `nodes.py` to compare: state first, then load.

`scout.py` calls it where the machine file says `preflight: {nodes: ...}`.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ddlbench.core.notes import topology
from ddlbench.preflight import gpu, load, system
from ddlbench.run.facts import cpu


def look(device: str, facts: dict[str, Any]) -> dict[str, Any]:
    """A rank's node by the name that SLURM has for it, its state, and its device before the load."""
    own = facts.get("gpu") if device == "cuda" else None
    return {
        "node": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "kind": own["name"] if own else cpu(),
        "system": system.state(),
        "gpu": {"before": _ask(own["uuid"])} if own else None,
        "rates": None,
        **topology(),
    }


def strain(seen: dict[str, Any], device: str, facts: dict[str, Any]) -> None:
    """Put the device under load and write into `seen` what came of it. All ranks of a node do it at once."""
    own = facts.get("gpu") if device == "cuda" else None
    if device == "cuda" and own is None:
        return  # `judge.py` says that a GPU is missing
    if own is None:
        seen["rates"], _ = load.rates("cpu")
        return
    seen["rates"], seen["gpu"]["busy"] = load.rates("cuda", lambda: _ask(own["uuid"]))
    seen["gpu"]["after"] = _ask(own["uuid"])


def _ask(uuid: str) -> dict[str, Any]:
    """`gpu.read`, or why it could not: {"error": ...}."""
    try:
        import pynvml
    except ImportError:
        return {"error": "nvidia-ml-py is not installed (no Python package pynvml)"}
    try:
        pynvml.nvmlInit()
        return gpu.read(pynvml, f"GPU-{uuid}")
    except pynvml.NVMLError as error:
        return {"error": f"NVML: {error}"}
