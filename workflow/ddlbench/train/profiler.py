"""The profiler of runs with `profiled: true`: where steps of the last epoch spent their time,
kernel by kernel.

Rank 0 leaves `kernels.parquet` beside its log, one row per kernel or operator, summed over the
profiled steps:

- `name`, and `on`: cpu or device
- `calls`
- `self_s`: the time in the kernel or operator itself, without those that it calls. For a collective
  that runs beside the others it is the time from start to end.
- `annotation`: true for a span that the program or the profiler marked (a step, an optimizer's
  update). Its kernels have rows of their own.

`analysis/kernels.py` makes shares of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlbench.core.record import KERNELS
from ddlbench.core.spec import RunSpec

WARMUP_STEPS, MOST_STEPS = (
    2,
    50,
)  # the profiler itself needs to warm up, and keeps every event in memory


def start(spec: RunSpec, rank: int, folder: Path, steps: int, done: int = 0) -> Callable[[], None]:
    """Begin to profile; call what comes back after every step.

    `steps` is the number of steps per epoch. `done` steps were made before this process went on
    with the run.
    """
    if not spec.profiled or rank != 0:
        return lambda: None
    from torch.profiler import profile, schedule

    remaining = spec.epochs * steps - done
    active = max(1, min(MOST_STEPS, steps - WARMUP_STEPS - 1, remaining - WARMUP_STEPS - 1))
    skipped = max(0, remaining - active - WARMUP_STEPS - 1)
    when = schedule(skip_first=skipped, wait=0, warmup=WARMUP_STEPS, active=active, repeat=1)
    profiler = profile(schedule=when, on_trace_ready=lambda p: _write(p, folder))
    profiler.start()
    return profiler.step


def nsys_prefix(spec: RunSpec, executable: str | None, folder: Path, rank: int) -> tuple[str, ...]:
    """Return what goes before a rank's command so that Nsight Systems writes its timeline into
    `folder`. Pure.

    Empty if the run is not profiled, or if there is no `nsys` (`executable` is None), or for ranks
    other than 0: traces of 1024 ranks slow the run down and fill a disk. Nsight traces NVTX, with
    which NCCL and DALI mark their work, and what ranks wait for in the operating system. It does
    not trace CUDA, which is in `kernels.parquet`: CUPTI has room for one profiler
    (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), so that under `--trace=cuda` PyTorch's would
    see no kernels.
    """
    if not spec.profiled or executable is None or rank != 0:
        return ()
    report = folder / "nsys-%h-%p"  # Nsight's own names for host and process
    return (
        executable,
        "profile",
        "--trace=nvtx,osrt",
        "--sample=none",
        "--force-overwrite=true",
        f"--output={report}",
    )


def _write(profiler: Any, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(event) for event in profiler.key_averages()]
    pq.write_table(pa.Table.from_pylist(rows), folder / KERNELS)


def _row(event: Any) -> dict[str, Any]:
    # An operator's own row repeats the device time of the kernels that it launched: each counts
    # where it ran.
    on_cpu = event.device_type.name == "CPU"
    self_us = event.self_cpu_time_total if on_cpu else event.self_device_time_total
    return {
        "name": event.key,
        "on": "cpu" if on_cpu else "device",
        "calls": event.count,
        # PyTorch gives what runs beside the others (Gloo's collectives) no time of its own, and
        # takes from FSDP's spans of the backward pass more than they lasted: what other threads did
        # meanwhile.
        "self_s": max(0.0, event.cpu_time_total if on_cpu and event.is_async else self_us) / 1e6,
        "annotation": bool(event.is_user_annotation and not event.is_async),
    }
