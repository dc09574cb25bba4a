"""One run of a user's own program: start it, stamp what it prints, read its steps, and make the record of them.

The record is that of our own training, so tables read it. The program's ranks are watched as ours are (`watch.py`);
`rank.py` becomes the program, `printed.py` hears it, a member of `readings/` says what its steps were. `{folder}` of
its command is `.partial/program`; it stays beside the record.
"""

import json
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlperf_logging.mllog import constants as c

from ddlbench.core import beats, living, notes, registry
from ddlbench.core.files import printable, write_json, write_text
from ddlbench.core.record import MLLOG, ROWS, STEPS, RankLog, packed
from ddlbench.core.spec import RunSpec
from ddlbench.run import finish, job
from ddlbench.run.facts import facts
from ddlbench.run.job import reveal
from ddlbench.run.printed import Printed
from ddlbench.run.rank import ASKED, ASSIGNMENT, FOLDER
from ddlbench.run.readings import Line, Output, Reading, ReadingMember, UnreadError
from ddlbench.run.watch import WatchResult, diagnose, end_survivors, watch

ENDED = "ended_s"  # in the assignment: the program ended well, and only the record is to be made
LINES = "printed.jsonl"  # of earlier tries of an interrupted run: the lines that its reading wants
LABELLED = {"--start", "--label"}  # words of launchers that put its rank before each line
QUIET_S = 1800.0  # without a line or a recorded step a program has stopped answering


def execute(
    spec: RunSpec,
    folder: Path,
    data: Path | None,
    command: list[str],
    cited: dict[str, Any] | None = None,
    *,
    silent_s: float = beats.SILENT_S,
    grace_s: float = beats.GRACE_S,
    quiet_s: float = QUIET_S,
    **of_trainings: Any,
) -> int:
    """Run `command` to its end and put the record in place; `cited` is the preflight, for the record. A program reads
    `data` of its own, and writes checkpoints of its own.

    Returns 0; `notes.STOPPED` if the program was asked to stop and can go on; else another code. Raises ConfigError if
    a hidden value of the command cannot be found.
    """
    assert spec.program is not None
    partial = folder / ".partial"
    command_line = [*command, str(partial)]
    argv, hidden = reveal(command_line, spec.machine)
    end_survivors(partial)
    task, origin = _prepare(folder, partial, spec), _origin(spec, command_line, cited)
    for name in (MLLOG, STEPS):  # of a record that is made again
        (folder / name).unlink(missing_ok=True)
    if ENDED in task:
        print(f"{spec.id} came to its end in an earlier call; its record is made now", flush=True)
        return job.ended(
            spec.id, folder, partial, 0, _record(folder, partial, task, _printed_before(partial / LINES), [], origin)
        )
    task["began_s"].append(time.time())
    write_json(partial / ASSIGNMENT, task)
    notes.reserve(partial)
    finish.rehearse(partial)
    print(f"{spec.id}\n$ {shlex.join(command_line)}", flush=True)
    reads: ReadingMember = registry.member("readings", spec.program.reads)
    earlier, labelled = _kept(partial, _printed_before(partial / LINES)), LABELLED & {*argv} != set()

    def recorded() -> int:
        return sum(path.stat().st_size for path in partial.glob("recorder-*.steps"))

    hearing = Printed(reads.wanted(spec), quiet_s, recorded, labelled, partial / LINES)
    with hearing as printed, living.ending_descendants():
        seen = watch(argv, partial, hidden, nodes=spec.nodes, silent_s=silent_s, grace_s=grace_s)
    if seen.signal is None and (partial / ASKED).exists():
        seen.signal = signal.SIGUSR1
    beats.tidy(partial)
    seen.printed = "\n".join(printed.last)
    notes.give_back(partial, *notes.RESERVES)
    lines = _kept(partial, [*earlier, *printed.lines])
    if seen.signal is not None and not printed.quiet and spec.program.resume and _has_files(partial):
        print(f"{spec.id} was stopped; it goes on from what it left when it is started again", file=sys.stderr)
        return notes.STOPPED
    failure = _failure(partial, spec, seen, printed, quiet_s)
    if failure is None:
        if (partial / LINES).exists():
            write_json(partial / ASSIGNMENT, task | {ENDED: time.time()})
        failure = _record(folder, partial, task, lines, printed.last, origin)
    return job.ended(spec.id, folder, partial, seen.code, failure)


def _prepare(folder: Path, partial: Path, spec: RunSpec) -> dict[str, Any]:
    """Make `partial` ready. Returns the assignment, which says of earlier tries that this one goes on from when they
    began, and ENDED if only the record is to be made."""
    assert spec.program is not None
    new = {"spec": json.loads(spec.to_json()), "began_s": [], "resumes": False}
    for former in (partial, folder / job.FOLDER):
        try:
            task = json.loads((former / ASSIGNMENT).read_text(encoding="utf-8"))
            began = [float(at_s) for at_s in task["began_s"]]
            ended = ENDED in task and not (folder / MLLOG).exists()
            goes_on = task["spec"] == new["spec"] and (ended or (spec.program.resume and _has_files(former)))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not goes_on:
            continue
        if ended:
            job.take(former, partial)
            if not (partial / FOLDER).exists() and (folder / FOLDER).exists():
                (folder / FOLDER).rename(partial / FOLDER)
            return new | {"began_s": began, ENDED: task[ENDED]}
        job.go_on(former, partial, ASSIGNMENT)
        return new | {"began_s": began, "resumes": True}
    shutil.rmtree(partial, ignore_errors=True)
    (partial / FOLDER).mkdir(parents=True)
    return new


