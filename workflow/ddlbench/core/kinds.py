"""Which kinds of jobs there are: the members of `plan/kinds/`, whose `__init__.py` says what each can be asked.

Whatever is the same for all kinds asks here, and names none of them.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ddlbench.core import layout, registry
from ddlbench.core.plural import count_of
from ddlbench.core.spec import RunSpec

RUNS = "runs"  # the table that kinds fill whose jobs train


def every() -> list[Any]:
    """All kinds; those whose jobs train come first."""
    kinds = [registry.member("kinds", name) for name in registry.members("kinds")]
    return sorted(kinds, key=lambda kind: bool(kind.TABLE != RUNS))


def beside() -> list[Any]:
    """Those whose jobs do not train, but ask something of runs."""
    return [kind for kind in every() if kind.TABLE != RUNS]


@cache
def rules() -> tuple[str, ...]:
    """The rules whose jobs are billed, watched and listed."""
    return tuple(dict.fromkeys(kind.RULE for kind in every()))


def of_rule(rule: str) -> Any:
    """A kind whose jobs this rule makes. Kinds that share a rule share all names; `Job.kind` is a job's own."""
    return next(kind for kind in every() if rule == kind.RULE)


def is_ours(spec: RunSpec) -> bool:
    """Whether our own loop makes the steps of a run."""
    return bool(registry.member("kinds", spec.kind).OURS)


def trains(rule: str) -> bool:
    """Whether the jobs of a rule are runs; others ask something of runs."""
    return bool(of_rule(rule).TABLE == RUNS)


def folder(rule: str, job: str, results: Path = layout.RESULTS) -> Path:
    """Where a job of this rule leaves what it leaves."""
    return Path(results, of_rule(rule).FOLDER, job)


def of_folder(folder: Path) -> Any:
    """The kind that a job's folder is of; any folder is a run's that is not among those of another kind."""
    return next((kind for kind in every() if folder.parent.name == kind.FOLDER), every()[0])


def counted(of_rules: Iterable[str], which: str = "") -> str:
    """How many jobs: `31 runs`, `2 runs and 10 jobs of inference`, `1 failed run`."""
    given = [*of_rules]
    words = []
    for rule in rules():
        (noun, rest), count = of_rule(rule).NOUN, given.count(rule)
        words += [f"{count_of(count, which + noun)}{rest}"] * (count > 0 or (trains(rule) and not given))
    return " and ".join(words)
