"""Repeats until decided: which runs the next round makes, or why it ends, from made-up answers and
records.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pytest
from ddlbench.analysis.tables import frame
from ddlbench.answers import choose
from ddlbench.core import layout
from ddlbench.plan import rounds
from ddlbench.plan.rounds import Look, Why
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.study_keys import Until

from tests.builders.results import ran
from tests.unit.conftest import Files

UNTIL = Until(until="decided")  # 3 to 10 repeats: looks at 3, 5, 8, 10
SIDES = ("a", "b", "c")


def every(at_most: int = 10) -> dict[str, dict[int, str]]:
    return {side: {n: f"{side}-r{n}" for n in range(1, at_most + 1)} for side in SIDES}


def until(made: Collection[str], open_up_to: Mapping[str, int], **more: object) -> list[Look]:
    """The looks of a study in which each side is open until it has more repeats than this."""

    def ask(runs: Collection[str]) -> dict[str, list[str]]:
        repeats = {side: sum(run.startswith(side) for run in runs) for side in SIDES}
        return {
            "framework": [
                f"{side}-r1" for side, last in open_up_to.items() if repeats[side] <= last
            ],
            "memory": [],
        }

    given = Until(**{**vars(UNTIL), **more})  # type: ignore[arg-type]
    hours = {run: 1.0 for runs in every().values() for run in runs.values()}
    return rounds.replay(given, every(given.at_most), made, hours, ask)


def grown(open_up_to: Mapping[str, int], **more: object) -> list[Look]:
    """The looks of the whole study: what each asks for is made."""
    made = {run for runs in every().values() for n, run in runs.items() if n <= 3}
    for _ in range(10):
        found = until(made, open_up_to, **more)
        if not {*found[-1].more}:
            return found
        assert not made >= {*found[-1].more}
        made |= {*found[-1].more}
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("at_least", "at_most", "at"),
    [
        (3, 10, (3, 5, 8, 10)),
        (2, 3, (2, 3)),
        (3, 5, (3, 4, 5)),
        (2, 10, (2, 5, 7, 10)),
        (5, 100, (5, 37, 68, 100)),
    ],
)
def test_there_are_at_most_four_looks(at_least: int, at_most: int, at: tuple[int, ...]) -> None:
    assert rounds.looks(Until(until="decided", at_least=at_least, at_most=at_most)) == at


def test_what_is_decided_gets_no_further_repeat() -> None:
    found = grown({"a": 5, "b": 3})
    assert [look.why for look in found] == [Why.OPEN, Why.OPEN, Why.DECIDED]
    assert [look.runs for look in found] == [9, 13, 16]
    assert {*found[0].more} == {"a-r4", "a-r5", "b-r4", "b-r5"}
    assert {*found[1].more} == {"a-r6", "a-r7", "a-r8"}
    assert found[0].open == ("framework",) and found[2].open == ()


def test_it_is_decided_at_once() -> None:
    assert grown({}) == [Look(3, 9, 9.0, Why.DECIDED)]


def test_it_ends_where_no_setting_may_have_more() -> None:
    found = grown({"a": 99})
    assert [look.repeats for look in found] == [3, 5, 8, 10]
    assert found[-1].why is Why.AT_MOST and found[-1].open == ("framework",) and not found[-1].more
    assert found[-1].runs == 9 + 7


def test_it_ends_before_a_round_that_would_pass_the_budget() -> None:
    found = grown({"a": 99, "b": 99}, gpu_hours=13.5)
    assert [look.why for look in found] == [Why.OPEN, Why.BUDGET]
    assert found[-1].runs == 13 and not found[-1].more
    assert grown({"a": 99, "b": 99}, gpu_hours=12.9)[-1].runs == 9


def test_a_round_that_took_longer_than_estimated_is_not_taken_back() -> None:
    """Its runs are made and paid for; there is only no further round."""
    made = {f"{side}-r{n}" for side in SIDES for n in (1, 2, 3)} | {
        f"{side}-r{n}" for side in ("a", "b") for n in (4, 5)
    }
    hours = {run: 3.0 if run.endswith(("r4", "r5")) else 1.0 for run in made}
    found = rounds.replay(
        Until(**{**vars(UNTIL), "gpu_hours": 14.0}),  # type: ignore[arg-type]
        every(),
        made,
        hours,
        lambda runs: {"framework": [f"{side}-r1" for side in ("a", "b")]},
    )
    assert [look.why for look in found] == [Why.OPEN, Why.BUDGET]
    assert {*found[0].more} == {"a-r4", "a-r5", "b-r4", "b-r5"}


def test_a_round_that_was_stopped_is_asked_for_again() -> None:
    made = {f"{side}-r{n}" for side in SIDES for n in (1, 2, 3)}
    stopped = until(made | {"a-r4"}, {"a": 5})
    assert len(stopped) == 1 and {*stopped[0].more} == {"a-r4", "a-r5"}


def test_repeats_that_are_there_count_when_a_look_asks_for_them() -> None:
    """Those of a study that had more repeats are no reason to look at them sooner."""
    made = {f"{side}-r{n}" for side in SIDES for n in range(1, 11)}
    found = until(made, {"a": 3})
    assert [(look.repeats, look.runs) for look in found] == [(3, 9), (5, 11)]
    assert found[-1].why is Why.DECIDED


def test_runs_of_settings_with_a_fixed_number_cannot_be_more() -> None:
    asked = rounds.replay(
        UNTIL, every(), {"a-r1", "d-r1"}, {}, lambda runs: {"framework": ["d-r1"]}
    )
    assert [look.why for look in asked] == [Why.AT_MOST]
    assert asked[0].runs == 10


def test_looks_are_written_and_read(tmp_path: Path) -> None:
    found = grown({"a": 5, "b": 3})
    rounds.write(tmp_path / "rounds.json", found, UNTIL)
    assert rounds.read(tmp_path / "rounds.json") == found
    assert rounds.requested_runs(found) == {*found[0].more, *found[1].more}
    assert rounds.read(tmp_path / "none.json") == []
    (tmp_path / "rounds.json").write_text('{"looks": [{"why": "because"}]}')
    assert rounds.read(tmp_path / "rounds.json") == []
    assert [len(rounds.last_look_lines(some, UNTIL)) for some in ([], found)] == [0, 1]


def opened(
    ratio: float, repeats: int, spread: float = 0.01, looks: int = 4, seed: int = 1
) -> dict[str, set[str]]:
    """Which runs are open by question, of two frameworks and a third that is far slower."""
    rng = np.random.default_rng(seed)
    rows = [
        row | {"run": f"{name}-r{row['repeat']}"}
        for name, rate in (("ddp", 1000.0), ("horovod", 1000.0 * ratio), ("fsdp", 300.0))
        for row in ran(rate, tuple(np.exp(rng.normal(0, spread, repeats)) - 1), framework=name)
    ]
    found = choose.open_runs({"runs": frame("runs", rows)}, looks=looks)
    return {question: {*runs} for question, runs in found.items() if runs}


def test_only_those_are_open_that_could_change_what_is_taken() -> None:
    both = {f"{name}-r{n}" for name in ("ddp", "horovod") for n in (1, 2, 3)}
    assert opened(1.03, 3, spread=0.03) == {"framework": both}
    assert opened(2.0, 3) == {}


def test_sides_that_are_alike_are_decided() -> None:
    assert opened(1.002, 10, spread=0.002) == {}


def test_a_verdict_has_to_be_surer_where_there_are_more_looks() -> None:
    at_once, at_the_first_of_four = (opened(1.05, 3, 0.01, looks, seed=5) for looks in (1, 4))
    assert not at_once and at_the_first_of_four


STUDY = """
title: mine
dataset: mnist5k
recipe: demo
models: [lenet]
frameworks: [ddp, horovod]
loaders: [native]
schedules: [cosine]
epochs: 1
repeats: {repeats}
runs:
  all: {{workers: [1, 2], batch_per_worker: [64]}}
  once: {{repeats: 1, workers: [1], batch_per_worker: [128]}}
