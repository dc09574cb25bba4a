"""Is the software here that runs need? Asked before anything starts, on machines without environment modules."""

from collections.abc import Sequence
from pathlib import Path

from ddlbench.core import layout, registry
from ddlbench.core.spec import RunSpec
from ddlbench.plan.runs import Plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine


def missing_packages(specs: Sequence[RunSpec], machine: Machine) -> list[str]:
    """What the runs import that this Python lacks, one line each: by name, with what installs it.

    Empty on a machine whose software comes from modules or a container: only a job there can tell.
    """
    if machine.modules or machine.container:
        return []
    members = {("frameworks", s.adapter) for s in specs} | {("loaders", s.loader) for s in specs}
    lines = []
    for room, name in sorted(members):
        needs = registry.member(room, name)
        if needs.PACKAGE is not None and not registry.importable(needs.PACKAGE):
            lines.append(
                f"{room[:-1]} {name} is not installed (no Python package {needs.PACKAGE}); "
                f"install it with: {needs.INSTALL}"
            )
    return lines


def check(plan: Plan, results: Path) -> None:
    """Raises ConfigError if a run without a record needs what is not installed here."""
    todo = [
        planned.spec for run, planned in plan.runs.items() if not Path(layout.run_log(run, results=results)).exists()
    ]
    missing = missing_packages(todo, plan.machine)
    if missing:
        raise ConfigError(f"{plan.study.path}: {'; '.join(missing)}; or leave it out of the study")
