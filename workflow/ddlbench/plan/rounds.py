"""Repeats until decided: what each look at a study says, and which runs the next round makes.

A study with `repeats: {until: decided, ...}` is looked at when all its runs have so many repeats:
at most four times, evenly from `at_least` to `at_most`. At each look the answers of the first
screen are asked, and those settings get repeats up to the next look whose verdict is open and could
change what to take (`answers.Answer.open`). Verdicts are stricter by the number of looks
(`over_settings.LOOKS`), so that looking often makes no more of them false.

`replay` tells all looks again from the records of the runs: nothing is remembered but what they
say. Rule `rounds` writes it down when all else of a round is made; from then on the plan has the
runs of the next round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ddlbench.core.files import write_json
from ddlbench.core.formatting import amount, count_of, listed
from ddlbench.core.spec import id_of_repeat
from ddlbench.plan.values import Plan
from ddlbench.settings.study_keys import Until

MOST_LOOKS = 4

Settings = Mapping[str, Mapping[int, str]]  # the runs (ids) of each setting by their repeat
Ask = Callable[[Collection[str]], Mapping[str, Collection[str]]]


class Why(StrEnum):
    """The reason for what follows from a look."""

    OPEN = "open"  # there is a further round
    DECIDED = "decided"
    AT_MOST = "at_most"  # what is open has all the repeats that it may have
    BUDGET = "gpu_hours"  # the next round would pass it


@dataclass(frozen=True)
class Look:
    """A look at a study: what was seen when settings that were open had so many repeats.

    `runs` were there, which took `gpu_hours`; `open` are the questions that more repeats could
    change, `more` the runs (ids) of the next round.
    """

    repeats: int
    runs: int
    gpu_hours: float
    why: Why
    open: tuple[str, ...] = ()
    more: tuple[str, ...] = field(default=())


def looks(until: Until) -> tuple[int, ...]:
    """Return after how many repeats the study is looked at."""
    first, last = until.at_least, until.at_most
    count = min(MOST_LOOKS, last - first + 1)
    return tuple(round(first + (last - first) * k / (count - 1)) for k in range(count))


def looked(plan: Plan) -> int:
    """Return which look the plan's runs are for, counted from 1; 0 if the study makes a fixed
    number of repeats.
    """
    if plan.study.until is None:
        return 0
    most = max((repeat for runs in runs_by_setting(plan).values() for repeat in runs), default=0)
    return max(1, sum(repeats <= most for repeats in looks(plan.study.until)))


def runs_by_setting(plan: Plan) -> dict[str, dict[int, str]]:
    """Return the runs of each setting that may get more repeats, by repeat."""
    found: dict[str, dict[int, str]] = {}
    for block in plan.study.blocks:
        for run in plan.blocks[block.name] if block.further else ():
            repeat = plan.runs[run].spec.repeat
            found.setdefault(id_of_repeat(run, repeat, 1), {})[repeat] = run
    return found


def replay(
    until: Until, every: Settings, made: Collection[str], hours: Mapping[str, float], ask: Ask
) -> list[Look]:
    """Return all looks so far. The last one determines what follows.

    `every` has all runs that may be made, `made` the study's existing runs (ids), also those of
    settings with a fixed number of repeats. `hours` are GPU hours by run, made or not. `ask`
    answers from a part of the runs: it returns the open runs by question.
    """
    may = {run: setting for setting, runs in every.items() for run in runs.values()}
    have = {run for run in made if run not in may}
    have |= {
        run for runs in every.values() for repeat, run in runs.items() if repeat <= until.at_least
    }
    found: list[Look] = []
    at = looks(until)
    for number, repeats in enumerate(at):
        spent = sum(hours.get(run, 0.0) for run in have)
        asked = ask(have)
        undecided = tuple(question for question, runs in asked.items() if runs)
        look = Look(repeats, len(have), spent, Why.DECIDED, undecided)
        up_to = at[number + 1] if number + 1 < len(at) else 0
        wanted = {may[run] for runs in asked.values() for run in runs if run in may}
        more = [
            run
            for setting in sorted(wanted)
            for repeat, run in sorted(every[setting].items())
            if repeat <= up_to and run not in have
        ]
        if undecided:
            look = replace(look, why=Why.OPEN if more else Why.AT_MOST, more=tuple(more))
        if (
            more
            and until.gpu_hours
            and spent + sum(hours.get(run, 0.0) for run in more) > until.gpu_hours
        ):
            look = replace(look, why=Why.BUDGET, more=())
        found.append(look)
        if not {*look.more} or not {*look.more} <= {*made}:
            break
        have |= {*more}
    return found


def write(path: Path, found: Sequence[Look], until: Until) -> None:
    """Write the looks of a study: `at` is after how many repeats there may be one."""
    write_json(path, {"at": looks(until), "looks": [vars(look) for look in found]})


def read(path: Path) -> list[Look]:
    """Return the looks that were written down; none where there is no such file, or nobody can read
    it.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["looks"]
        return [
            Look(
                **{
                    **row,
                    "why": Why(row["why"]),
                    "open": tuple(row["open"]),
                    "more": tuple(row["more"]),
                }
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def asked(found: Sequence[Look]) -> set[str]:
    """Return the runs (ids) that all rounds so far have requested."""
    return {run for look in found for run in look.more}


def told(found: Sequence[Look], until: Until) -> list[str]:
    """Format the last look for a terminal; empty if there was none."""
    if not found:
        return []
    last = found[-1]
    text = f"look {len(found)} of at most {len(looks(until))}"
    questions = listed(last.open)
    ends = {
        Why.OPEN: f"open: {questions}; next round: {count_of(len(last.more), 'run')}",
        Why.DECIDED: "everything is decided that more repeats could decide",
        Why.AT_MOST: f"open: {questions}; no setting may have more repeats ({until.at_most})",
        Why.BUDGET: (
            f"open: {questions}; the next round would exceed gpu_hours"
            f" ({amount(until.gpu_hours or 0.0)})"
        ),
    }
    return [f"{text}: {ends[last.why]}"]