figures: {{}}
"""
ASKS = "{until: decided, at_least: 2, at_most: 4}"


@pytest.fixture
def studies(files: Files) -> Path:
    return files.folder / "studies"


def test_a_study_that_made_three_repeats_keeps_its_runs(studies: Path) -> None:
    def ids(repeats: str, more: Collection[str] | None = ()) -> set[str]:
        (studies / "mine.yaml").write_text(STUDY.format(repeats=repeats))
        return {*make_plan(load_study("mine", studies), load_machine("local"), more=more).runs}

    three, few, most = ids("3"), ids(ASKS), ids(ASKS, None)
    assert (len(three), len(few), len(most)) == (14, 10, 18)
    assert few < three < most
    one = min(three - few)
    assert ids(ASKS, {one, "of another study"}) == few | {one}


def test_the_plan_knows_which_runs_rounds_asked_for(studies: Path) -> None:
    (studies / "mine.yaml").write_text(STUDY.format(repeats=ASKS))
    study = load_study("mine", studies)
    plan, most = (make_plan(study, load_machine("local"), more=more) for more in ((), None))
    assert plan.further == [] and rounds.look_number(plan) == 1
    assert len(most.further) == 8 and rounds.look_number(most) == 3
    settings = rounds.runs_by_setting(most)
    assert len(settings) == 4 and all(sorted(runs) == [1, 2, 3, 4] for runs in settings.values())
    assert {run for runs in settings.values() for run in runs.values()} == {*most.blocks["all"]}
    assert layout.rounds(plan.home) == "results/mine/local/rounds.json"


def test_a_figure_of_another_study_shows_the_repeats_that_it_has_in_any_case(studies: Path) -> None:
    (studies / "mine.yaml").write_text(STUDY.format(repeats=ASKS))
    text = STUDY.format(repeats="1").replace(
        "figures: {}", "figures: {all: {plot: throughput, runs: [mine/all]}}"
    )
    (studies / "other.yaml").write_text(text)
    study = load_study("other", studies)
    assert study.until is None
    assert len(make_plan(study, load_machine("local"), more=None).blocks["mine/all"]) == 8


@pytest.mark.parametrize(
    ("repeats", "key"),
    [
        ("{until: decided, at_least: 4, at_most: 4}", "repeats.at_most"),
        ("{until: tired}", "repeats.until"),
        ("{at_least: 3}", "repeats"),
        ("{until: decided, at_least: 1}", "repeats.at_least"),
        ("{until: decided, gpu_hours: 0}", "repeats.gpu_hours"),
        ("{until: decided, hours: 3}", "repeats.hours"),
    ],
)
def test_bad_keys_are_refused(files: Files, studies: Path, repeats: str, key: str) -> None:
    (studies / "mine.yaml").write_text(STUDY.format(repeats=repeats))
    said = files.complaint(lambda: load_study("mine", studies))
    assert f"mine.yaml: {key}:" in said


def test_until_stands_at_the_top_level(files: Files, studies: Path) -> None:
    (studies / "mine.yaml").write_text(
        STUDY.format(repeats=3).replace("{repeats: 1,", f"{{repeats: {ASKS},")
    )
    said = files.complaint(lambda: load_study("mine", studies))
    assert "runs.once.repeats" in said
