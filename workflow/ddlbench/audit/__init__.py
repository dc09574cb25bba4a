"""What makes a comparison of runs worth less than it looks.

A rule is a function in a file of `rules/`, by what it is about; `@rule` gives it its severity, what
it needs, what to do and its source. Its name is the rule's name, its docstring is its documentation
(docs/audit.md). It is a pure function over the tables of a study (`analysis/tables.py`). `check.py`
asks all rules, `material.py` reads tables, `_compare.py` has what rules share. `ddlbench audit` is
the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# From what breaks a comparison to what one should know of it.
SEVERITIES = ("error", "warning", "note")
# Tables of a study that the audit reads.
AUDITED = ("runs", "epochs", "not_measured", "failures", "refused", "submissions")
# Sources that many rules have.
SC15 = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644"
TWELVE_WAYS = (
    "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning"
    " workloads"
)
MLCOMMONS = "MLCommons training_rules"


@dataclass(frozen=True)
class Finding:
    """A finding of a rule: about which runs (ids; of numbers over workers, their rows in words),
    and its evidence.

    The evidence is a sentence with the two values that do not go together.
    """

    runs: tuple[str, ...]
    evidence: str


@dataclass(frozen=True)
class Material:
    """The material of an audit: tables by name.

    Any table, and any column, may be missing; a rule says what it needs.

    `runs` (successful runs only; `unsuccessful` has the others), `epochs`, `not_measured`,
    `failures`, `refused` and `submissions` are those of `analysis/tables.py`. `numbers` has one row
    per number over a number of workers (model, framework, loader, workers, global_batch, quantity,
    value, low, high, ...; `row` says what the number is). `further` has the repeats that a study
    made until it was decided (column run). `convergence` holds MLPerf's reference convergence
    points. `neighbours` are the records of all studies in the same folder of results
    (`_neighbours.py`).
    """

    tables: Mapping[str, pd.DataFrame]

    def __getitem__(self, table: str) -> pd.DataFrame:
        return self.tables[table]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Return the successful runs."""
        return self.tables["runs"]

    @cached_property
    def numbers(self) -> pd.DataFrame:
        """Return the numbers over a number of workers."""
        return self.tables["numbers"]


Findings = Iterator[Finding]


@dataclass(frozen=True)
class Rule:
    """A rule: `check` yields what it finds, and nothing in clean tables.

    `needs` names what it cannot check without, each as `<table>.<column>`; rows with a null there
    are passed over. `also` are columns of table `runs` that it looks at where they are there.
    `source` says who asks for the rule, or where the fault was seen; `about` is its documentation.
    `example` is a fault that it catches: values of one run of table `runs`, by column.
    """

    name: str
    severity: str
    needs: tuple[str, ...]
    what_to_do: str
    source: str
    about: str
    check: Callable[[Material], Findings]
    example: Mapping[str, Any] | None = None
    also: tuple[str, ...] = ()


def rule(
    severity: str,
    needs: str,
    what_to_do: str,
    source: str,
    example: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
) -> Callable[[Callable[[Material], Findings]], Rule]:
    """Make a rule of a function: its name with hyphens is the rule's, its docstring the
    documentation.

    `severity` is one of SEVERITIES; `needs` are separated by white space.
    """

    def decorator(check: Callable[[Material], Findings]) -> Rule:
        name, about = check.__name__.replace("_", "-"), cleandoc(check.__doc__ or "")
        return Rule(
            name,
            severity,
            tuple(needs.split()),
            what_to_do,
            source,
            about,
            check,
            example,
            tuple(also),
        )

    return decorator


@cache
def all_rules() -> dict[str, Rule]:
    """Return all rules of the files in `rules/`, by name and in its order.

    Raises ValueError where two have one name.
    """
    found: list[Rule] = []
    for file in sorted((Path(__file__).parent / "rules").glob("[!_]*.py")):
        module = import_module(f"{__name__}.rules.{file.stem}")
        found += [value for value in vars(module).values() if isinstance(value, Rule)]
    named = {rule.name: rule for rule in sorted(found, key=lambda rule: rule.name)}
    if len(named) < len(found):
        raise ValueError(
            f"audit/rules: {len(found) - len(named)} rules have the name of another; give each"
            " its own"
        )
    return named
