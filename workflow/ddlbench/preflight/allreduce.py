"""All-reduces of growing messages over growing numbers of workers, measured alone. Rule `allreduce` runs it.

`python -m ddlbench.preflight.allreduce TABLE --machine NAME --device DEVICE --workers N -- LAUNCHER ...` starts the
ranks, which are `... measure FOLDER DEVICE N`, and writes the table when all of them have ended well.

Bandwidths are those of NCCL-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the algorithm bandwidth is bytes
/ time; the bus bandwidth is that times 2 (n - 1) / n for n ranks, which for the slowest link does not depend on n.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import signal
import socket
import sys
import time
from collections.abc import Hashable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from ddlbench.core import living
from ddlbench.core.files import write_json, write_text
from ddlbench.core.plural import count_of
from ddlbench.plan import launch
from ddlbench.plan.runs import Plan
from ddlbench.preflight.promise import Trial
from ddlbench.run.environment import reveal
from ddlbench.run.watch import watch
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.train import place

PROGRAM = ("python", "-m", "ddlbench.preflight.allreduce", "measure")
MINUTES = 15  # what the queue is asked for; a rank that takes longer is ended
SIZES = tuple(4 * 1024 * 4**k for k in range(9))  # 4 KiB to 256 MiB
WARM_UP, TIMED = 2, 10
TIMES = "times.json"  # what rank 0 leaves in the folder of the ranks
COLUMNS = (
    "bytes",
    "workers",
    "nodes",
    "backend",
    "repeats",
    *(f"seconds{end}" for end in ("", "_low", "_high")),
    "algorithm_bytes_per_s",
    *(f"bus_bytes_per_s{end}" for end in ("", "_low", "_high")),
)


def trial(plan: Plan) -> Trial:
    """As many workers as the study's run on the most nodes has; two where runs have one. Nodes are theirs alone."""
    machine, specs = plan.machine, [job.spec for job in plan.runs.values()]
    nodes, per_node = max(((spec.nodes, spec.workers_per_node) for spec in specs), default=(1, 1))
    if nodes == 1:
        per_node = min(max(2, per_node), machine.workers_per_node)
    return Trial(nodes * per_node, per_node, timed=True)


def resources(plan: Plan, account: str | None) -> dict[str, str | int | None]:
    """What Snakemake asks of the machine, like `launch.resources` for a run."""
    of = trial(plan)
    return launch.resources(of, plan.machine, plan.machine.limit_minutes(of.nodes, MINUTES), account, PROGRAM)


def bandwidths(size: int, ranks: int, seconds: float) -> tuple[float, float]:
    """(algorithm bandwidth, bus bandwidth) [bytes/s] of an all-reduce of `size` bytes on each rank."""
    algorithm = size / seconds
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


def groups(hosts: Sequence[Hashable]) -> list[list[int]]:
    """The ranks of each group that is measured, by each rank's host: on the first node 2, 4, ... ranks; then those of
    the first 1, 2, 4, ... nodes, and of all. Groups of one rank are left out."""
    names = list(dict.fromkeys(hosts))
    node = [rank for rank, host in enumerate(hosts) if host == names[0]]
    within = [node[:count] for count in _doublings(len(node))]
    of_nodes = [[rank for rank, host in enumerate(hosts) if host in names[:n]] for n in _doublings(len(names))]
    made = [*within, *of_nodes[1:]]  # the first node's own ranks are the last of `within`
    return [ranks for ranks in made if len(ranks) > 1]


def _doublings(count: int) -> list[int]:
    """1, 2, 4, ... up to `count`, and `count`."""
    return sorted({2**k for k in range(count.bit_length()) if 2**k < count} | {count})


