"""One run of a user's own program: start it, stamp what it prints, read its steps, and make the
record of them.

The record is that of our own training, so tables read it. The program's ranks are watched as ours
are (`watch.py`); `rank.py` becomes the program, `printed.py` hears it, a member of `readings/` says
what its steps were. `{folder}` of its command is `.partial/program`; it stays beside the record, as
all lines do that it printed, and as what it wrote where it ran (`work.py`). How they are read
stands in the program's file and not in the run: what cannot be read is read again when the file is
fixed, and not trained.
"""

import json
import math
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlperf_logging.mllog import constants as c

from ddlbench.core import heartbeats, living, notes, registry
from ddlbench.core.files import aside, printable, write_json, write_text
from ddlbench.core.mllog import read_log
from ddlbench.core.program import OWN, WORK, Program
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import MLLOG, ROWS, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import packed
from ddlbench.run import finish, hold, job, meeting, trained_together, work
from ddlbench.run.cause import diagnose
from ddlbench.run.facts import facts
from ddlbench.run.job import reveal
from ddlbench.run.printed import LAST, Printed
from ddlbench.run.rank import ASKED, ASSIGNMENT, FOLDER
from ddlbench.run.readings import Line, NotFiniteError, Output, Reading, ReadingMember, UnreadError
from ddlbench.run.rehearsal import Rehearsal
from ddlbench.run.stopping import Stopping
from ddlbench.run.watch import WatchResult, end_survivors, watch
from ddlbench.settings import program as program_file
from ddlbench.settings.program import load_reading

ENDED = "ended_s"  # in the assignment: the program ended well, and only the record is to be made
LINES = "printed.jsonl"  # all lines that it printed, with their times
ORIGIN = "origin"  # in the assignment of one that ended well: where and with what it was made
READING = "ddlbench_reading"  # in the record: how it was read, and what proves it
TOGETHER = "together"  # in it: whether ranks trained together, what shows it, and how they met
NO_STEPS = "no steps read"
LABELLED = {"--start", "--label"}  # words of launchers that put its rank before each line
SIGNALLED = 128  # exit codes of a shell from here on: its program was ended by a signal
QUIET_S = 1800.0  # without a line or a recorded step a program has stopped answering


