"""A study's key `programs`: runs of a program of the user's own, in the plan and its bill."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ddlbench.commands import status
from ddlbench.core import kinds
from ddlbench.plan import bill, printed
from ddlbench.plan.kinds import program
from ddlbench.plan.runs import figure_options, figure_runs, make_plan
from ddlbench.plan.values import Plan, Row
from ddlbench.preflight import promise
from ddlbench.settings.config import ConfigError
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.facts import missing, refuses
from tests.unit import programs
from tests.unit.spoiled import bad_input

PROGRAM = {
    "command": shlex.quote(sys.executable)
    + " train.py --batch-size {batch_per_worker} --precision {precision}",
    "files": ["train.py"],
    "settings": {"precision": ["bf16", "fp32"]},
    "lines": "step (?P<step>\\d+)",
}
STUDY = {
    "title": "A program",
    "programs": ["plain"],
    "workers": [1, 2],
    "batch_per_worker": [64],
    "runs": {"all": {}},
    "figures": {"throughput": {"plot": "throughput"}},
}
TRAIN = """
import time
for step in range(20):
    time.sleep(0.01)
    print("step", step, flush=True)
"""
OURS = {
    "dataset": "mnist5k",
    "recipe": "demo",
    "models": ["lenet"],
    "frameworks": ["ddp"],
    "loaders": ["native"],
}
OURS |= {"schedules": ["step"], "epochs": 1}
OURS_RECIPE = "base_lr: 0.1\nbase_batch: 64\nwarmup_epochs: 0\nimage_size: 32\n"
Planned = Callable[..., Plan]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """A plan of STUDY with these keys changed; those that are None are left out."""
    for folder in ("studies", "programs", "recipes"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/programs/plain.yaml").write_text(yaml.safe_dump(PROGRAM))

    def plan(**changes: object) -> Plan:
        keys = {key: value for key, value in (STUDY | changes).items() if value is not None}
        (tmp_path / "config/studies/mine.yaml").write_text(yaml.safe_dump(keys))
        return make_plan(load_study("mine", tmp_path / "config/studies"), LAPTOP)

    return plan


def rows(plan: Plan, results: Path) -> list[Row]:
    return bill.rows(plan, {}, results)


def test_its_settings_are_axes_and_its_rule_is_that_of_trainings(planned: Planned) -> None:
    plan = planned(repeats=2)
    assert len(plan.runs) == 2 * 2 * 2
    assert (
        "laptop-plain-precision_bf16-2workers-bs128-r1".replace("laptop", LAPTOP.name) in plan.runs
    )
    for job in plan.runs.values():
        assert (job.kind, job.rule, job.manifest) == ("program", "train", None)
        assert str(job.resources["launch"]).endswith(
            f"ddlbench.run.rank --start {job.spec.workers}"
        )
        assert json.loads(job.spec.to_json())["program"]["digest"]
    assert figure_runs(plan, "throughput") == [*plan.runs]
    assert (
        promise.expected_settings(plan)["models"]
        == promise.expected_settings(plan)["frameworks"]
        == []
    )


def test_ranks_of_srun_meet_on_the_network_that_the_machine_names(planned: Planned) -> None:
    spec = next(iter(planned(workers=[2]).runs.values())).spec
    words = program.command(replace(spec, machine=JUWELS.name), JUWELS)
    assert JUWELS.host_suffix and f"DDLBENCH_HOST_SUFFIX={JUWELS.host_suffix}" in words
    assert not [word for word in program.command(spec, LAPTOP) if "HOST_SUFFIX" in word]


def test_axes_say_what_is_counted(planned: Planned, tmp_path: Path) -> None:
    """Pictures of our trainings, what its file says of a program, and samples where a figure shows
    both.
    """
    (tmp_path / "config/programs/plain.yaml").write_text(
        yaml.safe_dump(PROGRAM | {"sample": "tokens"})
    )
    (tmp_path / "config/recipes/demo.yaml").write_text(OURS_RECIPE)
    blocks = {"own": {}, "ours": OURS}
    figures = {
        name: {"plot": "throughput", "runs": runs}
        for name, runs in (("a", ["own"]), ("b", ["ours"]))
    }
    plan = planned(runs=blocks, figures=figures | {"c": {"plot": "throughput"}})
    said = [json.loads(figure_options(plan, name))["sample"] for name in "abc"]
    assert said == ["tokens", "images", "samples"]
    assert Counter(row.block for row in bill.rows(plan, {"mnist5k": 4000}, tmp_path)) == {
        "own": 4,
        "ours": 2,
    }


def test_a_change_of_its_files_makes_its_runs_stale(planned: Planned, tmp_path: Path) -> None:
    plan = planned()
    first, *_ = plan.runs
    programs.make(tmp_path / "runs", plan.runs[first].spec)
    assert {row.run for row in rows(plan, tmp_path) if row.state == "done"} == {first}
    (tmp_path / "train.py").write_text("print('step 2')")
    (row,) = (row for row in rows(planned(), tmp_path) if row.state != "missing")
    assert (row.run, row.state) == (first, "stale") and missing(row.why, "files", "program") == []
    assert row.wall_s is None  # its record tells what the old files took


def test_before_records_nobody_knows_what_it_takes_and_then_they_say(
    planned: Planned, tmp_path: Path
) -> None:
    plan = planned(repeats=2)
    assert {(row.wall_s, row.gpu_hours) for row in rows(plan, tmp_path)} == {(None, None)}
    with refuses(ConfigError, "max_gpu_hours: 1 ", "8 runs", "plain"):
        bill.check_limit(rows(plan, tmp_path), 1.0)
    first, *_ = plan.runs
    programs.make(tmp_path / "runs", plan.runs[first].spec)
    found = {row.run: row for row in rows(plan, tmp_path)}
    again = found[first[:-1] + "2"]
    assert found[first].wall_s == again.wall_s and again.estimate_by == "measured"
    assert sum(row.wall_s is None for row in found.values()) == 6
    assert missing(printed.answer(plan, [*found.values()], None), "6 runs of plain") == []


def test_what_nobody_knows_is_said_without_numbers(planned: Planned, tmp_path: Path) -> None:
    plan = planned(repeats=2)
    said = "\n".join(printed.answer(plan, rows(plan, tmp_path), None))
    assert "?" not in said and "GPU hours" not in said
    assert missing(said, "8 runs of plain", "4 runs") == []  # of which 4 are first repeats
    states, _ = status.now(plan, rows(plan, tmp_path), tmp_path, tmp_path)
    assert "?" not in status.lines(plan, rows(plan, tmp_path), states, tmp_path, None)[-1]
    with refuses(ConfigError, "max_gpu_hours: 1 ", "stop_after"):
        bill.check_limit(rows(plan, tmp_path), 1.0)


def test_a_program_that_is_ended_takes_no_longer(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "config/programs/plain.yaml").write_text(
        yaml.safe_dump(PROGRAM | {"stop_after": "5 minutes"})
    )
    plan = planned()
    found = rows(plan, tmp_path)
    assert {row.wall_s for row in found} == {None}
    assert {row.wall_s_high for row in found} == {600.0}  # 5 min, and as much to begin and to end
    assert {row.gpu_hours_high for row in found} == {1 / 6, 1 / 3}
    bill.check_limit(found, 1.0)
    with refuses(ConfigError, "max_gpu_hours: 0.9 ", 1):
        bill.check_limit(found, 0.9)


def test_a_programs_minutes_are_its_time_limit(planned: Planned, tmp_path: Path) -> None:
    """In place of all that the queue gives; a block's go before them, and no run is another for
    them.
    """

    def on_queue(of_program: int | None, **changes: object) -> tuple[str, ...]:
        said = {} if of_program is None else {"minutes": of_program}
        (tmp_path / "config/programs/plain.yaml").write_text(yaml.safe_dump(PROGRAM | said))
        planned(**changes)
        plan = make_plan(load_study("mine", tmp_path / "config/studies"), JUWELS)
        limits.append({job.resources["runtime"] for job in plan.runs.values()})
        return tuple(job.spec.to_json() for job in plan.runs.values())

    limits: list[set[str | int | None]] = []
    specs = {
        on_queue(None),
        on_queue(90),
        on_queue(90, minutes=45),
        on_queue(None, runs={"all": {"minutes": 45}}),
    }
    assert len(specs) == 1
    assert limits == [{1440}, {90}, {45}, {45}]
    with refuses(ConfigError, "plain.yaml: minutes: 2000 ", 1440):
        on_queue(2000)


def test_what_failed_is_a_failed_run(planned: Planned, tmp_path: Path) -> None:
    plan = planned()
    first, *_ = plan.runs
    left = tmp_path / "runs" / first / "failed"
    left.mkdir(parents=True)
    (left / "failure.json").write_text(
        json.dumps({"cause": "exited", "message": "it printed last: no tokens"})
    )
    found = rows(plan, tmp_path)
    states, _ = status.now(plan, found, tmp_path, tmp_path)
    assert states[first].state == "failed"
    assert f"failed  {first}: exited" in "\n".join(
        status.lines(plan, found, states, tmp_path, None)
    )
    assert kinds.of_folder(left.parent).name == "train"


@pytest.mark.parametrize(("changes", "facts"), bad_input("programs"))
def test_a_mistake_is_one_line(planned: Planned, changes: str, facts: tuple[str, ...]) -> None:
    with refuses(ConfigError, "mine.yaml: ", *facts):
        planned(**yaml.safe_load(changes))