def timed(size: int, device: str, group: Any) -> list[float]:
    """Times of TIMED all-reduces of `size` bytes of float32, each that of the group's slowest rank [s].

    Each begins when all ranks are ready, and ends when the result can be read.
    """
    import torch
    import torch.distributed as dist

    message, times = torch.empty(size // 4, device=device), []
    ready = torch.zeros(1, device=device)  # dist.barrier would guess each rank's GPU from its number
    for _ in range(WARM_UP + TIMED):
        message.fill_(1.0)
        dist.all_reduce(ready, group=group)
        _finish(device)
        began = time.perf_counter()
        dist.all_reduce(message, group=group)
        _finish(device)
        times.append(time.perf_counter() - began)
    right = float(dist.get_world_size(group))
    if not bool((message == right).all()):
        raise ArithmeticError(f"an all-reduce of {size} bytes of ones over {right:.0f} ranks gave other sums")
    slowest = torch.tensor(times[WARM_UP:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return [float(value) for value in slowest.tolist()]


def _finish(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def measure(folder: Path, device: str, workers: int, sizes: Sequence[int] = SIZES) -> None:
    """In a rank: all sizes over all groups. Rank 0 leaves the times in the folder."""
    import torch.distributed as dist

    signal.alarm(60 * MINUTES)
    who = place.here(workers)
    if device == "cuda":
        place.take_device(who.local_rank)
    backend = "nccl" if device == "cuda" else "gloo"
    patience = timedelta(minutes=MINUTES)  # ranks of later groups wait for those of earlier ones
    dist.init_process_group("gloo", timeout=patience)
    hosts: list[Any] = [None] * who.world
    # Nodes that are namespaces of one computer share its name.
    dist.all_gather_object(hosts, (socket.gethostname(), str(Path("/proc/self/ns/net").readlink())))
    made = []
    for ranks in groups(hosts):
        group = dist.new_group(ranks, backend=backend, timeout=patience)  # every rank makes every group
        if who.rank in ranks:
            of = {"workers": len(ranks), "nodes": len({hosts[rank] for rank in ranks}), "backend": backend}
            made += [{"bytes": size, **of, "times_s": timed(size, device, group)} for size in sizes]
        dist.barrier()
    if who.rank == 0:
        write_json(folder / TIMES, made)
    dist.destroy_process_group()


def row(of: dict[str, Any]) -> dict[str, Any]:
    """One line of the table, by COLUMNS, of what rank 0 left of a size and a group."""
    from ddlbench.analysis import statistics

    size, ranks = of["bytes"], of["workers"]
    over = statistics.over_repeats(of["times_s"])
    assert over.low is not None and over.high is not None
    algorithm, bus = bandwidths(size, ranks, over.middle)
    slow, fast = (bandwidths(size, ranks, seconds)[1] for seconds in (over.high, over.low))
    times = (len(of["times_s"]), over.middle, over.low, over.high)
    values = (size, ranks, of["nodes"], of["backend"], *times, algorithm, bus, slow, fast)
    return dict(zip(COLUMNS, values, strict=True))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV."""
    lines = io.StringIO(newline="")
    out = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    return lines.getvalue()


def said(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows in lines for people."""
    made = ["all-reduce alone: median time, and bus bandwidth as NCCL-tests define it, with 95 % intervals"]
    for one in rows:
        size = one["bytes"]
        amount = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        ranks = f"{one['workers']} workers on {count_of(one['nodes'], 'node')}"
        bus, low, high = (one[f"bus_bytes_per_s{end}"] / 1e9 for end in ("", "_low", "_high"))
        made.append(f"  {amount:>8}, {ranks}: {one['seconds'] * 1e3:.3f} ms, {bus:.3g} ({low:.3g} to {high:.3g}) GB/s")
    return made if rows else ["one worker alone reduces nothing: no all-reduce was measured"]


def execute(output: Path, machine: str, device: str, workers: int, argv: list[str]) -> int:
    """Start the ranks, and write the table if they end well. Returns 0, or the launcher's exit code."""
    folder = output.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)  # of a job that was killed
    folder.mkdir(parents=True)
    argv, hidden = reveal([*argv, str(folder), device, str(workers)], machine)
    code = watch(argv, folder, hidden, grace_s=0).code  # there is nothing to save
    if not code:
        rows = [row(of) for of in json.loads((folder / TIMES).read_text(encoding="utf-8"))]
        write_text(output, table(rows))
        print(*said(rows), sep="\n", flush=True)
    shutil.rmtree(folder)
    return code


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        living.die_with_parent()  # a launcher that is killed leaves its ranks behind
        measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--device", required=True, choices=["cpu", "cuda"])
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    environment_modules.check()
    try:
        code = execute(a.output, a.machine, a.device, a.workers, a.command)
    except ConfigError as error:
        sys.exit(str(error))
    if code:
        sys.exit(f"allreduce: the launcher ended with exit code {code}; what it said is above")


if __name__ == "__main__":
    main()
