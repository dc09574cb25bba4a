"""What is known of how long runs take: times in records, and published efficiencies. `estimate.py` predicts from both.

Without pandas: Snakemake's own process reads them too, for `max_gpu_hours`.
"""

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ddlbench.analysis.recorded import resources
from ddlbench.core.columns import Why
from ddlbench.core.record import MLLOG, Event, beside_s, ended_well, events, train_s
from ddlbench.settings.config import CONFIG

EVENTS = re.compile(
    r'"key": "(epoch_start|ddlbench_spec|ddlbench_elapsed_s|ddlbench_ranks|train_samples|run_start|run_stop)"'
)


@dataclass(frozen=True)
class Measured:
    """What a record says of time. `spec` is as it was written: another version may not know its fields.

    `took_s` is the run's wall time from its first process to its last, without interruptions, of which `beside_s` is no
    training; `epoch_s` an epoch with its validation; `power_w` the mean of a worker, None where it was not measured;
    `held_bytes` the most that a rank held of the model, likewise.
    """

    spec: dict[str, Any]
    images: int
    took_s: float
    beside_s: float
    epoch_s: float
    energy_j: float | None
    power_w: float | None
    held_bytes: float | None = None

    @property
    def rate(self) -> float:
        """Images per second of one worker."""
        return self.images / self.epoch_s / int(self.spec["workers"])


@dataclass(frozen=True)
class Published:
    """What a doubling of workers leaves of the efficiency, from one published number."""

    model: str
    framework: str
    loader: str
    left: float


def read_measured(folder: Path) -> Measured | None:
    """A successful run's times from its log; None without a log, an end or what this version writes."""
    last: dict[str, Event] = {}
    epochs: list[float] = []
    first_s: float | None = None
    try:
        lines = (folder / MLLOG).open(encoding="utf-8", errors="replace")
    except OSError:
        return None
    with lines:
        # A log has thousands of lines of which few matter here: only those are parsed.
        kept = [line for line in lines if EVENTS.search(line)]
    for event in events(kept):
        last[event.key] = event
        if event.key == "epoch_start":
            epochs.append(event.time_s)
        if first_s is None:
            first_s = event.time_s
    if first_s is None:
        return None
    try:
        return _measured(last, epochs, first_s)
    except (AttributeError, KeyError, TypeError, ValueError):  # what another program, or another version, wrote
        return None


def _measured(last: dict[str, Event], epochs: list[float], first_s: float) -> Measured | None:
    """From the last event of each key, the beginnings of epochs and the first event [s since 1970]."""
    if not ended_well(last) or not epochs:
        return None
    ranks = last["ddlbench_ranks"].value if "ddlbench_ranks" in last else []
    trained_s, beside = train_s(last), beside_s(last, first_s)
    # The first epoch is warm-up, and of one that was interrupted begin and end lie far apart: the median of the rest.
    lengths = [stop - start for start, stop in zip(epochs, [*epochs[1:], last["run_stop"].time_s], strict=True)]
    epoch_s = median(lengths[1:]) if len(lengths) > 1 else trained_s
    spec: dict[str, Any] = last["ddlbench_spec"].value
    energy_j = resources(ranks, spec["device"], {})["energy_j"] if ranks else None
    energy_j = None if isinstance(energy_j, Why) else energy_j
    if min(epoch_s, trained_s) <= 0:
        return None
    power_w = energy_j / trained_s / spec["workers"] if energy_j is not None else None
    images: int = last["train_samples"].value
    held_bytes = max((rank.get("parameters_bytes") or 0 for rank in ranks), default=0) or None
    return Measured(spec, images, trained_s + beside, beside, epoch_s, energy_j, power_w, held_bytes)


def read_all(runs: Path) -> dict[str, Measured]:
    """Every successful record in `results/runs`, by run id."""
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return {folder.name: record for folder in folders if (record := read_measured(folder))}


def read_published(folder: Path = CONFIG / "references") -> list[Published]:
    """Efficiencies of all reference files; a file's base is its smallest number of workers. Bounds count as values."""
    numbers = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row.get("quantity") and row.get("workers")]
        if not rows:
            continue
        base = min(int(row["workers"]) for row in rows)
        for row in rows:
            if row["quantity"] == "efficiency" and int(row["workers"]) > base:
                left = float(row["value"]) ** (1 / math.log2(int(row["workers"]) / base))
                numbers.append(Published(row["model"], row["framework"], row["loader"], left))
    return numbers
