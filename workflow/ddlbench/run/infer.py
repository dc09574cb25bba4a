"""One job of inference: start its ranks with the given command, and say what they need to know. Rule `infer` calls it.

    python -m ddlbench.run.infer --folder F --spec JSON --manifest M [--trained LOG] -- <launcher and its arguments>

The ranks (`ddlbench.inference`) write the record, `inference.json`, when all is done: it is whole, or not there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ddlbench import registry
from ddlbench.data.readers import reading
from ddlbench.files import write_json
from ddlbench.inference import InferSpec
from ddlbench.inference._record import ASSIGNMENT, RECORD
from ddlbench.record import WEIGHTS
from ddlbench.run.environment import reveal
from ddlbench.run.facts import facts
from ddlbench.run.watch import die_with_us
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError


def execute(spec: InferSpec, folder: Path, data: Path, trained: Path | None, command: list[str]) -> int:
    """Run `command` to its end. Returns 0 if it left a record, else another code.

    `trained` is the folder of the run whose weights are meant. Raises ConfigError if they are missing, or if a hidden
    value of the command cannot be found.
    """
    weights = trained / WEIGHTS if trained else None
    if weights and not weights.exists():
        raise ConfigError(f"{weights}: is missing, the run was made without it: remove {trained} and make it again")
    shown = [*command, str(folder)]
    argv, hidden = reveal(shown, spec.run.machine)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    told = facts(spec.run, shown, None, data)
    package = registry.member("inference", spec.member).DISTRIBUTION
    told["package"], told["versions"][package] = package, _version(package)
    settings = json.loads(spec.to_json())
    given = {"spec": settings, "data": str(data), "weights": str(weights) if weights else None, "facts": told}
    write_json(folder / ASSIGNMENT, given)
    print(f"{spec.id}\n$ {shlex.join(shown)}", flush=True)
    with reading(data, spec.id):
        code = subprocess.run(argv, env=os.environ | hidden, preexec_fn=die_with_us).returncode
    if code == 0 and not (folder / RECORD).exists():
        print(f"{spec.id}: the launcher ended well but there is no {RECORD}", file=sys.stderr)
        return 1
    (folder / ASSIGNMENT).unlink(missing_ok=True)
    return code


def _version(package: str) -> str | None:
    """Its version; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the record goes")
    parser.add_argument("--spec", required=True, help="the job as InferSpec.to_json wrote it")
    parser.add_argument("--manifest", type=Path, required=True, help="of the pictures")
    parser.add_argument("--trained", type=Path, nargs="?", help="log of the run whose weights are meant; none: initial")
    parser.add_argument("command", nargs="+", help="after --: the launcher and its arguments")
    a = parser.parse_args()
    environment_modules.check()
    try:
        spec = InferSpec.from_json(a.spec)
    except ValueError as error:
        sys.exit(f"--spec: {error}")
    try:
        sys.exit(execute(spec, a.folder, a.manifest.parent, a.trained.parent if a.trained else None, a.command))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
