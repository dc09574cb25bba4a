"""Execute one run: start its ranks with the given command, watch them, and keep the record only if all ended well.

Rule `train` calls this; everything after `--` is the launcher's command (`plan/launch.py`). In the run's folder:

    .partial/    what the ranks write while they train; assignment.json tells them what
    run.mllog, steps.parquet, ...    the record: moved here from .partial when it is whole
    failed/      what the last try left if it failed; failure.json says why
    .holder.json who makes the run right now (`hold.py`)

A run that left a checkpoint goes on from it the next time. `watch.py` sees ranks that die or stop, `facts.py` says
where and with what the run was made, `environment.py` has the values that the command line does not show.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench import beats, layout, notes
from ddlbench.data.readers import reading
from ddlbench.data.verify import glance, index
from ddlbench.files import sha256
from ddlbench.rank import checkpoint
from ddlbench.rank.assignment import Assignment
from ddlbench.record import COMMS, FLOPS, FLOPS_COUNTED, KERNELS, MLLOG, STEPS, WEIGHTS, RankLog, join_steps, read_log
from ddlbench.run import interrupted
from ddlbench.run.environment import reveal
from ddlbench.run.facts import cite, facts
from ddlbench.run.failed import FAILURE, keep
from ddlbench.run.hold import HeldError, held
from ddlbench.run.watch import Seen, data_damaged, diagnose, end_survivors, watch
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.spec import RunSpec

# What a run leaves beside its log and its steps, if it was told to.
EXTRAS = (KERNELS, WEIGHTS, "nsys-*", FLOPS, FLOPS_COUNTED, COMMS)


@dataclass(frozen=True)
class Checkpoints:
    """When a run writes one: every so many epochs, every so many minutes; None is never."""

    epochs: int | None = None
    minutes: float | None = None


@dataclass(frozen=True)
class Patience:
    """How long ranks may be silent, and how long they may take to stop when they are told to [s]."""

    silent_s: float = beats.SILENT_S
    grace_s: float = beats.GRACE_S


def execute(
    spec: RunSpec,
    folder: Path,
    data: Path | None,
    command: list[str],
    when: Checkpoints | None = None,
    cited: dict[str, Any] | None = None,
    patience: Patience | None = None,
    keep_weights: bool = False,
) -> int:
    """Run `command` to its end and put the record in place; `cited` is the preflight, for the record;
    `keep_weights` adds the trained weights to it.

    Returns 0; `notes.STOPPED` if the run was asked to stop and left a checkpoint; `interrupted.AGAIN` if it was killed
    because its study asks for that; else another code. Raises ConfigError if a hidden value of the command cannot be
    found.
    """
    partial = folder / ".partial"
    shown = [*command, str(partial)]
    argv, hidden = reveal(shown, spec.machine)
    saved = _prepare_folder(folder, partial, spec, data)
    when, patience = when or Checkpoints(), patience or Patience()
    told = facts(spec, shown, cited, data)
    dies = interrupted.still_to_come(spec, folder)
    Assignment(partial, spec, data, told, when.epochs, when.minutes, patience.silent_s, dies, keep_weights).write()
    notes.reserve(partial)
    print(f"{spec.id}\n$ {shlex.join(shown)}", flush=True)
    if saved:
        print(f"goes on from the checkpoint after {checkpoint.summary(saved)['step']} steps", flush=True)
    os.environ["DDLBENCH_FOLDER"] = str(partial)
    with reading(data, spec.id):
        damaged = glance(data) or index(data)
        if damaged:
            seen = Seen(code=1)
        else:
            silent_s, grace_s = patience.silent_s, patience.grace_s
            seen = watch(argv, partial, hidden, nodes=spec.nodes, silent_s=silent_s, grace_s=grace_s)
            beats.tidy(partial)
    for name in notes.RESERVES:
        (partial / name).unlink(missing_ok=True)
    if interrupted.happened(spec, folder, partial) and seen.told is None:
        print(f"killed after {spec.interrupt_steps} steps, as its study asks; started again", flush=True)
        return interrupted.AGAIN
    code = seen.code or _complete_record(spec, partial, interrupted.kept(spec, folder))
    if code == 0:
        extras = [path for pattern in EXTRAS for path in partial.glob(pattern)]
        for path in (*extras, partial / STEPS, partial / MLLOG):
            path.replace(folder / path.name)
        shutil.rmtree(partial)
        shutil.rmtree(folder / "failed", ignore_errors=True)
        (folder / interrupted.KEPT).unlink(missing_ok=True)
        _summarise(folder)
        return 0
    if seen.stopped:
        print(f"{spec.id} was stopped; it goes on from its checkpoint when it is started again", file=sys.stderr)
        return notes.STOPPED
    failure = data_damaged(damaged) if damaged else diagnose(partial, spec.workers, seen)
    where = keep(folder, partial, failure)
    print(f"{spec.id} failed: {failure['message']}; exit code {code}; {where}", file=sys.stderr)
    return code


def _summarise(folder: Path) -> None:
    """Leave beside the record what tables need of it, now that it is at hand. Tables can be made without it."""
    from ddlbench.analysis import summary  # pandas, which nothing here needs before

    try:
        summary.of(folder)
    except Exception as error:  # the run has ended well, whatever becomes of this
        print(f"{folder}: left no {summary.NAME}: {error}", file=sys.stderr)


def _prepare_folder(folder: Path, partial: Path, spec: RunSpec, data: Path | None) -> Path | None:
    """Make `partial` ready: with the checkpoint of an earlier try of the same run, which is returned, or empty."""
    end_survivors(partial)
    for left in (partial, folder / "failed"):
        try:
            before = Assignment.read(left)
        except (OSError, ValueError, TypeError, KeyError):  # nothing is left, or it is cut off, or another version's
            continue
        if checkpoint.latest(left) and (before.spec, before.data) == (spec, data):
            if left != partial:
                shutil.rmtree(partial, ignore_errors=True)
                left.rename(partial)
            for stale in (*partial.glob("*.json"), *partial.glob("beat-*"), *partial.glob(notes.STOPPED_NOTE)):
                stale.unlink()
            return checkpoint.latest(partial)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return None


def _complete_record(spec: RunSpec, partial: Path, interruption: dict[str, Any] | None) -> int:
    """Join what the ranks wrote. Returns 0, or 1 if the log has no end or a rank left nothing: that run has failed."""
    if not any(event.key == "run_stop" for event in read_log(partial / MLLOG)):
        print(f"{spec.id}: the launcher ended well but the log has no run_stop", file=sys.stderr)
        return 1
    try:
        ranks = [json.loads((partial / f"rank-{r}.json").read_text()) for r in range(spec.workers)]
        join_steps(partial, spec.workers)
        log = RankLog(partial, 0)
        log.event("ddlbench_ranks", ranks)
        if interruption:
            log.event("ddlbench_interrupted", interruption)
        # With these, tables can tell whether the files are the ones that this log was written with.
        log.event("ddlbench_steps_sha256", sha256(partial / STEPS))
        if (partial / KERNELS).exists():
            log.event("ddlbench_kernels_sha256", sha256(partial / KERNELS))
    except OSError as error:
        print(f"{spec.id}: {error}", file=sys.stderr)
        return 1
    return 0


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
    when = Checkpoints(a.checkpoint_epochs, a.checkpoint_minutes)
    try:
        with held(a.folder):
            kept = spec.id in a.keep_weights_of
            code = interrupted.AGAIN
            while code == interrupted.AGAIN:  # which happens once: `interrupted.still_to_come`
                patience = Patience(a.silent_s, a.grace_s)
                code = execute(spec, a.folder, data, a.command, when, cited, patience, kept)
    except (HeldError, ConfigError) as error:
        sys.exit(str(error))
    except OSError as error:  # a full disk, or one that can only be read
        with suppress(OSError):  # an older reason must not stand for this one; a checkpoint beside it stays
            (a.folder / "failed" / FAILURE).unlink(missing_ok=True)
        sys.exit(f"{spec.id} failed: {notes.cause(error)}: {error}")
    sys.exit(code)


if __name__ == "__main__":
    main()
