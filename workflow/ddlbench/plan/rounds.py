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
    """Return after how many repeats there may be an interim analysis of the study, a look."""
    first, last = until.at_least, until.at_most
    count = min(MOST_LOOKS, last - first + 1)
    return tuple(round(first + (last - first) * k / (count - 1)) for k in range(count))


def look_number(plan: Plan) -> int:
    """Return the number of the look (interim analysis) that the plan's runs are for, counted from
    1; 0 if the study makes a fixed number of repeats.
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
    until: Until, all_runs: Settings, made: Collection[str], hours: Mapping[str, float], ask: Ask
) -> list[Look]:
    """Return all looks so far. The last one determines what follows.

    `all_runs` are those that may be made, by setting and repeat; `made` are the study's existing
    runs (ids), also of settings with a fixed number of repeats. `hours` are GPU hours by run, made
    or not. `ask` asks the questions of the first screen about a part of the runs: it returns the
    undecided runs by question.
    """
    setting_of = {run: setting for setting, runs in all_runs.items() for run in runs.values()}
    runs_so_far = {run for run in made if run not in setting_of}
    runs_so_far |= {
        run
        for runs in all_runs.values()
        for repeat, run in runs.items()
        if repeat <= until.at_least
    }
    found: list[Look] = []
    at = looks(until)
    for number, repeats in enumerate(at):
        spent = sum(hours.get(run, 0.0) for run in runs_so_far)
        open_runs = ask(runs_so_far)
        undecided = tuple(question for question, runs in open_runs.items() if runs)
        look = Look(repeats, len(runs_so_far), spent, Why.DECIDED, undecided)
        up_to = at[number + 1] if number + 1 < len(at) else 0
        wanted = {
            setting_of[run] for runs in open_runs.values() for run in runs if run in setting_of
        }
        more = [
            run
            for setting in sorted(wanted)
            for repeat, run in sorted(all_runs[setting].items())
            if repeat <= up_to and run not in runs_so_far
        ]
        if undecided:
            look = replace(look, why=Why.OPEN if more else Why.AT_MOST, more=tuple(more))
        if (  # a round that is made has been granted, whatever it took
            not {*more} <= {*made}
            and until.gpu_hours
            and spent + sum(hours.get(run, 0.0) for run in more) > until.gpu_hours
        ):
            look = replace(look, why=Why.BUDGET, more=())
        found.append(look)
        if not {*look.more} or not {*look.more} <= {*made}:
            break
        runs_so_far |= {*more}
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


def requested_runs(looks_so_far: Sequence[Look]) -> set[str]:
    """Return the runs (ids) that all rounds so far have requested."""
    return {run for look in looks_so_far for run in look.more}


def last_look_lines(looks_so_far: Sequence[Look], until: Until) -> list[str]:
    """Format the last look for a terminal; empty if there was none."""
    if not looks_so_far:
        return []
    last = looks_so_far[-1]
    text = f"look {len(looks_so_far)} of at most {len(looks(until))}"
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
