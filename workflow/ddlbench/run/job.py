"""What jobs of all kinds do alike: hold their folder, watch their ranks, and say how they ended, or
why not.
"""

import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from ddlbench.analysis.failures import FAILED, PARTIAL, REPORT
from ddlbench.core import heartbeats, living, notes
from ddlbench.core.files import write_json
from ddlbench.core.record import FLOPS, FLOPS_COUNTED
from ddlbench.data.verify import glance, index
from ddlbench.plan.launch import HIDDEN
from ddlbench.run import hold, reason
from ddlbench.run.hold import HeldError, held
from ddlbench.run.rank import ASKED
from ddlbench.run.rehearsal import Rehearsal
from ddlbench.run.watch import WatchResult, watch
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.slurm import step

FOLDER, FAILURE = FAILED, REPORT  # of a failed try


def run_alone(
    name: str, folder: Path, log: Path, is_made: Callable[[], bool], execute: Callable[[], int]
) -> NoReturn:
    """Hold the folder of a job, execute it unless its record `is_made`, and end this process with
    its exit code.
    """
    try:
        with held(folder):
            if is_made():
                print(f"{name}: has a record already, which is kept", flush=True)
                hold.restore_log(log)
                sys.exit(0)
            hold.remove_displaced_log(log)
            code = _exit_code(name, folder, execute)
    except HeldError as error:
        hold.restore_log(log)
        sys.exit(str(error))
    sys.exit(code)


def _exit_code(name: str, folder: Path, execute: Callable[[], int]) -> int:
    """Return the exit code of `execute`.

    Whatever it raises becomes the reason why the job failed, and ends this process.
    """
    with suppress(
        OSError
    ):  # an older reason must not be taken for this attempt's; a checkpoint beside it stays
        (folder / FOLDER / FAILURE).unlink(missing_ok=True)
    stopped = folder / PARTIAL / notes.STOPPED_NOTE
    try:
        stopped.unlink(missing_ok=True)
        code = execute()
        if code == notes.STOPPED:
            with suppress(OSError):  # programs leave none
                stopped.touch()
        return code
    except ConfigError as error:
        message = str(error)
        reason.leave(folder, "configuration", message)
    except living.UnendedError as error:
        message = f"{name} failed: {error}"
        reason.leave(folder, "process does not end", message)
    except OSError as error:  # a full disk, or one that can only be read
        todo = "; free disk space, and start again" if notes.cause(error) == notes.DISK_FULL else ""
        message = f"{name} failed: {notes.cause(error)}: {error}{todo}"
        reason.leave(folder, notes.cause(error), message)
    except Exception as error:
        reason.leave(
            folder, notes.cause(error), "".join(traceback.format_exception_only(error)).strip()
        )
        raise
    sys.exit(message)


def take_over(former: Path, partial: Path) -> None:
    """Make the folder that an earlier try left the folder of this one."""
    if former != partial:
        shutil.rmtree(partial, ignore_errors=True)
        former.rename(partial)


def take_over_to_resume(former: Path, partial: Path, assignment: str) -> None:
    """Make the folder that an earlier try left the folder of this one, without notes of processes
    that are gone, so that the run can resume. What the run has measured once stays. So does the
    file `assignment` until it is replaced: killed before that, the run can still resume.
    """
    take_over(former, partial)
    for old_note in [
        path
        for name in ("*.json", "beat-*", notes.STOPPED_NOTE, ASKED)
        for path in partial.glob(name)
    ]:
        if old_note.name not in (assignment, FLOPS, FLOPS_COUNTED):
            old_note.unlink()


def watch_with_data(
    argv: list[str],
    partial: Path,
    hidden: Mapping[str, str],
    data: Path | None,
    *,
    nodes: int,
    silent_s: float,
    grace_s: float,
    rehearsal: Rehearsal | None = None,
) -> WatchResult:
    """Watch the ranks as `watch` does, unless a short look shows that the data are damaged."""
    if damaged := glance(data) or index(data):
        return WatchResult(code=1, damaged=damaged)
    seen = watch(
        argv, partial, hidden, nodes=nodes, silent_s=silent_s, grace_s=grace_s, rehearsal=rehearsal
    )
    heartbeats.tidy(partial)
    return seen


def report_failure(
    name: str, folder: Path, partial: Path, code: int, failure: dict[str, Any] | None
) -> int:
    """Print and keep the failure of a job, if there is one; return the job's exit code, 0 without a
    failure.
    """
    if failure is None:
        return 0
    where = keep_failure(folder, partial, failure)
    with suppress(OSError):  # a full disk; the reason is already saved
        print(
            f"{name} failed: {failure['message']}; exit code {code or 1}; {where}", file=sys.stderr
        )
    return code or 1


def keep_failure(folder: Path, partial: Path, failure: dict[str, Any]) -> str:
    """Save what a failed attempt left, with the reason; replace what the attempt before left.

    Return a sentence that names the place.
    """
    failed = folder / FOLDER
    shutil.rmtree(failed, ignore_errors=True)  # first: an older reason must not stand for this one
    try:
        partial.rename(failed)
        write_json(failed / FAILURE, failure | {"time": time.time(), "slurm_job_id": step.job()})
    except OSError as error:
        return f"{failed / FAILURE} could not be written: {error.strerror}"
    return f"what it left is in {failed}"


def reveal(
    argv: list[str], machine: str, folder: Path = CONFIG / "machines"
) -> tuple[list[str], dict[str, str]]:
    """Return `argv` of `launch.command` without its hidden settings, and these variables with their
    values. So a token reaches the ranks' environment, and never a record, a log or a list of
    processes. Raises ConfigError if the machine's file no longer has one of them.
    """
    settings = list(takewhile(lambda word: "=" in word, argv[1:])) if argv[:1] == ["env"] else []
    hidden = [word.split("=", 1)[0] for word in settings if word.split("=", 1)[1] == HIDDEN]
    if not hidden:
        return argv, {}
    values = dict(load_machine(machine, folder).environment)
    for name in hidden:
        if name not in values:
            file = folder / f"{machine}.yaml"
            raise ConfigError(
                f"{file}: environment: {name}: is missing; it was there when this job was planned"
            )
    kept = [word for word in settings if word.split("=", 1)[0] not in hidden]
    return ["env", *kept, *argv[1 + len(settings) :]], {name: values[name] for name in hidden}
