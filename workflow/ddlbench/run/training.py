"""One run of our own training: start its ranks, watch them, make the record of what they wrote.

A run that left a checkpoint goes on from it the next time. `__main__.py` says what lies in the
run's folder.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddlbench.core import heartbeats, notes
from ddlbench.core.files import printable
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.run import finish, job
from ddlbench.run.cause import diagnose
from ddlbench.run.facts import facts
from ddlbench.run.job import reveal
from ddlbench.run.rehearsal import Rehearsal
from ddlbench.run.watch import end_survivors
from ddlbench.train import checkpoint
from ddlbench.train.assignment import FILE, Assignment

# Facts that no run may change under way, beside the versions of packages.
SAME = ("python", "torch_from", "container", "data_sha256")


def execute(
    spec: RunSpec,
    folder: Path,
    data: Path | None,
    command: list[str],
    cited: dict[str, Any] | None = None,
    *,
    checkpoint_every: tuple[int | None, float | None] = (None, None),
    silent_s: float = heartbeats.SILENT_S,
    grace_s: float = heartbeats.GRACE_S,
    keep_weights: bool = False,
) -> int:
    """Run `command` to its end and put the record in place.

    `cited` is the preflight, for the record; `keep_weights` adds the trained weights to it. A
    checkpoint is written every so many (epochs, minutes), `checkpoint_every`; None is never.
    `silent_s` is the heartbeat timeout of ranks, `grace_s` the time that they may take to stop when
    they are told to.

    Returns 0; `notes.STOPPED` if the run was asked to stop and left a checkpoint; `finish.AGAIN` if
    it was killed because its study asks for that; else another code. Raises ConfigError if a hidden
    value of the command cannot be found.
    """
    partial = folder / ".partial"
    command_line = [*command, str(partial)]
    argv, hidden = reveal(command_line, spec.machine)
    end_survivors(partial)
    if ended_s := finish.adopt_trained(folder, partial, spec, data, keep_weights):
        print(
            f"{spec.id} was trained to its end by an earlier call; its record is made now",
            flush=True,
        )
        return job.report_failure(
            spec.id, folder, partial, 0, finish.make_record(spec, folder, partial, ended_s)
        )
    origin = facts(spec, command_line, cited, data)
    saved = _prepare_folder(folder, partial, spec, data, origin)
    for name in (MLLOG, STEPS):  # of a record that is made again
        (folder / name).unlink(missing_ok=True)
    dies = None if finish.interruption_of(spec, folder) else spec.interrupt_steps
    Assignment(partial, spec, data, origin, *checkpoint_every, silent_s, dies, keep_weights).write()
    notes.reserve(partial)
    print(f"{spec.id}\n$ {shlex.join(command_line)}", flush=True)
    if saved:
        print(
            f"goes on from the checkpoint after {checkpoint.summary(saved)['step']} steps",
            flush=True,
        )
    os.environ["DDLBENCH_FOLDER"] = str(partial)
    waits: dict[str, Any] = {"nodes": spec.nodes, "silent_s": silent_s, "grace_s": grace_s}
    seen = job.watch_with_data(argv, partial, hidden, data, **waits, rehearsal=Rehearsal(partial))
    # The supervisor needs its own when the record cannot be made.
    notes.give_back(partial, *notes.RESERVES[: 2 if seen.code else 1])
    if finish.was_interrupted(spec, folder, partial) and seen.signal is None:
        print(
            f"killed after {spec.interrupt_steps} steps, as its study asks; started again",
            flush=True,
        )
        return finish.AGAIN
    if seen.stopped:
        print(
            f"{spec.id} was stopped; it goes on from its checkpoint when it is started again",
            file=sys.stderr,
        )
        return notes.STOPPED
    failure = (
        diagnose(partial, spec.workers, seen)
        if seen.code
        else finish.make_record(spec, folder, partial)
    )
    return job.report_failure(spec.id, folder, partial, seen.code, failure)


def _prepare_folder(
    folder: Path, partial: Path, spec: RunSpec, data: Path | None, origin: Mapping[str, Any]
) -> Path | None:
    """Make `partial` ready: with the checkpoint of an earlier try of the same run, which is
    returned, or empty. A record names one software and one data set (`origin`): a try with others
    is not gone on from.
    """
    anew = "what an earlier attempt left is not used, training starts from the beginning"
    for former in (partial, folder / job.FOLDER):
        try:
            before = Assignment.read(former)
        except OSError:  # nothing is left
            continue
        except (ValueError, TypeError, KeyError) as error:  # cut off, or another version's
            print(printable(f"{former / FILE}: cannot be read ({error!r}): {anew}"), flush=True)
            continue
        checkpoint.set_damaged_aside(former)
        if checkpoint.latest(former) and before.spec.trains_like(spec) and before.data == data:
            if changed := _changed(before.facts, origin):
                print(f"{former}: {changed}: {anew}", flush=True)
                continue
            job.take_over_to_resume(former, partial, FILE)
            return checkpoint.latest(partial)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return None


def _changed(before: Mapping[str, Any], origin: Mapping[str, Any]) -> str:
    """Return what of the software and the data is no longer what it was, in words; "" if nothing
    is. Our own version is none of it: the formats of what we leave have numbers of their own.
    """
    pairs = {name: (before.get(name), origin.get(name)) for name in SAME if name in before}
    versions = origin.get("versions", {})
    for package, version in before.get("versions", {}).items():
        if package != "ddlbench":
            pairs[package] = (version, versions.get(package))
    return ", ".join(
        f"{name} was {was}, and is {now} now" for name, (was, now) in pairs.items() if was != now
    )
