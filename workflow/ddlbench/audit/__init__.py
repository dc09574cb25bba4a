"""One file per rule of the audit: what makes a comparison of runs, or a published number, worth less than it looks.

A file's name is the rule's name; its docstring is its documentation (docs/audit.md). A rule is a pure function over
tables: of a study (`analysis/tables.py`), or as somebody published them. `_audit.py` asks all rules, `_material.py`
reads tables, `_compare.py` has what rules share. `python -m ddlbench.audit` is the way in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

# From what breaks a comparison to what one should know of it.
SEVERITIES = ("error", "warning", "note")
# Tables of a study that the audit reads.
AUDITED = ("runs", "epochs", "kernels", "not_measured", "failures", "refused", "submissions")


@dataclass(frozen=True)
class Finding:
    """What a rule has to say: about which runs (ids; of a published table, its rows in words), and its evidence.

    The evidence is a sentence with the two values that do not go together.
    """

    runs: tuple[str, ...]
    evidence: str


@dataclass(frozen=True)
class Material:
    """What is audited: tables by name. Any table, and any column, may be missing; a rule says what it needs.

    Of a study: `runs` (successful runs only), `epochs`, `not_measured`, `failures`, `refused`, as in
    `analysis/tables.py`. Of studies and of publications alike: `numbers`, one row per number over a number of workers
    (columns of a file in `config/references`: model, framework, loader, workers, global_batch, quantity, relation,
    value, ...; `row` says what the number is), and `shares`, rows of measured shares (`<name>_percent`).
    `convergence` holds MLPerf's reference convergence points, `claims` what sources say (`analysis/claims.py`), and
    `verdicts` what a study's runs say to it.
    """

    tables: Mapping[str, pd.DataFrame]

    def __getitem__(self, table: str) -> pd.DataFrame:
        return self.tables[table]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The successful runs."""
        return self.tables["runs"]


class Rule(Protocol):
    """One file of this room. Its docstring is its documentation."""

    SEVERITY: str  # one of SEVERITIES
    NEEDS: tuple[str, ...]  # `<table>.<column>`: what it cannot check without
    WHAT_TO_DO: str
    SOURCE: str  # who asks for it, or where the fault was seen

    def check(self, material: Material) -> Iterator[Finding]:
        """What it finds; nothing in clean tables. Rows with a null in a column of NEEDS are passed over."""
