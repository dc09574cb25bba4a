"""What is checked of a call of Snakemake before it does anything: targets that are not there any more,
a folder that cannot be written, files of another study.
"""

import os
import sys
from collections.abc import Collection
from pathlib import Path

from ddlbench.core import gone, kinds, layout
from ddlbench.plan.values import Plan
from ddlbench.settings import config as settings
from ddlbench.settings.config import names_in, one_of


def check_gone(targets: Collection[str]) -> None:
    """Exit with one line about targets that no longer exist.

    `targets` is the complete command line.
    """
    for name in targets:
        if name in gone.TARGETS:
            sys.exit(f"{name}: {gone.TARGETS[name]}")


def check_folder(here: Path) -> None:
    """Exit with one line where Snakemake's notes cannot be written; Snakemake itself ends in a
    traceback.
    """
    disk = os.statvfs(here)
    if disk.f_bavail == 0 < disk.f_blocks:  # some file systems count nothing
        sys.exit(
            f"{here}: its disk is full, and Snakemake keeps its state there; free disk space, and"
            " start again"
        )
    notes = here / ".snakemake"
    for folder in (notes, notes / "locks") if notes.exists() else (here,):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            sys.exit(
                f"{folder}: not writable by this user, and Snakemake keeps its state there. To"
                " share a project, its owner lets a group write (chmod -R g+rwXs, umask 002); or"
                " work in a clone of your own"
            )


def check_targets(targets: Collection[str], plan: Plan) -> None:
    """Exit with one line about a requested file that belongs, or may belong, to another study or
    machine. `targets` is the whole command line: Snakemake tells a Snakefile which they are only
    when it has read it.
    """
    study, machine, figures = (
        plan.study.name,
        plan.machine.name,
        [figure.name for figure in plan.study.figures],
    )
    studies = names_in(plan.study.path.parent, ".yaml")
    for target in targets:
        results, named, place, folder, name, *_ = (*Path(os.path.normpath(target)).parts, *5 * [""])
        if results != layout.RESULTS.name:
            continue
        if named in studies and place and (named, place) != (study, machine):
            if place not in names_in(settings.CONFIG / "machines", ".yaml"):
                sys.exit(
                    f"{target}: results of a study lie under its machine:"
                    f" results/{named}/<machine>/..."
                )
            asked = f"ask with --config study={named} machine={place}"
            sys.exit(
                f"{target}: is of study {named} on {place}, and the study is {study} on {machine};"
                f" {asked}"
            )
        if (
            folder == "figures"
            and named == study
            and not any(name.startswith(f"{figure}.") for figure in figures)
        ):
            sys.exit(
                f"{target}: study {study} has no such figure; {one_of(figures, name.split('.')[0])}"
            )
        for rule in kinds.non_training():
            if named == rule.folder and place not in plan.non_training:
                asked = f"{''.join(rule.noun)} of study {study} on machine {machine}"
                sys.exit(f"{place}: is no {asked}; was the study edited?")


def left_over(plan: Plan) -> list[str]:
    """Return a line about each existing figure that the study does not name (any more)."""
    study, folder = plan.study, Path(layout.figure(plan.home, ""))
    named = tuple(f"{figure.name}." for figure in study.figures)
    drawn = [path for path in folder.glob("[!.]*.csv") if not path.name.endswith(".runs.csv")]
    others = sorted(path for path in drawn if not path.name.startswith(named))
    return [
        f"{path}: study {study.name} has no such figure (any more); remove {path.stem}.*, or name"
        f" it in {study.path}"
        for path in others
    ]
