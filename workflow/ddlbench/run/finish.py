"""What ranks left becomes the record: joined, sealed, put in place. Or it is kept, and the next
call tries again.
"""

import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ddlbench.core import heartbeats, notes
from ddlbench.core.files import sync, write_json
from ddlbench.core.mllog import events
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import EXTRAS, MLLOG, ROWS, STEPS, SUMMARY
from ddlbench.core.seal import seal, sealed
from ddlbench.core.spec import RunSpec, relevant_settings
from ddlbench.core.step_table import join_steps
from ddlbench.run import job
from ddlbench.train import interruption
from ddlbench.train.assignment import Assignment

# For a run that its study interrupts (`train/interruption.py`): the note of its ranks stays in its
# folder until the record is complete. So a supervisor that is killed meanwhile does not interrupt
# the run a second time.
INTERRUPTION_NOTE = ".interruption.json"
AGAIN = -1  # in place of an exit code: the run is to be started again


def adopt_trained(
    folder: Path, partial: Path, spec: RunSpec, data: Path | None, keep_weights: bool
) -> float | None:
    """Move to `partial` what an earlier call left that trained this very run to its end and made no
    record of it. Return when its last rank ended [s since 1970]; None if there is nothing of the
    kind.
    """
    for place in (partial, folder / job.FOLDER):
        try:
            before = Assignment.read(place)
            ended = [
                (place / f"{heartbeats.ENDED}-{rank}.json").stat().st_mtime
                for rank in range(spec.workers)
            ]
            whole = _end(place / MLLOG) > 0 and (place / ROWS).stat().st_size > 0
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
        ):  # nothing is left, or it is cut off, or another version's
            continue
        same = before.spec.trains_like(spec) and before.data == data
        if whole and same and before.keep_weights >= keep_weights:
            job.take_over(place, partial)
            return max(ended)
    return None


def make_record(
    spec: RunSpec, folder: Path, partial: Path, ended_s: float | None = None
) -> dict[str, Any] | None:
    """Join the files that the ranks left, seal the record and put it in place.

    Return None, or why that was not possible, in the form of `diagnose`. `ended_s` is when training
    ended, if that was long ago. The function may be called again, wherever the earlier call was
    killed: before the seal everything is made again, after it the files are moved, the log last.
    """
    files = None
    try:
        files = sealed(partial / MLLOG)
        if files is None:
            _complete(spec, partial, interruption_of(spec, folder), ended_s)
            files = sealed(partial / MLLOG)
        if files is None:
            raise ValueError(f"{MLLOG} has no seal, though it was sealed just now")
        for name in files:
            if (partial / name).exists():
                (partial / name).replace(folder / name)
        for path in (path for pattern in EXTRAS for path in folder.glob(pattern)):
            if path.name not in files:  # of a record before this one
                path.unlink()
        (partial / MLLOG).replace(folder / MLLOG)
        sync(folder)
    except Exception as error:  # a full disk, a package that is broken: what was trained stays
        # It would take the room for the reason, and is made again; but what is sealed stays.
        unfinished = [] if files is not None or _is_sealed(partial) else [STEPS]
        notes.give_back(partial, *notes.RESERVES, job.FAILURE, *unfinished)
        cause, message = notes.cause(error), f"its record could not be made: {error}"
        if all((partial / name).exists() for name in (MLLOG, ROWS)):
            message += "; free disk space" if cause == notes.DISK_FULL else ""
            message += "; if started again, it is not trained again"
        else:  # whatever was started, it was not our training
            cause, message = (
                "launcher failed",
                f"ranks ended successfully but left no record ({error}); read train.log",
            )
        return {"cause": cause, "rank": None, "host": socket.gethostname(), "message": message}
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder / job.FOLDER, ignore_errors=True)
    (folder / INTERRUPTION_NOTE).unlink(missing_ok=True)
    summarise(folder)
    return None


def _is_sealed(partial: Path) -> bool:
    try:
        return sealed(partial / MLLOG) is not None
    except (OSError, ValueError):
        return False


def summarise(folder: Path) -> None:
    """Write a summary beside the record for the tables, because the data are in memory now. Tables
    can be made without it.
    """
    try:
        from ddlbench.records import (
            ours,
        )  # pandas: `rehearsal.py` has imported it while ranks started

        ours.read(folder)
    except Exception as error:  # the run has ended well, whatever becomes of this
        print(f"{folder}: left no {SUMMARY}: {error}", file=sys.stderr)


def _complete(
    spec: RunSpec, partial: Path, interrupted: dict[str, Any] | None, ended_s: float | None
) -> None:
    """Join the steps, and add to the log what only the supervisor knows, and the seal. Raises
    OSError, ValueError.
    """
    end = _end(partial / MLLOG)
    if not end:
        raise ValueError(f"{MLLOG} has no run_stop, though the launcher ended successfully")
    ranks = [json.loads((partial / f"rank-{r}.json").read_text()) for r in range(spec.workers)]
    join_steps(partial, spec.workers)
    os.truncate(
        partial / MLLOG, end
    )  # without what an earlier call added behind it; on a full disk too
    log = RankLog(partial, 0, at_ms=round(1e3 * (ended_s or time.time())))
    log.event("ddlbench_ranks", ranks)
    if interrupted:
        log.event("ddlbench_interrupted", interrupted)
    for path in [partial / STEPS, *(path for pattern in EXTRAS for path in partial.glob(pattern))]:
        sync(path)  # before the seal is on the disk
    seal(partial)
    sync(partial)


def _end(log: Path) -> int:
    """Return how many bytes the log has up to the end of training; 0 without one.

    Raises OSError.
    """
    at = 0
    for line in log.read_bytes().splitlines(keepends=True):
        at += len(line)
        if b'"run_stop"' in line and any(
            event.key == "run_stop" for event in events([line.decode(errors="replace")])
        ):
            return at
    return 0


def was_interrupted(spec: RunSpec, folder: Path, partial: Path) -> bool:
    """Tell whether the ranks of this try died as planned; keep their note."""
    if spec.interrupt_steps is None or interruption_of(spec, folder):
        return False
    try:
        note = json.loads((partial / interruption.NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    write_json(folder / INTERRUPTION_NOTE, {"spec": json.loads(spec.to_json()), "note": note})
    return True


def interruption_of(spec: RunSpec, folder: Path) -> dict[str, Any] | None:
    """Return the note that ranks of an earlier try of this run wrote when they died as planned:
    step, checkpoint_s, time_s. None without one, or if the settings that matter were others.
    """
    try:
        kept = json.loads((folder / INTERRUPTION_NOTE).read_text(encoding="utf-8"))
        note: dict[str, Any] = kept["note"]
        return (
            note
            if relevant_settings(kept["spec"]) == relevant_settings(json.loads(spec.to_json()))
            else None
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
