"""In which order runs are made; records of other settings than planned are refused."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
from ddlbench.analysis.collect import collect
from ddlbench.analysis.sheets import Planned
from ddlbench.core.mllog import Event, begin_and_end_s
from ddlbench.core.record import STEPS
from ddlbench.plan.runs import in_random_order, make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.machine import load_machine

from tests.builders.plans import write_study
from tests.builders.records import SPEC, fit_log, write_record

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


def plan(tmp_path: Path, text: str = STUDY, name: str = "mixed") -> Plan:
    return make_plan(write_study(tmp_path, text, name), load_machine("local"))


def test_all_runs_have_a_place_and_first_repeats_come_first(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert sorted(made.order) == sorted(made.runs)
    timed = [made.runs[run].spec for run in made.order[:TIMED]]
    assert [spec.repeat for spec in timed] == [1] * 8 + [2] * 8 + [3] * 8
    assert not any(made.runs[run].spec.timed for run in made.order[TIMED:])
    assert made.places[made.order[0]] == 1


def test_the_order_is_mixed_the_same_each_time_and_another_in_each_repeat_and_study(
    tmp_path: Path,
) -> None:
    made, again, other = plan(tmp_path), plan(tmp_path), plan(tmp_path, name="other")
    assert made.order == again.order != other.order
    assert list(made.order) != list(made.runs)
    cells = [[made.runs[run].spec.id[:-1] for run in made.order[k : k + 8]] for k in (0, 8, 16)]
    assert sorted(cells[0]) == sorted(cells[1]) and cells[0] != cells[1] != cells[2]


def test_an_even_repeat_is_the_odd_one_turned_round(tmp_path: Path) -> None:
    """A queue that deals runs out to two nodes in turn then gives each side both nodes."""
    made = plan(tmp_path)
    first, second = ([run[:-1] for run in made.order[k : k + 8]] for k in (0, 8))
    assert second == first[::-1]
    nodes: dict[str, set[int]] = {}
    for place, run in enumerate(made.order[:16]):
        nodes.setdefault(run[:-1], set()).add(place % 2)
    assert all(of == {0, 1} for of in nodes.values())


def test_a_run_more_moves_no_other(tmp_path: Path) -> None:
    before = plan(tmp_path)
    after = plan(tmp_path, STUDY.replace("[ddp, horovod]", "[ddp, horovod, fsdp]"))
    assert [run for run in after.order if run in before.runs] == list(before.order)


def test_over_many_studies_each_run_is_first_about_as_often(tmp_path: Path) -> None:
    specs = [job.spec for job in plan(tmp_path).runs.values()]
    first = [in_random_order(f"study{n}", specs)[0].id for n in range(400)]
    assert (
        len(set(first)) == 8
        and 30 < min(map(first.count, first)) <= max(map(first.count, first)) < 75
    )


def test_runs_have_their_place_as_it_was_and_as_it_was_planned(tmp_path: Path) -> None:
    specs = [replace(SPEC, repeat=repeat) for repeat in (1, 2, 3)]
    folders = [write_record(tmp_path / "runs", spec) for spec in specs]
    for folder, began in zip(folders, (3.0, 1.0, 2.0), strict=True):
        fit_log(folder, pd.read_parquet(folder / STEPS), began)
    planned = Planned(order=[specs[2].id, specs[0].id], scaling={specs[1].id: "strong"})
    collect(folders, tmp_path / "tables", planned)
    table = (
        pd.read_parquet(tmp_path / "tables/runs.parquet")
        .set_index("run")
        .loc[[spec.id for spec in specs]]
    )
    assert table["started_s"].tolist() == [3.0, 1.0, 2.0]
    assert table["place"].tolist() == [3, 1, 2]
    assert table["planned_place"].tolist() == [2, pd.NA, 1]
    assert table["scaling"].fillna("").tolist() == ["", "strong", ""]


def test_a_run_takes_more_than_its_training() -> None:
    times = {"run_start": 110.0, "run_stop": 160.0, "ddlbench_ranks": 163.0}
    last = {key: Event(key, None, {}, time_s) for key, time_s in times.items()}
    assert begin_and_end_s(last, 108.0) == 2.0 + 3.0
    ranks = [{"started": 101.0}, {"started": 104.0}, {"started": "?"}, {}]
    last["ddlbench_ranks"] = Event("ddlbench_ranks", ranks, {}, 163.0)
    assert begin_and_end_s(last, 108.0) == 9.0 + 3.0
