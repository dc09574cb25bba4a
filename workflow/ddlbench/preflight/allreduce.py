"""All-reduces of growing messages over growing numbers of nodes, measured alone. Rule `allreduce` runs it.

`python -m ddlbench.preflight.allreduce TABLE --machine NAME --device DEVICE --workers N -- LAUNCHER ...` starts the
ranks, which are `... measure`; rank 0 writes the table. It says what the network gives to frameworks at best.

Bandwidths are those of NCCL-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the algorithm bandwidth is bytes
/ time; the bus bandwidth is that times 2 (n - 1) / n for n ranks, which for the slowest link does not depend on n.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from ddlbench.files import write_text
from ddlbench.plan.runs import Plan
from ddlbench.preflight.promise import Trial
from ddlbench.rank import place
from ddlbench.run.environment import reveal
from ddlbench.settings.config import ConfigError

PROGRAM = ("python", "-m", "ddlbench.preflight.allreduce", "measure")
MINUTES = 15  # what the queue is asked for
SIZES = tuple(4 * 1024 * 4**k for k in range(9))  # 4 KiB to 256 MiB
WARM_UP, TIMED = 2, 10
COLUMNS = ("bytes", "ranks", "nodes", "seconds", "algorithm_bytes_per_s", "bus_bytes_per_s", "backend")


def trial(plan: Plan) -> Trial:
    """As many nodes as the largest run of the study, whole; on a machine without a queue at most two workers."""
    machine = plan.machine
    if machine.launcher == "local":
        workers = min(2, machine.workers)
        return Trial(workers, workers)
    specs = [job.spec for job in plan.runs.values()]
    largest = max(specs, key=lambda spec: spec.nodes, default=None)
    each = largest.workers_per_node if largest else machine.workers_per_node
    return Trial((largest.nodes if largest else 1) * each, each)


def bandwidths(size: int, ranks: int, seconds: float) -> tuple[float, float]:
    """(algorithm bandwidth, bus bandwidth) [bytes/s] of an all-reduce of `size` bytes on each rank."""
    algorithm = size / seconds
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


def groups(hosts: Sequence[str]) -> list[list[int]]:
    """The ranks of the first 1, 2, 4, ... nodes and of all, by each rank's host; groups of one rank are left out."""
    names = list(dict.fromkeys(hosts))
    counts = sorted({2**k for k in range(20) if 2**k < len(names)} | {len(names)})
    made = [[rank for rank, host in enumerate(hosts) if host in names[:count]] for count in counts]
    return [ranks for ranks in made if len(ranks) > 1]


def row(size: int, ranks: int, nodes: int, seconds: float, backend: str) -> dict[str, Any]:
    """One line of the table, by COLUMNS."""
    values = (size, ranks, nodes, seconds, *bandwidths(size, ranks, seconds), backend)
    return dict(zip(COLUMNS, values, strict=True))


def timed(size: int, device: str, group: Any) -> float:
    """Median over TIMED all-reduces of float32 of the time on the slowest rank of a group [s]."""
    import torch
    import torch.distributed as dist

    message, times = torch.ones(size // 4, device=device), []
    for _ in range(WARM_UP + TIMED):
        dist.barrier(group=group)
        _finish(device)
        began = time.perf_counter()
        dist.all_reduce(message, group=group)
        _finish(device)
        times.append(time.perf_counter() - began)
        message.fill_(1.0)
    slowest = torch.tensor(times[WARM_UP:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return float(statistics.median(slowest.tolist()))


def _finish(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def measure(output: Path, device: str, workers: int) -> None:
    """In a rank: all sizes over all groups; rank 0 writes the table."""
    import torch.distributed as dist

    who = place.here(workers)
    if device == "cuda":
        place.take_device(who.local_rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    hosts: list[Any] = [None] * who.world
    dist.all_gather_object(hosts, socket.gethostname())
    rows = []
    for ranks in groups(hosts):
        group = dist.new_group(ranks)  # every rank makes every group
        if who.rank in ranks:
            nodes = len({hosts[rank] for rank in ranks})
            rows += [row(size, len(ranks), nodes, timed(size, device, group), backend) for size in SIZES]
        dist.barrier()
    if who.rank == 0:
        lines = io.StringIO(newline="")
        out = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
        write_text(output, lines.getvalue())
    dist.destroy_process_group()


def said(table: Path) -> list[str]:
    """The table in lines for people."""
    with table.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    made = ["all-reduce alone (bandwidths as NCCL-tests define them):"]
    for one in rows:
        size = int(one["bytes"])
        amount = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        ranks = f"{one['ranks']} ranks on {one['nodes']} node{'s' * (one['nodes'] != '1')}"
        bus = float(one["bus_bytes_per_s"]) / 1e9
        made.append(f"  {amount:>8}, {ranks}: {float(one['seconds']) * 1e3:.3f} ms, bus {bus:.3g} GB/s")
    return made if rows else ["one worker alone reduces nothing: no all-reduce was measured"]


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--device", required=True, choices=["cpu", "cuda"])
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    a.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        argv, hidden = reveal([*a.command, str(a.output), a.device, str(a.workers)], a.machine)
    except ConfigError as error:
        sys.exit(str(error))
    code = subprocess.run(argv, env={**os.environ, **hidden}, check=False).returncode
    if code:
        sys.exit(f"allreduce: the launcher ended with exit code {code}; what it said is above")
    print(*said(a.output), sep="\n", flush=True)


if __name__ == "__main__":
    main()
