"""One job of inference: start its ranks with the given command, and say what they need to know.
Rule `infer` calls it.

    python -m ddlbench.run.infer --folder F --spec JSON --manifest M [--trained LOG] -- <launcher
    and its arguments>

The ranks (`ddlbench.train.inference`) write what they measured into `.partial` in the job's folder,
and are watched as those of training are (`watch.py`). When all is well it becomes the record,
`inference.json`: whole, or not there. What a failed job left is in `failed`, with the reason.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddlbench.analysis.refusals import RefusedError, seal_of
from ddlbench.core import registry
from ddlbench.core.files import sha256, write_json
from ddlbench.core.record import MLLOG, WEIGHTS
from ddlbench.run import hold, job
from ddlbench.run.cause import diagnose
from ddlbench.run.facts import facts
from ddlbench.run.job import reveal
from ddlbench.run.turn import turn
from ddlbench.run.watch import end_survivors
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.train.inference import InferSpec
from ddlbench.train.inference_record import ASSIGNMENT, FAILED, LOG, PARTIAL, RECORD


def execute(
    spec: InferSpec,
    folder: Path,
    data: Path,
    trained: Path | None,
    command: list[str],
    silent_s: float,
) -> int:
    """Run `command` to its end. Returns 0 if it left a record, else another code.

    `trained` is the folder of the run whose weights are meant; `silent_s` is the heartbeat timeout
    of a rank. Raises ConfigError if weights are missing, or a hidden value of the command cannot be
    found.
    """
    weights = trained / WEIGHTS if trained else None
    if weights and not weights.exists():
        raise ConfigError(
            f"{weights}: is missing, because the run was made without it: remove {trained} and make"
            " it again"
        )
    if weights and trained and (log := trained / MLLOG).exists():
        try:
            files = seal_of(log)
        except RefusedError as error:
            raise ConfigError(f"{error}: move {trained} away and make the run again") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{log}: {error}: move {trained} away and make the run again"
            ) from None
        if sha256(weights) != files.get(weights.name):
            raise ConfigError(
                f"{weights}: is not the file that the run wrote (SHA-256 differs): move {trained}"
                " away and make the run again"
            )
    began, partial = time.monotonic(), folder / PARTIAL
    command_line = [*command, str(partial)]
    argv, hidden = reveal(command_line, spec.run.machine)
    end_survivors(partial)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (folder / RECORD).unlink(missing_ok=True)
    origin = facts(spec.run, command_line, None, data)
    package = registry.member("inference", spec.member).DISTRIBUTION
    origin["package"], origin["versions"][package] = package, registry.release(package)
    inputs = {
        "spec": json.loads(spec.to_json()),
        "data": str(data),
        "weights": str(weights) if weights else None,
    }
    write_json(partial / ASSIGNMENT, inputs | {"facts": origin, "silent_s": silent_s})
    print(f"{spec.id}\n$ {shlex.join(command_line)}", flush=True)
    seen = job.watch_with_data(
        argv, partial, hidden, data, nodes=spec.nodes, silent_s=silent_s, grace_s=0.0
    )
    code = seen.code
    if code == 0 and not (partial / RECORD).exists():
        print(
            f"{spec.id}: the launcher ended successfully but there is no {RECORD}", file=sys.stderr
        )
        code = 1
    if code:
        return job.report_failure(
            spec.id, folder, partial, code, diagnose(partial, spec.workers, seen)
        )
    record = json.loads((partial / RECORD).read_text(encoding="utf-8"))
    write_json(folder / RECORD, record | {"took_s": time.monotonic() - began})
    for folder_left in (partial, folder / FAILED):
        shutil.rmtree(folder_left, ignore_errors=True)
    return 0


def is_made(record: Path, spec: Mapping[str, Any]) -> bool:
    """Return whether an inference job with these settings left its record after this job was
    requested.
    """
    try:
        new = record.stat().st_mtime > hold.asked_s() or hold.ASKED not in os.environ
        return new and json.loads(record.read_text(encoding="utf-8"))["spec"] == spec
    except (OSError, ValueError, KeyError, TypeError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the record goes")
    parser.add_argument("--spec", required=True, help="the job as InferSpec.to_json wrote it")
    parser.add_argument("--manifest", type=Path, required=True, help="of the pictures")
    parser.add_argument(
        "--trained",
        type=Path,
        nargs="?",
        help="log of the run whose weights are meant; none: initial",
    )
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    environment_modules.check_loaded()
    try:
        spec = InferSpec.from_json(a.spec)
    except ValueError as error:
        sys.exit(f"--spec: {error}")
    trained = a.trained.parent if a.trained else None

    def make() -> int:
        silent_s = load_machine(spec.run.machine).silent_s
        with turn(spec.id, spec.timed):
            return execute(spec, a.folder, a.manifest.parent, trained, a.command, silent_s)

    made = json.loads(a.spec)
    job.run_alone(spec.id, a.folder, a.folder / LOG, lambda: is_made(a.folder / RECORD, made), make)


if __name__ == "__main__":
    main()
