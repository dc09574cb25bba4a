"""Execute one run: start its ranks with the given command, watch them, and keep the record only if
all ended well.

Rule `train` calls this; everything after `--` is the launcher's command (`plan/launch.py`). In the
run's folder:

    .partial/    what the ranks write while they train; assignment.json tells them what
    run.mllog, steps.parquet, ...    the record: moved here from .partial when it is whole
    failed/      what the last try left if it failed; failure.json says why
    .holder.json who makes the run right now (`hold.py`)

`training.py` and `program.py` make a run of their kind. `watch.py` sees ranks that die or stop,
`facts.py` says where and with what the run was made.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from ddlbench.core import heartbeats, layout
from ddlbench.core.record import WEIGHTS
from ddlbench.core.spec import RunSpec
from ddlbench.run import finish, hold, job
from ddlbench.run.facts import cite
from ddlbench.run.turn import turn
from ddlbench.settings import environment_modules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the run as RunSpec.to_json wrote it")
    parser.add_argument("--folder", type=Path, required=True, help=layout.run("<run id>"))
    parser.add_argument(
        "--manifest", type=Path, nargs="?", help="of the form that is read; none for synthetic data"
    )
    parser.add_argument("--checkpoint-epochs", type=int, help="epochs between checkpoints")
    parser.add_argument("--checkpoint-minutes", type=float, help="minutes between checkpoints")
    parser.add_argument(
        "--silent-s",
        type=float,
        default=heartbeats.SILENT_S,
        help="heartbeat timeout: a silent run is ended after this time [s]",
    )
    parser.add_argument(
        "--grace-s", type=float, default=heartbeats.GRACE_S, help="time for a last checkpoint [s]"
    )
    parser.add_argument(
        "--preflight", type=Path, help="result of the preflight, which the record cites"
    )
    parser.add_argument(
        "--keep-weights-of",
        action="append",
        default=[],
        help="runs that leave their weights, by id",
    )
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    environment_modules.check_loaded()
    try:
        spec = RunSpec.from_json(a.spec)
    except (ValueError, TypeError) as error:
        sys.exit(f"--spec: {error}")
    try:
        cited = cite(a.preflight) if a.preflight else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(
            f"{a.preflight}: is not a preflight report ({error!r}); make it again: snakemake"
            " preflight --force"
        )
    data = a.manifest.parent if a.manifest else None
    log = a.folder / Path(layout.train_log(spec.id)).name
    keep_weights = spec.id in a.keep_weights_of
    options = {
        "checkpoint_every": (a.checkpoint_epochs, a.checkpoint_minutes),
        "keep_weights": keep_weights,
    }
    options |= {"silent_s": a.silent_s, "grace_s": a.grace_s}

    def is_made() -> bool:
        return hold.finished(a.folder, spec) and (not keep_weights or (a.folder / WEIGHTS).exists())

    def make() -> int:
        supervisor, code = import_module(f"ddlbench.run.{spec.kind}"), finish.AGAIN
        with turn(spec.id, spec.timed):
            while code == finish.AGAIN:  # which happens once: its note stays
                code = supervisor.execute(spec, a.folder, data, a.command, cited, **options)
        return code

    job.run_alone(spec.id, a.folder, log, is_made, make)


if __name__ == "__main__":
    main()
