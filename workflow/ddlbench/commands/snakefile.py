"""What the Snakefile asks of files, of the audit's findings and of how jobs' shells begin. Checks of a
call are in `checks.py`, its start in `start.py`, what a rule asks of each job in `job_rule.py`, the
next round of repeats in `next_round.py`.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

from ddlbench.analysis.published_operations import PUBLISHED
from ddlbench.audit import SEVERITIES, finding_rows
from ddlbench.core import kinds, registry
from ddlbench.patches import (
    ReleaseError,
)
from ddlbench.plan.values import Plan
from ddlbench.settings import config as settings
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine

CONVERGENCE = os.path.relpath(settings.CONVERGENCE)  # as Snakemake wants paths
OPERATIONS = os.path.relpath(PUBLISHED)
STARTED = time.time()


def own_runs(arguments: Sequence[str]) -> set[str] | None:
    """Return the runs (ids) that this Snakemake makes within a job; None in the user's own
    Snakemake, and in a job that makes anything else. All nodes of a job wait while it reads of
    other runs, and it makes use of none.

    `arguments` is the command line, in which jobs are `--target-jobs train:run=<id>`: Snakemake
    tells a Snakefile only later.
    """
    if "--target-jobs" not in arguments:
        return None
    after = arguments[arguments.index("--target-jobs") + 1 :]
    targets = [
        target.partition(":") for target in takewhile(lambda word: not word.startswith("--"), after)
    ]
    begins = {
        rule: f"{kinds.of_rule(rule).wildcard}=" for rule in kinds.rules() if kinds.trains(rule)
    }
    if not targets or not all(
        rule in begins and job.startswith(begins[rule]) for rule, _, job in targets
    ):
        return None
    return {job.removeprefix(begins[rule]) for rule, _, job in targets}


def written(plan: Plan) -> list[str]:
    """Return the files of the study and of the machine."""
    machine = settings.CONFIG / "machines" / f"{plan.machine.name}.yaml"
    return [os.path.relpath(path) for path in (plan.study.path, machine)]


def said(plan: Plan) -> str:
    """Return a digest of the contents of the study and machine files, without comments."""
    text = json.dumps([settings.read_yaml(Path(path)) for path in written(plan)], default=str)
    return sha256(text.encode()).hexdigest()[:16]


def published(plot: str) -> list[str]:
    """Return the files of published numbers that a figure's tables have beside ours."""
    return [OPERATIONS] if "operations" in registry.constant("figures", plot, "TABLES") else []


def audited(tables: Path) -> list[str]:
    """Return what this call's audit found, for people: errors, and rules that warn; nothing if it
    was made before.
    """
    table = tables / "audit.csv"
    if not table.exists() or table.stat().st_mtime < STARTED:
        return []
    rows = finding_rows.read(table)
    errors, warnings = ([row for row in rows if row["severity"] == name] for name in SEVERITIES[:2])
    warned = ", ".join(dict.fromkeys(row["rule"] for row in warnings))
    lines = ["", f"audit: {finding_rows.summary(rows)}", *finding_rows.lines(errors)[1:]]
    lines += [f"warnings: {warned}"] * bool(warned)
    return [*lines, "all findings: ddlbench audit; docs/audit.md explains the rules"]


@contextmanager
def complaints() -> Iterator[None]:
    """Turn a ConfigError into the end of this process, with its line.

    Snakemake releases its lock all the same. Any other exception Snakemake would print with the
    places in the code that it came from.
    """
    try:
        yield
    except (ConfigError, ReleaseError) as error:
        sys.exit(str(error))


def shell_prefix(machine: Machine, folder: Path) -> str:
    """Return how every job's shell begins: it runs the package in this `folder`, with the Python
    that runs Snakemake.

    Snakemake loads environment modules before it, so that a module's own Python stands behind this
    one. PYTHONPATH names this folder, though the package is installed: clones may share an
    environment, whose package is installed from one of them, and where another workflow uses this
    one as a module the package lies in Snakemake's cache. PYTHONPATH names nothing else: a module's
    bundle for another Python would come before this environment's packages.

    `python` is a function: of a process that is killed the shell prints its line as it stands here,
    into the job's log, and not the whole command with all settings on the terminal.
    """
    return (
        f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
        f"PYTHONPATH={shlex.quote(str(folder))} "
        f"{environment_modules.export(machine.name, machine.modules)}; "
        'python() if true; then command python "$@"; fi; '  # braces are Snakemake's
    )
