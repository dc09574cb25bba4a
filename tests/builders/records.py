"""A record as a run leaves it, for tests of what is read from records."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from ddlbench.analysis.collect import collect
from ddlbench.core.mllog import SEAL
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.seal import seal
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import STEP_PARTS, packed
from ddlbench.core.step_table import join_steps

from tests.builders.logs import VALIDATION_S, log_epochs, step_rows
from tests.builders.plans import run_spec

SPEC = run_spec(workers=2, global_batch=8)
IMAGES = 16
FACTS = {"host": "node7", "command": "python", "commit": "abc", "uncommitted_changes": False}
FLOPS = 2_000_000_000  # of an image
# What a rank measures; the second is on another node.
OF_DEVICES = ("device_energy_j", "peak_device_memory_bytes", "peak_device_reserved_bytes")
RANKS: list[dict[str, Any]] = [
    {
        "host": f"node{7 + rank}",
        "pid": rank,
        "local_rank": 0,
        "cpu_share": 1.0 + rank,
        "host_energy_j": 30.0,
    }
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

    Top-1 is 0.5, then 0.25; without a status it has no end and no steps. Training begins at 1 s;
    epochs take 12 s, then 1.6 s, and validations VALIDATION_S. `events` are more lines of the log,
    `ddlbench_` added to their names.
    """
    folder = folder / spec.id
    folder.mkdir(parents=True)
    logs = [RankLog(folder, rank) for rank in range(spec.workers)]
    facts = FACTS | {"versions": {"torch": "2.0", "horovod": None}}
    logs[0].write_settings(spec, facts, images, 4)
    at_ms = log_epochs(logs[0], spec, images)
    if status is None:
        seal(folder)
        return folder
    logs[0].mllog.end("run_stop", None, {"status": status}, time_ms=at_ms)
    events = {
        "skipped_steps": 0,
        "flops_per_image": FLOPS,
        "ranks": list(ranks[: spec.workers]),
    } | events
    for key, value in events.items():
        logs[0].event(f"ddlbench_{key}", value)
    for rank, log in enumerate(logs):
        log.write_steps(packed(step_rows(spec, images, rank)))
    join_steps(folder, spec.workers)
    seal(folder)
    return folder


def replace_steps(folder: Path, steps: pd.DataFrame) -> None:
    """Give a record other steps, as if the run had been so."""
    steps.to_parquet(folder / STEPS)
    seal_again(folder)


def with_clocks(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps whose clock is what their parts sum to, with a validation after each epoch."""
    parts = steps[[*STEP_PARTS]].fillna(0.0)
    trained = parts.sum(axis=1).groupby(steps["rank"]).cumsum()
    return steps.assign(end_s=(trained + VALIDATION_S * steps["epoch"]).astype("float32"))


def retimed(folder: Path, **columns: Any) -> Path:
    """Give a record steps with these columns, as `assign` takes them, and clocks that fit; the
    record.
    """
    steps = with_clocks(pd.read_parquet(folder / STEPS).assign(**columns))
    steps.to_parquet(folder / STEPS)
    fit_log(folder, steps)
    return folder


def fit_log(folder: Path, steps: pd.DataFrame, began_s: float = 1.0) -> None:
    """Give a record's log the times of these steps; what follows a step's end otherwise lies as it
    did.
    """
    ends = steps.groupby("epoch")["end_s"].max()
    starts = [0.0, *(ends + VALIDATION_S)]
    at = {("run_start", None): 0.0, ("run_stop", None): starts[-1]}
    for epoch, end in ends.items():
        number = int(str(epoch)) + 1
        at |= {
            ("epoch_start", number): starts[number - 1],
            ("epoch_stop", number): end,
            ("eval_start", number): end,
        }
        at["eval_stop", number] = starts[number]
    lines = []
    for line in (folder / MLLOG).read_text().splitlines():
        about = json.loads(line[line.index("{") :])
        key = about["key"], about["metadata"].get("epoch_num")
        if key in at:
            line = re.sub(
                r'"time_ms": \d+', f'"time_ms": {round(1e3 * (began_s + at[key]))}', line, count=1
            )
        lines.append(line)
    (folder / MLLOG).write_text("".join(f"{line}\n" for line in lines))
    seal_again(folder)


def of_two_nodes(folder: Path, machine: str = "here", repeat: int = 1, **columns: Any) -> Path:
    """A record of four epochs whose two ranks are on a node each; `columns` of its steps."""
    spec = run_spec(
        workers=2, global_batch=8, workers_per_node=1, machine=machine, epochs=4, repeat=repeat
    )
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
    log.write_text(
        "".join(f"{line}\n" for line in log.read_text().splitlines() if SEAL not in line)
    )
    seal(folder)


def tables(path: Path, *records: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    collect(records, path)
    return pd.read_parquet(path / "runs.parquet"), pd.read_parquet(path / "epochs.parquet")


def reasons(path: Path) -> dict[str, str]:
    """Of the only run's nulls."""
    table = pd.read_parquet(path / "not_measured.parquet")
    return dict(zip(table["column"], table["reason"], strict=True))
