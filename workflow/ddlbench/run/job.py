"""What jobs of all kinds do alike: hold their folder, watch their ranks, and say how they ended."""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ddlbench.core import beats, notes
from ddlbench.data.readers import reading
from ddlbench.data.verify import glance, index
from ddlbench.run import failed, late
from ddlbench.run.hold import HeldError, held
from ddlbench.run.watch import WatchResult, watch
from ddlbench.settings.config import ConfigError


def alone(name: str, folder: Path, log: Path, is_made: Callable[[], bool], execute: Callable[[], int]) -> NoReturn:
    """Hold the folder of a job, execute it unless another job `is_made` it, and end this process with its exit code."""
    try:
        with held(folder):
            if is_made():
                print(f"{name}: is already made; that record stays", flush=True)
                late.step_aside(log)
                sys.exit(0)
            late.begin(log)
            code = execute()
    except HeldError as error:
        late.step_aside(log)
        sys.exit(str(error))
    except ConfigError as error:
        sys.exit(str(error))
    except OSError as error:  # a full disk, or one that can only be read
        with suppress(OSError):  # an older reason must not stand for this one; a checkpoint beside it stays
            (folder / failed.FOLDER / failed.FAILURE).unlink(missing_ok=True)
        todo = "; make room, and start again" if notes.cause(error) == notes.DISK_FULL else ""
        sys.exit(f"{name} failed: {notes.cause(error)}: {error}{todo}")
    sys.exit(code)


def watch_with_data(
    argv: list[str],
    partial: Path,
    hidden: Mapping[str, str],
    data: Path | None,
    name: str,
    *,
    nodes: int,
    silent_s: float,
    grace_s: float,
) -> WatchResult:
    """`watch`, unless a short look shows that the data are damaged; nobody replaces them meanwhile."""
    with reading(data, name):
        if damaged := glance(data) or index(data):
            return WatchResult(code=1, damaged=damaged)
        seen = watch(argv, partial, hidden, nodes=nodes, silent_s=silent_s, grace_s=grace_s)
        beats.tidy(partial)
    return seen


def ended(name: str, folder: Path, partial: Path, code: int, failure: dict[str, Any] | None) -> int:
    """The exit code of a job that failed so, which this says and keeps; 0 if it did not."""
    if failure is None:
        return 0
    where = failed.keep(folder, partial, failure)
    with suppress(OSError):  # a full disk; the reason is kept by now
        print(f"{name} failed: {failure['message']}; exit code {code or 1}; {where}", file=sys.stderr)
    return code or 1
