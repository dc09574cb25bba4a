"""The profiler of runs with `profiled: true`: where steps of the last epoch spent their time, operator by operator.

Rank 0 leaves `kernels.parquet` beside its log: name, calls, and the time in the operator itself (not in those it
calls) on the CPU and on the device, summed over the profiled steps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddlbench.spec import RunSpec

KERNELS = "kernels.parquet"
WARMUP_STEPS, MOST_STEPS = 2, 50  # the profiler itself needs to warm up, and keeps every event in memory


def start(spec: RunSpec, rank: int, folder: Path, steps: int) -> Callable[[], None]:
    """Begin to profile; call what comes back after every step. `steps` is the number of steps an epoch."""
    if not spec.profiled or rank != 0:
        return lambda: None
    from torch.profiler import profile, schedule

    active = max(1, min(MOST_STEPS, steps - WARMUP_STEPS - 1))
    skipped = max(0, spec.epochs * steps - active - WARMUP_STEPS - 1)
    when = schedule(skip_first=skipped, wait=0, warmup=WARMUP_STEPS, active=active, repeat=1)
    profiler = profile(schedule=when, on_trace_ready=lambda p: _write(p, folder))
    profiler.start()
    return profiler.step


def _write(profiler: object, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "name": event.key,
            "calls": event.count,
            "self_cpu_s": event.self_cpu_time_total / 1e6,
            "self_device_s": event.self_device_time_total / 1e6,
        }
        for event in profiler.key_averages()  # type: ignore[attr-defined]
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / KERNELS)
