"""Logs of MLPerf: ours, and those that MLCommons publishes. Their lines as events, and what events
say of a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core.files import opened_text

SEAL = "ddlbench_seal"  # the last line of a record's log
DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Event:
    """One MLPerf log line; `time_s` is seconds since the Unix epoch."""

    key: str
    value: Any
    metadata: dict[str, Any]
    time_s: float


def read_log(path: Path) -> Iterator[Event]:
    """Yield the MLPerf lines of a file in their order, without lines of other programs between
    them. Raises OSError, also for what is no regular file.
    """
    with opened_text(path) as lines:
        yield from events(lines)


def recorded_spec(log: Path) -> Any:
    """Return the settings of the run in the first lines of a log; None if they are not there.
    Raises OSError, ValueError, KeyError.
    """
    return next((event.value for event in read_log(log) if event.key == "ddlbench_spec"), None)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the MLPerf lines among these."""
    for line in lines:
        marker = line.find(":::MLL")
        brace = line.find("{", marker)
        if marker < 0 or brace < 0:
            continue
        try:
            data, _ = DECODER.raw_decode(line[brace:])
        except json.JSONDecodeError:  # a line cut off when its writer was killed
            continue
        yield Event(
            data["key"], data.get("value"), data.get("metadata") or {}, data["time_ms"] / 1e3
        )


def ended_well(last: Mapping[str, Event]) -> bool:
    """Say whether a training came to its end. `last`: the last event of each key."""
    return "run_stop" in last and last["run_stop"].metadata.get("status") == "success"


def train_s(last: Mapping[str, Event]) -> float:
    """Return how long a run trained, with validation, without interruptions [s]. `last`: the last
    event of each key.
    """
    if "ddlbench_elapsed_s" in last:
        return float(last["ddlbench_elapsed_s"].value)
    return last["run_stop"].time_s - last["run_start"].time_s


def began_s(last: Mapping[str, Event], first_s: float) -> float:
    """Return when a run's first process began [s since 1970]. `first_s`: when its log began."""
    ranks = (last["ddlbench_ranks"].value if "ddlbench_ranks" in last else None) or []
    began: list[float] = [
        rank["started"] for rank in ranks if isinstance(rank.get("started"), int | float)
    ]
    return min([first_s, *began])


def begin_and_end_s(last: Mapping[str, Event], first_s: float) -> float:
    """Return how long a run took outside its training: to begin and to end [s]. `first_s`: when its
    log began [s since 1970].
    """
    before_s = last["run_start"].time_s - began_s(last, first_s)
    ended_s = max(
        event.time_s for event in last.values() if event.key != SEAL
    )  # which may come a year later
    # The times of a program that was started again are without its interruptions, and the time of
    # its end is not: what lies between them is more than ending took.
    after_s = ended_s - last["run_stop"].time_s if len(starts_s(last)) < 2 else 0.0
    return max(0.0, before_s) + max(0.0, after_s)


def starts_s(last: Mapping[str, Event]) -> list[float]:
    """Return when a user's program was started, and started again [s since 1970]; [] of our
    trainings.
    """
    reading = last["ddlbench_reading"].value if "ddlbench_reading" in last else None
    starts = reading.get("began_s") if isinstance(reading, Mapping) else None
    if not isinstance(starts, list):  # anything may stand in a log
        return []
    return [float(at_s) for at_s in starts if isinstance(at_s, int | float)]
