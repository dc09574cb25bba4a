"""Are a machine's environment modules loaded? Jobs ask before they do anything else.

Nothing else would notice: a job's shell goes on when `module load` fails, or when there is no
`module` command at all, and the software is then whatever lies on the path. The Snakefile tells
every job what its machine asks for.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping

ASKED = "DDLBENCH_MODULES"  # what the job was promised, separated by spaces
MACHINE = "DDLBENCH_MACHINE"
KEPT = LOADED, OTHER_NAMES = "LOADEDMODULES", "__MODULES_LMALTNAME"  # what `module` leaves


def export(machine: str, modules: Iterable[str]) -> str:
    """Return shell words that tell a job its modules: NAME=value NAME=value; empty if the machine
    has no modules.
    """
    asked = " ".join(modules)
    return f"{MACHINE}={shlex.quote(machine)} {ASKED}={shlex.quote(asked)}" if asked else ""


def missing(modules: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Return the modules that are not loaded.

    Lmod and Environment Modules both keep full names in LOADED: `GCC` may have loaded GCC/13.3.0,
    and `CUDA/12` CUDA/12.6. Environment Modules keeps the other names of a module (its aliases) in
    OTHER_NAMES.
    """
    names = environment.get(LOADED, "").split(":")
    for others in environment.get(OTHER_NAMES, "").split(":"):
        names += [name.rpartition("|")[2] for name in others.split("&")]
    return [
        m
        for m in modules
        if not any(name == m or name.startswith((f"{m}/", f"{m}.")) for name in names)
    ]


def complaint(machine: str, modules: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Return one line about modules that are not loaded, with what to do; None if all are."""
    lacking = missing(modules, environment)
    if not lacking:
        return None
    where = f"config/machines/{machine}.yaml: modules: {', '.join(lacking)}: not loaded in this job"
    look = "; ".join(f"module spider {name}" for name in lacking)
    if environment.get(LOADED):
        return f"{where}; see what there is with: {look}"
    return (
        f"{where}, and no other module is: its shell must know `module`, and Snakemake loads them only"
        " with --software-deployment-method env-modules, which the cluster profiles have; Lmod"
        f" loads none if it lacks one: {look}"
    )


def check_loaded() -> None:
    """Exit with one line if this job lacks a module that its machine requires."""
    wrong = complaint(os.environ.get(MACHINE, "?"), os.environ.get(ASKED, "").split(), os.environ)
    if wrong:
        sys.exit(wrong)
