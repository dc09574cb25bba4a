"""Pretended readings of sound nodes, for tests of the screening."""

import copy
import random
from typing import Any

from ddlbench.preflight import nodes

Screens = list[dict[str, Any]]
PORTS = {f"mlx5_{n}/1": {"state": "ACTIVE", "gbit_per_s": 200.0} for n in range(4)}


def sound(hosts: int = 4, devices: int = 4) -> Screens:
    """Nodes that differ by 1 % at most."""
    chance = random.Random(1)
    return [
        {
            "node": f"node{host}",
            "kind": "NVIDIA A100-SXM4-40GB",
            "system": {"governors": {"performance": 48}, "infiniband": copy.deepcopy(PORTS)},
            "rates": {
                "matmul_flops_per_s": [chance.uniform(2.49e14, 2.51e14) for _ in range(8)],
                "memory_bytes_per_s": [chance.uniform(1.29e12, 1.31e12) for _ in range(8)],
            },
            "topology": f"root.leaf{host // 2}.node{host}",
        }
        for host in range(hosts)
        for _ in range(devices)
    ]


def of_node(screens: Screens, node: str) -> Screens:
    return [one for one in screens if one["node"] == node]


def verdicts(screens: Screens) -> dict[str, str]:
    return {row["node"]: row["verdict"] for row in nodes.rows(screens)}


def why(screens: Screens, node: str = "node2") -> str:
    """Why this node, and no other, fails."""
    rows = nodes.rows(screens)
    assert nodes.failed(rows) == [node]
    assert rows[0]["node"] == node  # the failed ones come first
    return str(rows[0]["why"])


def slow_down(screen: dict[str, Any], rate: str, factor: float) -> None:
    screen["rates"][rate] = [value * factor for value in screen["rates"][rate]]
