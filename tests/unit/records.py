"""A record as a run leaves it, for tests of what is read from records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from ddlbench.analysis.collect import collect
from ddlbench.core.record import MLLOG, SEAL, STEP_PARTS, STEPS, RankLog, StepRow, join_steps, packed, seal
from ddlbench.core.spec import RunSpec

from tests.specs import run_spec

SPEC = run_spec(workers=2, global_batch=8)
IMAGES = 16
FACTS = {"host": "node7", "command": "python", "commit": "abc", "uncommitted_changes": False}
# Data wait, forward, backward, communication and optimizer of one step [s], in the first epoch and after, by rank.
SLOW = ((1.0, 1.0, 2.0, 1.0, 1.0), (1.0, 1.0, 2.0, 1.0, 1.0))
FAST = ((0.1, 0.1, 0.1, 0.1, 0.1), (0.1, 0.2, 0.2, 0.2, 0.1))
FLOPS = 2_000_000_000  # of an image
# What a rank measures; the second is on another node.
OF_DEVICES = ("device_energy_j", "peak_device_memory_bytes", "peak_device_reserved_bytes")
RANKS: list[dict[str, Any]] = [
    {"host": f"node{7 + rank}", "pid": rank, "local_rank": 0, "cpu_share": 1.0 + rank, "host_energy_j": 30.0}
    | {"peak_resident_bytes": 100 + rank, "loader_resident_bytes": 0}
    | {"parameters_bytes": 10, "gradients_bytes": 10 - rank, "optimizer_bytes": 20}
    | {"network_sent_bytes": 5, "network_received_bytes": 6 + rank}
    | dict.fromkeys(OF_DEVICES)
    | {"not_measured": dict.fromkeys(OF_DEVICES, "the device is the CPU")}
    for rank in range(2)
]


def write_record(
    folder: Path,
    spec: RunSpec = SPEC,
    status: str | None = "success",
    images: int = IMAGES,
    ranks: Sequence[dict[str, Any]] = RANKS,
    **events: Any,
) -> Path:
    """A record as a run leaves it, in a folder of its id within `folder`, which is returned.

    Top-1 is 0.5, then 0.25; without a status it has no end and no steps. Validations take 1.5 s. `events` are more
    lines of the log, `ddlbench_` added to their names.
    """
    folder = folder / spec.id
    folder.mkdir(parents=True)
    logs = [RankLog(folder, rank) for rank in range(spec.workers)]
    facts = FACTS | {"versions": {"torch": "2.0", "horovod": None}}
    logs[0].settings(spec, facts, images, 4)
    logs[0].mllog.start("run_start", None, None, time_ms=1_000)
    for epoch in range(spec.epochs):
        number = {"epoch_num": epoch + 1}
        logs[0].mllog.start("eval_start", None, number, time_ms=10_000 * (epoch + 1))
        logs[0].event("eval_accuracy", 0.5 / (epoch + 1), **number)
        logs[0].event("tracked_stats", {"loss": 1.0, "correct": 2, "correct_top5": 3 - epoch, "seen": 4}, **number)
        logs[0].mllog.end("eval_stop", None, number, time_ms=10_000 * (epoch + 1) + 1_500)
    if status is None:
        seal(folder)
        return folder
    logs[0].mllog.end("run_stop", None, {"status": status}, time_ms=31_500)
    events = {"skipped_steps": 0, "flops_per_image": FLOPS, "ranks": list(ranks[: spec.workers])} | events
    for key, value in events.items():
        logs[0].event(f"ddlbench_{key}", value)
    steps = images // spec.global_batch
    for rank, log in enumerate(logs):
        rows, end_s = [], 0.0
        for step in range(spec.epochs * steps):
            parts = (SLOW if step < steps else FAST)[rank % 2]
            rate, loss = 0.1 * (step + 1), 1.0 + step
            end_s += sum(parts)
            rows.append(StepRow(step // steps, step, rank, spec.batch_per_worker, rate, loss, *parts, end_s))
        log.write_steps(packed(rows))
    join_steps(folder, spec.workers)
    seal(folder)
    return folder


def replace_steps(folder: Path, steps: pd.DataFrame) -> None:
    """Give a record other steps, as if the run had been so."""
    steps.to_parquet(folder / STEPS)
    seal_again(folder)


def with_clocks(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps whose clock is what their parts sum to."""
    parts = steps[[*STEP_PARTS]].fillna(0.0)
    return steps.assign(end_s=parts.sum(axis=1).groupby(steps["rank"]).cumsum().astype("float32"))


def retimed(folder: Path, **columns: Any) -> Path:
    """Give a record steps with these columns, as `assign` takes them, and clocks that fit; the record."""
    replace_steps(folder, with_clocks(pd.read_parquet(folder / STEPS).assign(**columns)))
    return folder


def of_two_nodes(folder: Path, machine: str = "here", repeat: int = 1, **columns: Any) -> Path:
    """A record of four epochs whose two ranks are on a node each; `columns` of its steps."""
    spec = run_spec(workers=2, global_batch=8, workers_per_node=1, machine=machine, epochs=4, repeat=repeat)
    return retimed(write_record(folder, spec, images=160), **columns)


def edit_log(folder: Path, before: str, after: str) -> None:
    """Change the text of a record's log, as if the run had been so."""
    log = folder / MLLOG
    text = log.read_text()
    assert before in text, before
    log.write_text(text.replace(before, after))
    seal_again(folder)


def seal_again(folder: Path) -> None:
    """Give a record the seal of what it is now, as somebody could who forges one."""
    log = folder / MLLOG
    log.write_text("".join(f"{line}\n" for line in log.read_text().splitlines() if SEAL not in line))
    seal(folder)


def tables(path: Path, *records: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    collect(records, path)
    return pd.read_parquet(path / "runs.parquet"), pd.read_parquet(path / "epochs.parquet")


def reasons(path: Path) -> dict[str, str]:
    """Of the only run's nulls."""
    table = pd.read_parquet(path / "not_measured.parquet")
    return dict(zip(table["column"], table["reason"], strict=True))
