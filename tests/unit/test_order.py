"""In which order runs are made, and the control runs among them; records of other settings than planned are refused."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.core.record import STEPS, Event, beside_s
from ddlbench.plan.runs import CONTROL_BLOCK, Plan, digests, figure_runs, make_plan, mixed
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine

from tests.unit.records import SPEC, fit_log, write_record
from tests.unit.spoiled import bad_input, write_study

STUDY = """
title: "Order"
dataset: mnist5k
recipe: demo
models: [lenet]
schedules: [step]
batch_per_worker: [64]
epochs: 2
runs:
  all: {frameworks: [ddp, horovod], loaders: [native, synthetic], workers: [1, 2], repeats: 3}
  same: {frameworks: [ddp], loaders: [native], workers: [1]}
  accuracy: {frameworks: [ddp], loaders: [native], workers: [1], batch_per_worker: [32], repeats: 2, timed: false}
figures:
  throughput: {plot: throughput}
"""
TIMED = 2 * 2 * 2 * 3
CONTROL = "control: {every: 10, runs: same}\n"


def plan(tmp_path: Path, text: str = STUDY, name: str = "mixed") -> Plan:
    return make_plan(write_study(tmp_path, text, name), load_machine("local"))


def test_all_runs_have_a_place_and_first_repeats_come_first(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert sorted(made.order) == sorted(made.runs)
    timed = [made.runs[run].spec for run in made.order[:TIMED]]
    assert [spec.repeat for spec in timed] == [1] * 8 + [2] * 8 + [3] * 8
    assert not any(made.runs[run].spec.timed for run in made.order[TIMED:])
    assert made.places[made.order[0]] == 1


def test_the_order_is_mixed_the_same_each_time_and_another_in_each_repeat_and_study(tmp_path: Path) -> None:
    made, again, other = plan(tmp_path), plan(tmp_path), plan(tmp_path, name="other")
    assert made.order == again.order != other.order
    assert list(made.order) != list(made.runs)
    cells = [[made.runs[run].spec.id[:-1] for run in made.order[k : k + 8]] for k in (0, 8, 16)]
    assert sorted(cells[0]) == sorted(cells[1]) and cells[0] != cells[1] != cells[2]


def test_a_run_more_moves_no_other(tmp_path: Path) -> None:
    before = plan(tmp_path)
    after = plan(tmp_path, STUDY.replace("[ddp, horovod]", "[ddp, horovod, fsdp]"))
    assert [run for run in after.order if run in before.runs] == list(before.order)


def test_over_many_studies_each_run_is_first_about_as_often(tmp_path: Path) -> None:
    specs = [job.spec for job in plan(tmp_path).runs.values()]
    first = [mixed(f"study{n}", specs)[0].id for n in range(400)]
    assert len(set(first)) == 8 and 30 < min(map(first.count, first)) <= max(map(first.count, first)) < 75


def test_control_runs_come_first_last_and_in_between(tmp_path: Path) -> None:
    without, made = plan(tmp_path), plan(tmp_path, STUDY + CONTROL)
    controls = [run for run in made.order if made.runs[run].spec.control]
    assert [made.places[run] for run in controls] == [1, 12, 23, 28]  # 24 timed runs, one after 10 and 20
    assert [run[-6:] for run in controls] == ["-r1001", "-r1002", "-r1003", "-r1004"]
    assert made.blocks[CONTROL_BLOCK] == tuple(controls)
    assert len(made.runs) == len(made.order) == len(without.runs) + 4
    assert set(controls) <= digests(made).keys()
    # All else is as it was: ids, settings, order, blocks, and what figures show.
    assert [run for run in made.order if run not in controls] == list(without.order)
    assert all(made.runs[run].spec == without.runs[run].spec for run in without.runs)
    assert figure_runs(made, "throughput") == figure_runs(without, "throughput")
    cell = made.runs[without.blocks["same"][0]].spec
    assert {made.runs[run].spec.seed for run in controls} == {cell.seed + n for n in range(1000, 1004)}


def test_more_repeats_leave_control_runs_their_ids(tmp_path: Path) -> None:
    few = plan(tmp_path, STUDY + CONTROL)
    many = plan(tmp_path, STUDY.replace("repeats: 3", "repeats: 5") + CONTROL)
    assert set(few.blocks[CONTROL_BLOCK]) <= set(many.blocks[CONTROL_BLOCK])


@pytest.mark.parametrize("row", bad_input("control"), ids=" ".join)
def test_a_control_that_cannot_be_is_refused(row: list[str], tmp_path: Path) -> None:
    control, *says = row
    with pytest.raises(ConfigError) as refused:
        plan(tmp_path, f"{STUDY}control: {control}\n")
    assert [part for part in ("mixed.yaml", *says) if part not in str(refused.value)] == []


def test_runs_have_their_place_as_it_was_and_as_it_was_planned(tmp_path: Path) -> None:
    specs = [replace(SPEC, repeat=repeat) for repeat in (1, 2, 1001)]
    folders = [write_record(tmp_path / "runs", spec) for spec in specs]
    for folder, began in zip(folders, (3.0, 1.0, 2.0), strict=True):
        fit_log(folder, pd.read_parquet(folder / STEPS), began)
    planned = {"order": [specs[2].id, specs[0].id], "scaling": {specs[1].id: "strong"}}
    collect(folders, tmp_path / "tables", **planned)  # type: ignore[arg-type]
    table = pd.read_parquet(tmp_path / "tables/runs.parquet").set_index("run").loc[[spec.id for spec in specs]]
    assert table["started_s"].tolist() == [3.0, 1.0, 2.0]
    assert table["place"].tolist() == [3, 1, 2]
    assert table["planned_place"].tolist() == [2, pd.NA, 1]
    assert table["scaling"].fillna("").tolist() == ["", "strong", ""]
    assert table["control"].tolist() == [False, False, True]


def test_a_run_takes_more_than_its_training() -> None:
    times = {"run_start": 110.0, "run_stop": 160.0, "ddlbench_ranks": 163.0}
    last = {key: Event(key, None, {}, time_s) for key, time_s in times.items()}
    assert beside_s(last, 108.0) == 2.0 + 3.0
    ranks = [{"started": 101.0}, {"started": 104.0}, {"started": "?"}, {}]
    last["ddlbench_ranks"] = Event("ddlbench_ranks", ranks, {}, 163.0)
    assert beside_s(last, 108.0) == 9.0 + 3.0
