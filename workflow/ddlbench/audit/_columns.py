"""Which rules look at a column of table `runs`, and why none does at the others: docs/audit.md
shows it.

A column that is in neither is one that somebody added: the page says that no rule checks it yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from ddlbench.analysis.tables import TABLES
from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import Rule, all_rules
from ddlbench.core import spec
from ddlbench.core.roles import FOLLOWS

OUTCOME = "what is compared: it may differ; its total, `throughput_images_per_s`, is checked"
MADE_OF = "derived from columns that rules check"
REFUSED = (
    "a record in which it does not fit the others is refused (`records/_sound.py`,"
    " `records/_fitting.py`)"
)
MEMORY = "what is compared: frameworks and loaders may need more or less"
NO_RULE = {
    "status": "only successful runs are checked; failed-runs counts the others",
    "sample": "follows from the model",
    "place": "the order itself; run-order checks `started_s`",
    "planned_place": "the order that was planned",
    "scaling": "which series a run is in",
    "validation_s": OUTCOME,
    "full_train_s": MADE_OF,
    "confirmed": MADE_OF,
    "stopped_after": "of programs; runs that ended after minutes are compared by rate alone",
    "full_energy_j": MADE_OF,
    "data_wait_s": OUTCOME,
    "forward_s": OUTCOME,
    "backward_s": OUTCOME,
    "communication_s": OUTCOME,
    "optimizer_s": OUTCOME,
    "compute_s": OUTCOME,
    "communication_transfer_s": OUTCOME,
    "communication_wait_s": OUTCOME,
    "epoch_start_s": OUTCOME,
    "warm_up_steps": "a part of `cut_steps`",
    "step_p5_s": OUTCOME,
    "step_p95_s": OUTCOME,
    "peak_device_memory_bytes": MEMORY,
    "peak_device_reserved_bytes": MEMORY,
    "device_used_bytes": MEMORY,
    "peak_resident_bytes": MEMORY,
    "loader_resident_bytes": MEMORY,
    "parameters_bytes": MEMORY,
    "gradients_bytes": MEMORY,
    "optimizer_bytes": MEMORY,
    "network_sent_bytes": (
        "what is compared: what frameworks send, and others through the same interface"
    ),
    "network_received_bytes": (
        "what is compared: what frameworks send, and others through the same interface"
    ),
    "cpu_cores": (
        "what is compared: what loaders and frameworks keep busy; others' share is in"
        " `others_cores`"
    ),
    "images_seen": REFUSED,
    "evaluations": REFUSED,
    "pauses_s": "what a program does between steps; it is in no rate",
    "data_before_clock_s": "before the clock; the first steps, which it could help, are warm-up",
    "checkpoint_s": "of runs that were interrupted on purpose; they are in no comparison",
    "lost_steps": "of runs that were interrupted on purpose; they are in no comparison",
    "restart_s": "of runs that were interrupted on purpose; they are in no comparison",
}


def rules_by_column(rules: Iterable[Rule] | None = None) -> dict[str, list[str]]:
    """Return the names of rules by the column of table `runs` that they check; of all rules, or of
    these.
    """
    names: dict[str, list[str]] = {name: [] for name in columns()}
    for rule in all_rules().values() if rules is None else rules:
        needed = [need.removeprefix("runs.") for need in rule.needs if need.startswith("runs.")]
        for name in dict.fromkeys((*needed, *rule.also)):
            names.setdefault(name, []).append(rule.name)
    return names


def columns() -> tuple[str, ...]:
    """Return all columns of table `runs`."""
    return (*spec.COLUMNS, *(column.name for column in TABLES["runs"].columns))


def why_none(column: str) -> str:
    """Return why no rule looks at a column; empty where no reason is declared."""
    if column in NO_RULE:
        return NO_RULE[column]
    if column in COMPARED:
        return "runs that differ in it are not compared"
    if column in CELL:
        return "what one compares, or what repeats have in common"
    if column in spec.ROLES and spec.ROLES[column].kind == FOLLOWS:
        return f"follows from {', '.join(spec.ROLES[column].follows)}"
    return ""


def lines(rules: Iterable[Rule]) -> list[str]:
    """Return the table for people, of these rules."""
    text = ["| column | rules, or why none |", "|---|---|"]
    for name, names in rules_by_column(rules).items():
        cell = ", ".join(names) or why_none(name) or "no rule checks it yet"
        text.append(f"| `{name}` | {cell} |")
    return text
