"""Framework, loader, form, workers, batch and schedule decided as one value, and all answers with
that choice.

Each question is asked with what the others take, until nothing changes: sides are judged on the
side of the workers taken where a lead turns round, workers with the sides taken, schedules at the
batch taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.price import FREE, Tariff
from ddlbench.answers import Answer, Certainty, Choice, Given, Goal
from ddlbench.answers.questions import members
from ddlbench.audit import SEVERITIES, finding_rows
from ddlbench.core.registry import OWN

ROUNDS = 4  # a choice that still changes then is kept as it is
# The questions that a study asks by listing several values of a key, and those of programs.
ASKED = {
    "framework": "`frameworks: [ddp, horovod]`",
    "loader": "`loaders: [native, dali-cpu]`",
    "workers": "`workers: [1, 2]`",
    "batch": "`global_batch: [32, 256]` with epochs enough to learn",
}
OF_PROGRAMS = {
    "framework": "`settings: {framework: [ddp, fsdp]}` in the program's file",
    "workers": ASKED["workers"],
    "batch": "`global_batch: [32, 256]`",
}
Errors = tuple[tuple[str, tuple[Mapping[str, str], ...]], ...]


@dataclass(frozen=True)
class First:
    """The first screen: the choice, the answers, what the study does not ask, what the audit says
    of them.
    """

    choice: Choice
    answers: tuple[Answer, ...]
    not_asked: tuple[tuple[str, str], ...] = ()  # question, and the keys that ask it
    errors: Errors = ()
    moved: bool = False  # the machine's speed moved while the answers' runs were made
    warnings: int = 0  # findings of the audit on runs of the answers
    looks: int = 1  # how often the study may be looked at
    looked: int = 1  # which of these looks this is

    @property
    def sure(self) -> int:
        """Return how many of the answers are certain; that two sides do not differ is a certain
        answer, too.
        """
        return sum(answer.certainty in (Certainty.SURE, Certainty.TIE) for answer in self.answers)


def choose(given: Given) -> tuple[Choice, dict[str, Answer]]:
    """Return what to take, and the answers by question."""
    questions, choice, found = members(), Choice(), dict[str, Answer | None]()
    deciding = {name: one for name, one in questions.items() if one.DECIDES}
    for _ in range(ROUNDS):
        before = choice
        for name, question in deciding.items():
            found[name] = question.answer(given, choice)
            choice = choice.with_(found[name], question.DECIDES)
        if choice == before:
            break
    for name, question in questions.items():
        if name not in deciding:
            found[name] = question.answer(given, choice)
    return choice, {name: answer for name in questions if (answer := found[name]) is not None}


def open_runs(
    tables: Mapping[str, pd.DataFrame],
    *,
    tariff: Tariff = FREE,
    goal: str = Goal.BALANCED,
    looks: int = 1,
) -> dict[str, tuple[str, ...]]:
    """Return by question the runs of the settings of which more repeats might change what is
    taken.
    """
    _, found = choose(Given(tables, tariff, Goal(goal), looks=looks))
    return {name: answer.open for name, answer in found.items() if members()[name].DECIDES}


def first(
    tables: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    *,
    tariff: Tariff = FREE,
    goal: str = Goal.BALANCED,
    ours: bool = True,
    sample: str = "images",
    looks: int = 1,
    looked: int = 1,
) -> First:
    """Return the first screen of a study, from its tables and its audit's findings, at the look
    `looked` of so many.
    """
    if not ours:
        tables = {**tables} | _by_submitter(tables)
    broken = {run: tuple(rules) for run, rules in rules_by_run(audit, SEVERITIES[0]).items()}
    warned = frozenset(rules_by_run(audit, SEVERITIES[1]))
    given = Given(tables, tariff, Goal(goal), ours, sample, broken, warned, looks)
    choice, found = choose(given)
    answers = tuple(_judged(given, answer) for answer in found.values())
    shown = {run for answer in answers for run in answer.runs}
    runs = given.runs
    named = OF_PROGRAMS if len(runs) and (runs["loader"] == OWN).all() else ASKED
    missing = tuple((question, key) for question, key in named.items() if question not in found)
    of_shown = [row for row in audit if shown & {*row["runs"].split("; ")}]
    return First(
        choice,
        answers,
        missing if len(runs) else (),
        _errors(audit),
        any(row["rule"] == "drift" for row in of_shown),
        sum(row["severity"] == SEVERITIES[1] for row in of_shown),
        looks,
        looked,
    )


def _judged(given: Given, answer: Answer) -> Answer:
    """Return the answer with the audit's findings on its runs.

    An answer that rests on an unproved reading is never certain.
    """
    unfair = sorted({rule for run in answer.runs for rule in given.broken.get(run, ())})
    unproved = tuple(run for run in answer.runs if run in given.unproved)
    certain = answer.certainty in (Certainty.SURE, Certainty.TIE)
    return replace(
        answer,
        certainty=Certainty.UNPROVED if unproved and certain else answer.certainty,
        unfair=tuple(unfair),
        warned=tuple(run for run in answer.runs if run in given.warned),
        unproved=unproved,
    )


def _by_submitter(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return records of others, machine `NVIDIA dgxa100_mxnet` called NVIDIA where it is the only
    one of NVIDIA's.
    """
    runs, reached = together.usable(tables["runs"]), tables.get("reached", pd.DataFrame())
    machines = sorted({*runs["machine"]})
    whose = [machine.split(" ")[0] for machine in machines]
    named = {
        machine: by for machine, by in zip(machines, whose, strict=True) if whose.count(by) == 1
    }
    some = {"runs": runs, "reached": reached}
    return {
        name: table.assign(machine=table["machine"].replace(named)) if len(table) else table
        for name, table in some.items()
    }


def _errors(audit: Sequence[Mapping[str, str]]) -> Errors:
    errors: dict[str, list[Mapping[str, str]]] = {}
    for row in finding_rows.worst(audit, SEVERITIES[0]):
        errors.setdefault(row["rule"], []).append(row)
    return tuple((rule, tuple(rows)) for rule, rows in errors.items())


def rules_by_run(audit: Sequence[Mapping[str, str]], severity: str) -> dict[str, list[str]]:
    """Return rules with a finding of this severity or a worse one, by run (id), each once."""
    rules: dict[str, list[str]] = {}
    for row in finding_rows.worst(audit, severity):
        for run in filter(None, row["runs"].split("; ")):
            if row["rule"] not in rules.setdefault(run, []):
                rules[run].append(row["rule"])
    return rules
