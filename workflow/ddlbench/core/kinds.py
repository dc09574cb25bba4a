"""Which kinds of jobs there are: the members of `plan/kinds/`, whose `__init__.py` says what each
can be asked.

Whatever is the same for all kinds asks here, and names none of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ddlbench.core import layout, registry
from ddlbench.core.formatting import count_of
from ddlbench.core.spec import RunSpec

RUNS = "runs"  # the table of jobs that train


@dataclass(frozen=True)
class JobRule:
    """A rule of Snakemake whose jobs are billed, watched and listed: what is the same for all kinds
    that it makes.
    """

    name: str
    wildcard: str  # a job's id
    folder: str  # in `results/`, a folder in it per job
    outputs: tuple[
        str, ...
    ]  # there if and only if a job has ended well; the first says what it is of
    log: str  # what its processes print
    # The study's table of them, and its key that names them: RUNS if its jobs train, else a member
    # of `analysis/sheets/` with `of_job`.
    table: str
    noun: tuple[str, str]  # what people call a job, in two parts: the first gets the plural

    @property
    def trains(self) -> bool:
        """Tell whether its jobs are runs; the jobs of other rules use trained models."""
        return self.table == RUNS


def every() -> list[Any]:
    """List all job kinds; those whose jobs train come first."""
    kinds = [registry.member("kinds", name) for name in registry.members("kinds")]
    return sorted(kinds, key=lambda kind: not kind.RULE.trains)


@cache
def job_rules() -> tuple[JobRule, ...]:
    """Return the rules of all kinds, each once; that of runs is the first."""
    return tuple(dict.fromkeys(kind.RULE for kind in every()))


def non_training() -> list[JobRule]:
    """List the rules of job kinds that use trained models but do not train."""
    return [rule for rule in job_rules() if not rule.trains]


@cache
def rules() -> tuple[str, ...]:
    """Return the names of these rules."""
    return tuple(rule.name for rule in job_rules())


def of_rule(name: str) -> JobRule:
    """Return the rule of this name."""
    return next(rule for rule in job_rules() if rule.name == name)


def uses_built_in_loop(spec: RunSpec) -> bool:
    """Tell whether the training loop of ddlbench makes the steps of a run; False for a user's
    program, which brings its own.
    """
    return bool(registry.member("kinds", spec.kind).BUILT_IN_LOOP)


def trains(rule: str) -> bool:
    """Tell whether the jobs of the rule of this name are runs."""
    return of_rule(rule).trains


def folder(rule: str, job: str, results: Path = layout.RESULTS) -> Path:
    """Return the folder of a job of this rule."""
    return Path(results, of_rule(rule).folder, job)


def of_folder(folder: Path) -> JobRule:
    """Return the rule whose jobs have their folders beside this one; for any other folder, that of
    runs.
    """
    return next((rule for rule in job_rules() if folder.parent.name == rule.folder), job_rules()[0])


def counted(of_rules: Iterable[str], adjective: str = "") -> str:
    """Format the number of jobs: `31 runs`, `2 runs and 10 jobs of inference`, `1 failed run`."""
    given = [*of_rules]
    words = []
    for rule in rules():
        (noun, rest), count = of_rule(rule).noun, given.count(rule)
        words += [f"{count_of(count, adjective + noun)}{rest}"] * (
            count > 0 or (trains(rule) and not given)
        )
    return " and ".join(words)
