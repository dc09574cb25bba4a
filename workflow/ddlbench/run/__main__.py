"""Execute one run: start its ranks with the given command, watch them, and keep the record only if all ended well.

Rule `train` calls this; everything after `--` is the launcher's command (`plan/launch.py`). In the run's folder:

    .partial/    what the ranks write while they train; assignment.json tells them what
    run.mllog, steps.parquet, ...    the record: moved here from .partial when it is whole
    failed/      what the last try left if it failed; failure.json says why
    .holder.json who makes the run right now (`hold.py`)

A run that left a checkpoint goes on from it the next time. `watch.py` sees ranks that die or stop, `facts.py` says
where and with what the run was made.
"""

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from ddlbench.core import beats, layout, notes
from ddlbench.core.files import printable
from ddlbench.core.record import MLLOG, STEPS, WEIGHTS
from ddlbench.core.spec import RunSpec
from ddlbench.run import finish, hold, job
from ddlbench.run.facts import cite, facts
from ddlbench.run.job import reveal
from ddlbench.run.watch import diagnose, end_survivors
from ddlbench.settings import environment_modules
from ddlbench.train import checkpoint
from ddlbench.train.assignment import FILE, Assignment


def execute(
    spec: RunSpec,
    folder: Path,
    data: Path | None,
    command: list[str],
    cited: dict[str, Any] | None = None,
    *,
    every: tuple[int | None, float | None] = (None, None),
    silent_s: float = beats.SILENT_S,
    grace_s: float = beats.GRACE_S,
    keep_weights: bool = False,
) -> int:
    """Run `command` to its end and put the record in place; `cited` is the preflight, for the record;
    `keep_weights` adds the trained weights to it. A checkpoint is written `every` so many (epochs, minutes); None is
    never. Ranks may be silent for `silent_s`, and take `grace_s` to stop when they are told to.

    Returns 0; `notes.STOPPED` if the run was asked to stop and left a checkpoint; `finish.AGAIN` if it was killed
    because its study asks for that; else another code. Raises ConfigError if a hidden value of the command cannot be
    found.
    """
    partial = folder / ".partial"
    command_line = [*command, str(partial)]
    argv, hidden = reveal(command_line, spec.machine)
    end_survivors(partial)
    if ended_s := finish.trained(folder, partial, spec, data, keep_weights):
        print(f"{spec.id} was trained to its end by an earlier call; its record is made now", flush=True)
        return job.ended(spec.id, folder, partial, 0, finish.make_record(spec, folder, partial, ended_s))
    saved = _prepare_folder(folder, partial, spec, data)
    for name in (MLLOG, STEPS):  # of a record that is made again
        (folder / name).unlink(missing_ok=True)
    dies = None if finish.interruption_of(spec, folder) else spec.interrupt_steps
    origin = facts(spec, command_line, cited, data)
    Assignment(partial, spec, data, origin, *every, silent_s, dies, keep_weights).write()
    notes.reserve(partial)
    finish.rehearse(partial)
    print(f"{spec.id}\n$ {shlex.join(command_line)}", flush=True)
    if saved:
        print(f"goes on from the checkpoint after {checkpoint.summary(saved)['step']} steps", flush=True)
    os.environ["DDLBENCH_FOLDER"] = str(partial)
    waits: dict[str, Any] = {"nodes": spec.nodes, "silent_s": silent_s, "grace_s": grace_s}
    seen = job.watch_with_data(argv, partial, hidden, data, spec.id, **waits)
    # The supervisor needs its own when the record cannot be made.
    notes.give_back(partial, *notes.RESERVES[: 2 if seen.code else 1])
    if finish.was_interrupted(spec, folder, partial) and seen.signal is None:
        print(f"killed after {spec.interrupt_steps} steps, as its study asks; started again", flush=True)
        return finish.AGAIN
    if seen.stopped:
        print(f"{spec.id} was stopped; it goes on from its checkpoint when it is started again", file=sys.stderr)
        return notes.STOPPED
    failure = diagnose(partial, spec.workers, seen) if seen.code else finish.make_record(spec, folder, partial)
    return job.ended(spec.id, folder, partial, seen.code, failure)


def _prepare_folder(folder: Path, partial: Path, spec: RunSpec, data: Path | None) -> Path | None:
    """Make `partial` ready: with the checkpoint of an earlier try of the same run, which is returned, or empty."""
    for former in (partial, folder / "failed"):
        try:
            before = Assignment.read(former)
        except OSError:  # nothing is left
            continue
        except (ValueError, TypeError, KeyError) as error:  # cut off, or another version's
            anew = "what an earlier try left is not used, training begins anew"
            print(printable(f"{former / FILE}: cannot be read ({error!r}): {anew}"), flush=True)
            continue
        checkpoint.set_damaged_aside(former)
        if checkpoint.latest(former) and (before.spec, before.data) == (spec, data):
            if former != partial:
                shutil.rmtree(partial, ignore_errors=True)
                former.rename(partial)
            for stale in (*partial.glob("*.json"), *partial.glob("beat-*"), *partial.glob(notes.STOPPED_NOTE)):
                if stale.name != FILE:  # it is replaced: killed before that, the run still goes on
                    stale.unlink()
            return checkpoint.latest(partial)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the run as RunSpec.to_json wrote it")
    parser.add_argument("--folder", type=Path, required=True, help=layout.run("<run id>"))
    parser.add_argument("--manifest", type=Path, nargs="?", help="of the form that is read; none for synthetic data")
    parser.add_argument("--checkpoint-epochs", type=int, help="write a checkpoint every so many epochs")
    parser.add_argument("--checkpoint-minutes", type=float, help="write a checkpoint every so many minutes")
    parser.add_argument("--silent-s", type=float, default=beats.SILENT_S, help="silence that ends a run [s]")
    parser.add_argument("--grace-s", type=float, default=beats.GRACE_S, help="time for a last checkpoint [s]")
    parser.add_argument("--preflight", type=Path, help="what the machine was found to be, which the record cites")
    parser.add_argument("--keep-weights-of", action="append", default=[], help="runs that leave their weights, by id")
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    environment_modules.check()
    try:
        spec = RunSpec.from_json(a.spec)
    except (ValueError, TypeError) as error:
        sys.exit(f"--spec: {error}")
    try:
        cited = cite(a.preflight) if a.preflight else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{a.preflight}: is no preflight ({error!r}); make it again: snakemake preflight --force")
    data = a.manifest.parent if a.manifest else None
    every = a.checkpoint_epochs, a.checkpoint_minutes
    log = a.folder / Path(layout.train_log(spec.id)).name
    keep_weights, waits = spec.id in a.keep_weights_of, {"silent_s": a.silent_s, "grace_s": a.grace_s}

    def is_made() -> bool:
        return hold.finished(a.folder, spec) and (not keep_weights or (a.folder / WEIGHTS).exists())

    def make() -> int:
        if spec.program:
            from ddlbench.run import program  # which makes the same record

            return program.execute(spec, a.folder, a.command, cited, **waits)
        code = finish.AGAIN
        while code == finish.AGAIN:  # which happens once: its note stays
            code = execute(spec, a.folder, data, a.command, cited, every=every, keep_weights=keep_weights, **waits)
        return code

    job.alone(spec.id, a.folder, log, is_made, make)


if __name__ == "__main__":
    main()