def execute(
    spec: RunSpec,
    folder: Path,
    data: Path | None,
    command: list[str],
    cited: dict[str, Any] | None = None,
    *,
    silent_s: float = heartbeats.SILENT_S,
    grace_s: float = heartbeats.GRACE_S,
    quiet_s: float = QUIET_S,
    **of_trainings: Any,
) -> int:
    """Run `command` to its end and put the record in place; `cited` is the preflight, for the
    record. A program reads `data` of its own, and writes checkpoints of its own.

    Return 0; `notes.STOPPED` if the program was requested to stop and can resume; else another
    code. Raises ConfigError if a hidden value of the command cannot be found.
    """
    spec = as_it_is_read(spec)
    assert spec.program is not None
    partial = folder / ".partial"
    command_line = [*command, str(partial)]
    argv, hidden = reveal(command_line, spec.machine)
    _, secrets = program_file.reveal(spec.program)
    end_survivors(partial)
    task, origin = _prepare(folder, partial, spec), _origin(spec, command_line, cited)
    for name in (MLLOG, STEPS):  # of a record that is made again
        (folder / name).unlink(missing_ok=True)
    if ENDED in task:
        print(f"{spec.id} came to its end in an earlier call; its record is made now", flush=True)
        return job.report_failure(
            spec.id,
            folder,
            partial,
            0,
            _record(
                spec,
                folder,
                partial,
                task,
                _printed_before(partial / LINES),
                [],
                task.get(ORIGIN, origin),
            ),
        )
    task["began_s"].append(time.time())
    write_json(partial / ASSIGNMENT, task)
    notes.reserve(partial)
    print(f"{spec.id}\n$ {shlex.join(command_line)}", flush=True)
    reads: ReadingMember = registry.member("readings", spec.program.reads)
    earlier, labelled = (
        _keep_lines(partial, _printed_before(partial / LINES)),
        LABELLED & {*argv} != set(),
    )

    def recorded() -> int:
        return sum(path.stat().st_size for path in partial.glob("recorder-*.steps"))

    always = [re.compile(pattern) for pattern in spec.program.patterns] or reads.wanted(spec)
    hearing = Printed(always, quiet_s, recorded, labelled, partial / LINES, secrets=secrets)

    def steps() -> int:
        with suppress(UnreadError, OSError):
            so_far = [*earlier, *printed.lines]
            return len(
                {
                    row.step
                    for row in _read(
                        spec, partial / FOLDER, partial, so_far, [], task["began_s"]
                    ).rows
                }
            )
        return 0

    with hearing as printed, living.ending_descendants(), Stopping(spec.program, steps) as stopping:
        waits: dict[str, Any] = {"nodes": spec.nodes, "silent_s": silent_s, "grace_s": grace_s}
        seen = watch(argv, partial, hidden, **waits, rehearsal=Rehearsal(partial))
    if stopping.enough and seen.signal is not None:
        print(f"ended after {spec.program.stop_after}, as its file says", flush=True)
        seen = WatchResult()
    elif seen.signal is None and (partial / ASKED).exists():
        seen.signal = signal.SIGUSR1
    heartbeats.tidy(partial)
    seen.printed = "\n".join(printed.last)
    notes.give_back(partial, *notes.RESERVES)
    lines = _keep_lines(partial, [*earlier, *printed.lines])
    if (
        seen.signal is not None
        and not printed.quiet
        and spec.program.resume
        and _has_files(partial)
    ):
        print(
            f"{spec.id} was stopped; it goes on from what it left when it is started again",
            file=sys.stderr,
        )
        return notes.STOPPED
    failure = _failure(partial, spec, seen, printed, quiet_s)
    if failure is None:
        if (partial / LINES).exists():
            write_json(partial / ASSIGNMENT, task | {ENDED: time.time(), ORIGIN: origin})
        failure = _record(spec, folder, partial, task, lines, printed.last, origin)
    return job.report_failure(spec.id, folder, partial, seen.code, failure)


