"""Table `neighbours`: every record in a folder of runs, whichever study it is of, and when it was
on which computers.

Two studies that were started in two terminals measured each other: neither sees that in tables of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.core.mllog import SEAL, Event, began_s, read_log, starts_s
from ddlbench.core.record import MLLOG

COLUMNS = ("run", "hosts", "begun_s", "ended_s")  # times in seconds since 1970


def read(folder: Path, since_s: float) -> pd.DataFrame:
    """Return the records in a folder of runs whose log changed after `since_s` [s since 1970].

    A run that ended earlier cannot have disturbed one that began then. A log that cannot be
    understood is left out, because tables refuse it.
    """
    return pd.DataFrame(_rows(folder, since_s), columns=[*COLUMNS])


def _rows(folder: Path, since_s: float) -> Iterator[dict[str, Any]]:
    for log in sorted(folder.glob(f"*/{MLLOG}")):
        try:
            if log.stat().st_mtime < since_s:
                continue
            yield _row(log.parent.name, list(read_log(log)))
        except Exception:  # whatever stands in a file of another study
            continue


def _row(run: str, events: list[Event]) -> dict[str, Any]:
    last = {event.key: event for event in events}
    hosts = {str(rank["host"]) for rank in last["ddlbench_ranks"].value}
    ended_s = max(event.time_s for event in last.values() if event.key != SEAL)
    # Where it was before it went on from a checkpoint the log does not say.
    resumed, starts = last.get("ddlbench_resumed"), starts_s(last)
    begun_s = resumed.time_s if resumed else began_s(last, events[0].time_s)
    return {
        "run": run,
        "hosts": ",".join(sorted(hosts)),
        "begun_s": starts[-1] if len(starts) > 1 else begun_s,
        "ended_s": ended_s,
    }