def _has_files(partial: Path) -> bool:
    """Whether there is anything in the program's folder, which it may have removed."""
    return any((partial / FOLDER).glob("*"))


def _printed_before(kept: Path) -> list[Line]:
    """The lines of earlier tries; one that was cut off by a kill is left out."""
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True) if kept.exists() else []
    return [Line(*json.loads(line)) for line in lines if line.endswith("\n")]


def _kept(partial: Path, lines: list[Line]) -> list[Line]:
    """The lines of earlier tries and of this one; kept for the next, whole, whatever was cut off."""
    path = partial / LINES
    try:
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError:  # a full disk: there may be room for the record, which is smaller
        path.unlink(missing_ok=True)
    return lines


def _record(
    folder: Path, partial: Path, task: dict[str, Any], lines: list[Line], last: Sequence[str], origin: dict[str, Any]
) -> dict[str, Any] | None:
    """Read the steps and make the record. None, or why that was not possible; what the disk refuses, the next call
    tries again without the program."""
    spec, again_s = RunSpec.from_json(json.dumps(task["spec"])), task["began_s"][1:]
    assert spec.program is not None
    reads: ReadingMember = registry.member("readings", spec.program.reads)
    try:
        run = reads.read(Output(spec, partial / FOLDER, partial, lines, [*last], again_s))
        _write(partial, spec, run, origin, interrupted=bool(again_s))
    except OSError:
        raise
    except Exception as error:  # anything may stand in a program's files
        write_json(partial / ASSIGNMENT, {name: value for name, value in task.items() if name != ENDED})
        why = error if isinstance(error, UnreadError) else printable(f"{type(error).__name__}: {error}")
        return _cause("no steps read", f"the program ended well, but no steps were read: {why}")
    if _has_files(partial):  # what the program wrote stays beside its record
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        (partial / FOLDER).rename(folder / FOLDER)
    return finish.make_record(spec, folder, partial)


def _cause(cause: str, message: str) -> dict[str, Any]:
    return {"cause": cause, "rank": None, "host": socket.gethostname(), "message": message}


def _failure(
    partial: Path, spec: RunSpec, seen: WatchResult, printed: Printed, quiet_s: float
) -> dict[str, Any] | None:
    """Why the program failed, with its last line; None if it did not."""
    if printed.quiet:
        failure = _cause("stopped answering", f"it printed nothing and recorded no step for {quiet_s:.0f} s")
    elif seen.signal is not None:
        failure = _cause("ended by a signal", f"signal {signal.Signals(seen.signal).name}")
    elif seen.code:
        failure = diagnose(partial, spec.workers, seen)
    else:
        return None
    last = next((text for text in reversed(printed.last) if text.strip()), "nothing")
    return failure | {"message": f"{failure['message']}; it printed last: {printable(last)[:300]}"}


def _origin(spec: RunSpec, shown: list[str], cited: dict[str, Any] | None) -> dict[str, Any]:
    """Where and with what it was made. Our versions say nothing of another Python, or a container."""
    assert spec.program is not None
    origin = facts(spec, shown, cited)
    if spec.program.environment or origin["container"]:
        origin |= {"python": None, "versions": {"ddlbench": origin["versions"]["ddlbench"]}}
    return origin | {"program_sha256": spec.program.digest}


def _write(partial: Path, spec: RunSpec, run: Reading, origin: dict[str, Any], interrupted: bool) -> None:
    """The log and the rows, as a rank of ours would leave them; whatever the program left by these names goes first."""
    for name in (MLLOG, ROWS, STEPS):
        (partial / name).unlink(missing_ok=True)
    first = partial / "rank-0.json"
    for rank in range(spec.workers):
        note = partial / f"rank-{rank}.json"
        source = note if note.exists() else first  # of a program that starts its ranks itself
        write_json(note, json.loads(source.read_text(encoding="utf-8")) | run.ranks.get(rank, {}))
    last_s = max(row.end_s for row in run.rows)
    later = [] if interrupted else [evaluation.time_s for evaluation in run.evaluations]
    end_s = max([run.began_s + last_s, *later])
    log = RankLog(partial, 0, at_ms=round(1e3 * run.began_s))
    log.write_steps(packed(run.rows))
    log.settings(spec, origin, sum(row.images for row in run.rows))
    log.start(c.RUN_START)
    log.start(c.EPOCH_START, epoch_num=1)
    log.at_ms = round(1e3 * end_s)
    log.event("ddlbench_evaluations", [evaluation._asdict() for evaluation in run.evaluations])
    for evaluation in [evaluation for evaluation in run.evaluations if evaluation.top1 is not None][-1:]:
        log.at_ms = round(1e3 * evaluation.time_s)
        log.event(c.EVAL_ACCURACY, evaluation.top1, epoch_num=1)
    log.at_ms = round(1e3 * end_s)
    log.stop(c.EPOCH_STOP, epoch_num=1)
    log.event("ddlbench_reading", run.remarks)
    log.event("ddlbench_elapsed_s", end_s - run.began_s)
    log.event("ddlbench_not_measured", run.not_known)
    log.stop(c.RUN_STOP, status="success")
