"""What the Snakefile asks before it reads its rules, and what it prints at its end.

What is settled once, before any job starts, is in `start.py`; how each run becomes a job in `training.py`.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.audit import SEVERITIES, _findings
from ddlbench.core import kinds, layout
from ddlbench.mends import ReleaseError
from ddlbench.plan import runs
from ddlbench.settings import config as settings
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError, names_in, one_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study

CONVERGENCE = os.path.relpath(settings.CONVERGENCE)  # as Snakemake wants paths
# What answers a question and makes nothing that others need (`main.py`).
COMMANDS = ("audit", "compare", "failures", "nodes", "partial", "plan", "status", "verify")
STARTED = time.time()
F = TypeVar("F", bound=Callable[..., Any])


def check_commands(targets: Collection[str]) -> None:
    """Exits with one line about what is no target any more. `targets` is the whole command line."""
    for name in sorted({*COMMANDS} & {*targets}):
        sys.exit(f"{name}: is a command of its own now: ddlbench {name}, with the same --profile and --config")


def check_folder(here: Path) -> None:
    """Exit with one line where this user may not write Snakemake's notes; Snakemake itself ends in a traceback."""
    notes = here / ".snakemake"
    for folder in (notes, notes / "locks") if notes.exists() else (here,):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            sys.exit(
                f"{folder}: not writable by this user, and Snakemake keeps its notes there. To share a project, its "
                "owner lets a group write (chmod -R g+rwXs, umask 002); or work in a clone of your own"
            )


def check_targets(targets: Collection[str], plan: runs.Plan) -> None:
    """Exits with one line about a file that is asked for and that is of another study or machine, or might be.

    `targets` is the whole command line: Snakemake tells a Snakefile which they are only when it has read it.
    """
    study, machine, figures = plan.study.name, plan.machine.name, [figure.name for figure in plan.study.figures]
    studies = names_in(plan.study.path.parent, ".yaml")
    for one in targets:
        results, of, on, folder, name, *_ = (*Path(os.path.normpath(one)).parts, *5 * [""])
        if results != layout.RESULTS.name:
            continue
        if of in studies and on and (of, on) != (study, machine):
            if on not in names_in(settings.CONFIG / "machines", ".yaml"):
                sys.exit(f"{one}: results of a study lie under its machine: results/{of}/<machine>/...")
            asked = f"ask with --config study={of} machine={on}"
            sys.exit(f"{one}: is of study {of} on {on}, and the study is {study} on {machine}; {asked}")
        if folder == "figures" and of == study and not any(name.startswith(f"{figure}.") for figure in figures):
            sys.exit(f"{one}: study {study} has no such figure; {one_of(figures, name.split('.')[0])}")
        for kind in kinds.beside():
            if of == kind.FOLDER and on not in plan.beside:
                asked = f"{''.join(kind.NOUN)} of study {study} on machine {machine}"
                sys.exit(f"{on}: is no {asked}, or not any more")


def left_over(plan: runs.Plan) -> list[str]:
    """A line about each figure there that the study does not name, or not any more; and one about release 0.1's."""
    study, folder = plan.study, Path(layout.figure(plan.home, ""))
    old = [str(path) for name in ("tables", "figures", "index.html") if (path := folder.parents[1] / name).exists()]
    named = tuple(f"{figure.name}." for figure in study.figures)
    others = sorted(path for path in folder.glob("[!.]*.csv") if not path.name.startswith(named))
    said = f"of an earlier release; made anew, of the same records, in {folder.parent}; remove or rename the old"
    return [f"{', '.join(old)}: {said}"] * bool(old) + [
        f"{path}: study {study.name} has no such figure (any more); remove {path.stem}.*, or name it in {study.path}"
        for path in others
    ]


def written(study: Study, machine: Machine) -> list[str]:
    """The files that people wrote about them."""
    return [os.path.relpath(path) for path in (study.path, settings.CONFIG / "machines" / f"{machine.name}.yaml")]


def audited(tables: Path) -> list[str]:
    """What this call's audit found, for people: errors, and rules that warn; nothing if it was made before."""
    table = tables / "audit.csv"
    if not table.exists() or table.stat().st_mtime < STARTED:
        return []
    rows = _findings.read(table)
    errors, warnings = ([row for row in rows if row["severity"] == one] for one in SEVERITIES[:2])
    warned = ", ".join(dict.fromkeys(row["rule"] for row in warnings))
    said = ["", f"audit: {_findings.summary(rows)}", *_findings.lines(errors)[1:]]
    said += [f"warnings: {warned}"] * bool(warned)
    return [*said, "all findings: ddlbench audit; docs/audit.md explains the rules"]


@contextmanager
def complaints() -> Iterator[None]:
    """Turns a ConfigError into the end of this process, with its line. Snakemake releases its lock all the same.

    Any other exception Snakemake would print with the places in the code that it came from.
    """
    try:
        yield
    except (ConfigError, ReleaseError) as error:
        sys.exit(str(error))


def shell_prefix(machine: Machine, folder: Path) -> str:
    """What every job's shell begins with: it runs the package in this `folder`, with the Python that runs Snakemake.

    Snakemake loads environment modules before it, so that a module's own Python stands behind this one. PYTHONPATH
    names this folder, though the package is installed: clones may share an environment, whose package is installed
    from one of them, and where another workflow uses this one as a module the package lies in Snakemake's cache.
    It names nothing else: a module's bundle for another Python would come before this environment's packages.
    """
    return (
        f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
        f"PYTHONPATH={shlex.quote(str(folder))} "
        f"{environment_modules.export(machine.name, machine.modules)}; "
    )