def _prepare(folder: Path, partial: Path, spec: RunSpec) -> dict[str, Any]:
    """Prepare `partial`. Returns the assignment with the beginnings of the earlier tries that this
    one resumes, and ENDED if only the record is to be made.
    """
    assert spec.program is not None
    new = {"spec": json.loads(spec.to_json()), "began_s": [], "resumes": False}
    for former in (partial, folder / job.FOLDER):
        try:
            task = json.loads((former / ASSIGNMENT).read_text(encoding="utf-8"))
            began = [float(at_s) for at_s in task["began_s"]]
            ended = ENDED in task and not (folder / MLLOG).exists()
            goes_on = task["spec"] == new["spec"] and (
                ended or (spec.program.resume and _has_files(former))
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not goes_on:
            continue
        if ended:
            job.take_over(former, partial)
            for name in (FOLDER, WORK):
                if not (partial / name).exists() and (folder / name).exists():
                    (folder / name).rename(partial / name)
            return (
                new
                | {"began_s": began}
                | {name: task[name] for name in (ENDED, ORIGIN) if name in task}
            )
        job.take_over_to_resume(former, partial, ASSIGNMENT)
        _lay_out(partial, spec.program)
        return new | {"began_s": began, "resumes": True}
    shutil.rmtree(partial, ignore_errors=True)
    (partial / FOLDER).mkdir(parents=True)
    _lay_out(partial, spec.program)
    return new


def _lay_out(partial: Path, program: Program) -> None:
    """Make the folder that the program runs in, if its file names one."""
    if program.folder is not None:
        work.lay_out(Path(program.folder), partial / WORK)


def _has_files(partial: Path) -> bool:
    """Tell whether the program left anything in its folders; it may have removed them."""
    return any((partial / FOLDER).glob("*")) or any(work.of_the_run(partial / WORK))


def _printed_before(path: Path) -> list[Line]:
    """Read the lines of earlier tries; one that was cut off by a kill is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [Line(*json.loads(line)) for line in lines if line.endswith("\n")]


def _keep_lines(partial: Path, lines: list[Line]) -> list[Line]:
    """Return the lines of earlier attempts and of this one, and write them completely for the next
    attempt.
    """
    path = partial / LINES
    try:
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError:  # a full disk: there may be room for the record, which is smaller
        path.unlink(missing_ok=True)
    return lines


def as_it_is_read(spec: RunSpec) -> RunSpec:
    """Return the run with the reading that its program's file describes today.

    Raises ConfigError.
    """
    assert spec.program is not None
    if spec.program.how_it_is_read():
        return spec
    today = load_reading(spec.program.name).at(dict(spec.program.settings))
    return replace(spec, program=spec.program.read_as(today))


def _record(
    spec: RunSpec,
    folder: Path,
    partial: Path,
    task: dict[str, Any],
    lines: list[Line],
    last: Sequence[str],
    origin: dict[str, Any],
) -> dict[str, Any] | None:
    """Read the steps and make the record.

    None, or why that was not possible; the next call tries again without the program.
    """
    began_s = task["began_s"]
    try:
        run = _steps(spec, partial / FOLDER, partial, lines, last, began_s)
        _judge(run, spec, lines, meeting.read(partial))
        _write(partial, spec, run, origin, began_s)
    except OSError:
        raise
    except UnreadError as error:
        return _unread(error, folder)
    for name in (FOLDER, WORK):  # the program's output stays beside its record
        if any((partial / name).glob("*")) and work.remove_unchanged(partial / name):
            shutil.rmtree(folder / name, ignore_errors=True)
            (partial / name).rename(folder / name)
    with suppress(OSError):  # without it the record is whole, and is not read again
        (folder / LINES).unlink(missing_ok=True)
        with aside(folder / LINES) as copy:
            shutil.copyfile(partial / LINES, copy)
    return finish.make_record(spec, folder, partial, task.get(ENDED))


def _steps(
    spec: RunSpec,
    wrote: Path,
    partial: Path,
    lines: Sequence[Line],
    last: Sequence[str],
    began_s: Sequence[float],
) -> Reading:
    """Return what is read of lines and files, as far as the run was to go.

    Raises UnreadError, whatever stands in them; OSError.
    """
    assert spec.program is not None
    run, most = _read(spec, wrote, partial, lines, last, began_s), spec.program.most_steps
    if most is not None:
        run.rows = [row for row in run.rows if row.step < most]
    return run


def _read(
    spec: RunSpec,
    wrote: Path,
    partial: Path,
    lines: Sequence[Line],
    last: Sequence[str],
    began_s: Sequence[float],
) -> Reading:
    """Return what is read of lines and files. Raises UnreadError, whatever stands in them;
    OSError.
    """
    assert spec.program is not None
    reads: ReadingMember = registry.member("readings", spec.program.reads)
    patterns = reads.wanted(spec)
    last = last or [line.text for line in lines[-LAST:]]
    lines = [line for line in lines if any(pattern.search(line.text) for pattern in patterns)]
    try:
        run = reads.read(Output(spec, wrote, partial, lines, [*last], [*began_s[1:]]))
    except (OSError, UnreadError):
        raise
    except Exception as error:  # anything may stand in a program's files
        raise UnreadError(printable(f"{type(error).__name__}: {error}")) from error
    if not all(math.isfinite(at_s) for at_s in (run.began_s, *(row.end_s for row in run.rows))):
        raise UnreadError("times of its steps are not finite numbers")
    return run


def _judge(run: Reading, spec: RunSpec, lines: Sequence[Line], met: meeting.Met) -> None:
    """Keep whether the ranks trained together; print it if that is not certain."""
    alone = trained_together.says_alone((line.text for line in lines), spec.workers)
    verdict = trained_together.judge(spec.workers, run.told, met, run.says, alone, run.one_clock)
    run.remarks[TOGETHER] = {
        "ranks": verdict.together,
        "by": verdict.by,
        "met": [met.listened, met.joined],
    }
    if verdict.together != trained_together.YES:
        print(f"ranks trained together: {verdict.together}: {verdict.by}", flush=True)


def _unread(error: UnreadError, folder: Path) -> dict[str, Any]:
    """Return why there is no record, and what to do."""
    if isinstance(error, NotFiniteError):
        return _cause("loss is not finite", str(error)) | {"step": error.step}
    fix = (
        "fix its file in config/programs, then: ddlbench read; to train it again, remove"
        f" {folder / job.FOLDER}"
    )
    return _cause(
        NO_STEPS,
        f"the program ended successfully, but no steps were read: {error}; its output is kept:"
        f" {fix}",
    )


def read_again(spec: RunSpec, folder: Path) -> str | None:
    """Read a run's output again, if its program's file now describes another way to read it.
    Nothing is trained.

    Return the result, None if there was nothing to do. Raises ConfigError, HeldError.
    """
    spec = as_it_is_read(spec)
    assert spec.program is not None
    with hold.held(folder):
        if (folder / MLLOG).exists():
            return _read_record_again(spec, folder)
        partial = folder / ".partial"
        if not (folder / job.FOLDER / ASSIGNMENT).exists() and not (partial / ASSIGNMENT).exists():
            return None
        former = partial if (partial / ASSIGNMENT).exists() else folder / job.FOLDER
        task = json.loads((former / ASSIGNMENT).read_text(encoding="utf-8"))
        if ENDED not in task or task["spec"] != json.loads(spec.to_json()) or ORIGIN not in task:
            return None
        job.take_over(former, partial)
        failure = _record(
            spec, folder, partial, task, _printed_before(partial / LINES), [], task[ORIGIN]
        )
        job.report_failure(spec.id, folder, partial, 0, failure)
        return f"not read: {failure['message']}" if failure else "read: its record is made"


def _read_record_again(spec: RunSpec, folder: Path) -> str | None:
    """Make a record anew from the lines and files beside it. If these cannot be read, the record
    stays unchanged.
    """
    last = {event.key: event for event in read_log(folder / MLLOG)}
    before = last[READING].value if READING in last else {}
    assert spec.program is not None
    if before.get("how") == _plain(spec.program.how_it_is_read()) or not (folder / LINES).exists():
        return None
    partial, began_s = folder / ".partial", before.get("began_s", [])
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        lines = _printed_before(folder / LINES)
        run = _steps(spec, folder / FOLDER, partial, lines, [], began_s)
        _judge(run, spec, lines, meeting.Met(*before.get(TOGETHER, {}).get("met", ())))
        for rank, note in enumerate(last["ddlbench_ranks"].value):
            write_json(partial / f"rank-{rank}.json", note)
        _write(partial, spec, run, last["ddlbench_facts"].value, began_s)
    except UnreadError as error:
        shutil.rmtree(partial, ignore_errors=True)
        return f"its record stays as it was read before: {error}"
    failure = finish.make_record(spec, folder, partial, last["ddlbench_ranks"].time_s)
    return f"not read: {failure['message']}" if failure else "read again: its record is made anew"


def _plain(value: Any) -> Any:
    """Return what JSON makes of it."""
    return json.loads(json.dumps(value))


def _cause(cause: str, message: str) -> dict[str, Any]:
    return {"cause": cause, "rank": None, "host": socket.gethostname(), "message": message}


def _failure(
    partial: Path, spec: RunSpec, seen: WatchResult, printed: Printed, quiet_s: float
) -> dict[str, Any] | None:
    """Return why the program failed, with its last line; None if it did not."""
    if printed.quiet:
        failure = _cause(
            "stopped answering", f"it printed nothing and recorded no step for {quiet_s:.0f} s"
        )
    elif seen.signal is not None:
        failure = _cause("ended by a signal", f"signal {signal.Signals(seen.signal).name}")
    elif _exited(partial, spec, seen):
        failure = _cause("exited", f"with exit code {seen.code}")
    elif seen.code:
        failure = diagnose(partial, spec.workers, seen)
    else:
        return None
    last = next((text for text in reversed(printed.last) if text.strip()), "nothing")
    return failure | {"message": f"{failure['message']}; it printed last: {printable(last)[:300]}"}


def _exited(partial: Path, spec: RunSpec, seen: WatchResult) -> bool:
    """Return whether a program that starts its ranks itself ended by itself, with an error: nobody
    killed it.
    """
    assert spec.program is not None
    by_itself = spec.program.ranks == OWN and 0 < seen.code < SIGNALLED
    return (
        by_itself
        and not seen.out_of_memory
        and not seen.silent
        and not notes.read(partial, "failure")
    )


def _origin(spec: RunSpec, shown: list[str], cited: dict[str, Any] | None) -> dict[str, Any]:
    """Return where and with what the run was made.

    Our versions say nothing of another Python, or a container.
    """
    assert spec.program is not None
    origin = facts(spec, shown, cited)
    if spec.program.environment or origin["container"]:
        origin |= {"python": None, "versions": {"ddlbench": origin["versions"]["ddlbench"]}}
    return origin | {
        "program_sha256": spec.program.digest,
        "stopped_after": spec.program.stop_after,
    }


def _write(
    partial: Path, spec: RunSpec, run: Reading, origin: dict[str, Any], began_s: Sequence[float]
) -> None:
    """Write the log and the rows, as a rank of ours would leave them; whatever the program left
    under these names is removed first.
    """
    for name in (MLLOG, ROWS, STEPS):
        (partial / name).unlink(missing_ok=True)
    first = partial / "rank-0.json"
    for rank in range(spec.workers):
        note = partial / f"rank-{rank}.json"
        source = note if note.exists() else first  # of a program that starts its ranks itself
        write_json(note, json.loads(source.read_text(encoding="utf-8")) | run.ranks.get(rank, {}))
    last_s = max(row.end_s for row in run.rows)
    later = [] if began_s[1:] else [evaluation.time_s for evaluation in run.evaluations]
    end_s = max([run.began_s + last_s, *later])
    log = RankLog(partial, 0, at_ms=round(1e3 * run.began_s))
    log.write_steps(packed(run.rows))
    log.write_settings(spec, origin, sum(row.images for row in run.rows))
    log.start(c.RUN_START)
    log.start(c.EPOCH_START, epoch_num=1)
    log.at_ms = round(1e3 * end_s)
    log.event("ddlbench_evaluations", [evaluation._asdict() for evaluation in run.evaluations])
    for evaluation in [evaluation for evaluation in run.evaluations if evaluation.top1 is not None][
        -1:
    ]:
        log.at_ms = round(1e3 * evaluation.time_s)
        log.event(c.EVAL_ACCURACY, evaluation.top1, epoch_num=1)
    log.at_ms = round(1e3 * end_s)
    log.stop(c.EPOCH_STOP, epoch_num=1)
    assert spec.program is not None
    log.event(READING, run.remarks | {"how": spec.program.how_it_is_read(), "began_s": [*began_s]})
    log.event("ddlbench_elapsed_s", end_s - run.began_s)
    log.event("ddlbench_not_measured", run.not_known)
    log.stop(c.RUN_STOP, status="success")
