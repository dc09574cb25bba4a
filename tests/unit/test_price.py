"""One price and one energy, by hand: what a run blocks, what that costs, and what the site draws
for it.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.analysis import comparisons
from ddlbench.analysis.price import FREE, Draw, Tariff, power_w, tariff
from ddlbench.commands import configuration
from ddlbench.outlook import predictions
from ddlbench.outlook.series import all_series
from ddlbench.plan import bill, budget
from ddlbench.plan.runs import make_plan
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS
from tests.builders.plans import run_spec
from tests.unit.test_predictions import of_study
from tests.unit.test_scaling import repeats

SOLD = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR", pue=1.1)  # four workers a node


@pytest.mark.parametrize(
    ("workers", "nodes", "timed", "whole", "blocked"),
    [
        (1, 1, True, False, 4),
        (2, 1, True, False, 4),
        (4, 1, True, False, 4),
        (6, 2, True, False, 8),
        (1, 1, False, False, 1),
        (2, 1, False, False, 2),
        (1, 1, False, True, 4),
    ],
)
def test_what_nobody_else_can_use_is_paid_for(
    workers: int, nodes: int, timed: bool, whole: bool, blocked: int
) -> None:
    sold = Tariff(2.0, "EUR", 4, whole)
    assert sold.workers_blocked(workers, nodes, timed) == blocked
    assert sold.price(3.0, blocked) == 6.0 * blocked
    assert sold.price(None, blocked) is None
    assert Tariff(workers_per_node=4).price(3.0, blocked) is None


def test_a_site_draws_more_than_its_computers() -> None:
    assert Tariff(pue=1.5).energy_kwh(3.6e6) == pytest.approx(1.5)
    assert Tariff().energy_kwh(3.6e6) == pytest.approx(1.0)
    assert Tariff(pue=1.5).energy_kwh(None) is None


def test_a_machines_file_says_whether_nodes_are_billed_whole() -> None:
    assert tariff(SOLD) == Tariff(2.0, "EUR", 4, True, 1.1)
    assert not tariff(replace(SOLD, cores_per_node_billed=None)).whole_nodes
    assert Tariff(2.0, "EUR", 4).workers_blocked(1, 1, timed=False) == 1  # unless it is said
    assert Tariff(2.0, "EUR", 4).workers_blocked(1, 1) == 4  # timed
    assert FREE.workers_blocked(1, 1) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_plan_comparison_and_prediction_ask_the_same_price_of_a_part_of_a_node(
    workers: int, tmp_path: Path
) -> None:
    """An hour of 1 or 2 of four workers, at 2 EUR each: 8 EUR, because the node is taken."""
    study = load_study("aach2023")
    block = replace(study.blocks[0], workers=(workers,))
    plan = make_plan(replace(study, blocks=(block,), figures=()), SOLD)
    (row, *_) = bill.rows(plan, {"imagenet": 1_281_167}, tmp_path)
    assert row.wall_s and row.price
    assert row.price / (row.wall_s / 3600) == pytest.approx(8.0)
    assert row.gpu_hours == pytest.approx(
        workers * row.wall_s / 3600
    )  # hours of workers are those of its own
    assert budget.amount(row, replace(SOLD, budget_unit="GPU hours")) == pytest.approx(
        4 * row.wall_s / 3600
    )

    one, *_ = predictions.rows(all_series(of_study({workers: 100.0}), 4), SOLD)
    assert one["price"] == pytest.approx(8.0 * one["train_h"])
    assert one["worker_hours"] == pytest.approx(workers * one["train_h"])

    sides = [
        *repeats(101.0, 0.97, 1.0, 1.02),
        *repeats(100.0, 1.01, 0.99, 1.0, framework="horovod"),
    ]
    of_node = {"run_s": 3600.0, "workers": workers, "workers_per_node": workers, "nodes": 1}
    (pair,) = comparisons.rows(pd.DataFrame([side | of_node for side in sides]), tariff(SOLD))
    assert pair["more_worker_hours"] == pytest.approx(2 * pair["more_repeats"] * workers)
    assert pair["more_price"] == pytest.approx(2 * pair["more_repeats"] * 8.0)

    terms = configuration.terms(SOLD, {"minutes": None, "epochs": None})
    assert terms[1] == pytest.approx(8.0)  # of a node hour, in table `costs`


def test_an_untimed_job_pays_for_whole_nodes_where_these_are_billed(tmp_path: Path) -> None:
    study = load_study("aach2023")
    block = replace(study.blocks[0], workers=(1,), timed=False)
    for billed, workers in ((48, 4), (None, 1)):
        machine = replace(SOLD, cores_per_node_billed=billed)
        plan = make_plan(replace(study, blocks=(block,), figures=()), machine)
        (row, *_) = bill.rows(plan, {"imagenet": 1_281_167}, tmp_path)
        assert row.wall_s
        assert row.price == pytest.approx(2.0 * workers * row.wall_s / 3600)
        assert row.workers_blocked == workers
        assert run_spec(workers=1).nodes == row.nodes


# A node draws 200 W, and each of its workers 100 W more.
ONE, TWO, FOUR = Draw(1, 1, 300.0), Draw(2, 1, 400.0), Draw(4, 1, 600.0)


@pytest.mark.parametrize(
    ("draws", "workers", "nodes", "watts"),
    [
        ([ONE, TWO, FOUR], 1, 1, 300),  # as measured, whatever others drew
        ([ONE, Draw(1, 1, 310.0), Draw(1, 1, 305.0)], 1, 1, 305),
        ([FOUR, Draw(8, 2, 1100.0)], 8, 2, 1100),
        ([ONE, TWO, FOUR], 16, 4, 2400),  # node by node
        ([ONE, TWO], 4, 1, 600),  # node and worker apart
        ([ONE, TWO], 6, 2, 1000),
        ([ONE, FOUR], 2, 1, 400),
        ([Draw(1, 1, 300.0), Draw(2, 1, 290.0)], 4, 1, 295),  # more workers never draw less
        (
            [Draw(1, 1, 100.0), Draw(2, 1, 300.0)],
            4,
            1,
            560,
        ),  # nor does a node draw less than nothing
        ([Draw(1, 1, 300.0, 100.0)], 4, 1, 600),  # GPUs have counters of their own
        ([Draw(8, 2, 1100.0, 400.0)], 4, 2, 900),  # 200 W of 550 W of a node are its four GPUs'
        ([Draw(1, 1, 300.0, 500.0)], 2, 1, 600),  # which draw no more than their node
        ([Draw(1, 1, 300.0, 100.0), Draw(1, 1, 300.0, 120.0), Draw(1, 1, 300.0, 200.0)], 2, 1, 420),
        ([Draw(1, 1, 300.0, 100.0), Draw(1, 1, 300.0)], 2, 1, 400),
        ([Draw(4, 1, 600.0), Draw(8, 2, 1000.0), Draw(4, 1, 700.0)], 16, 4, 2400),
        ([ONE, TWO, FOUR], 8, 1, 1000),
        ([Draw(1, 1, 100.5), Draw(2, 1, 200.5)], 4, 1, 400.5),
        ([FOUR], 1, 1, 150),  # nothing tells them apart
        ([], 1, 1, None),
    ],
)
def test_power_of_nodes_and_workers_apart(
    draws: list[Draw], workers: int, nodes: int, watts: float | None
) -> None:
    assert power_w(draws, workers, nodes) == (None if watts is None else pytest.approx(watts))


def test_one_number_of_workers_is_shared_as_the_machines_file_says() -> None:
    assert power_w([FOUR], 1, 1, (100.0, 200.0)) == pytest.approx(300)
    assert power_w([Draw(4, 1, 1200.0)], 1, 1, (100.0, 200.0)) == pytest.approx(
        600
    )  # of what was measured
    assert (
        power_w([FOUR], 1, 1, (100.0, None))
        == power_w([FOUR], 1, 1, (None, 200.0))
        == pytest.approx(150)
    )
    assert power_w([Draw(4, 1, 600.0, 200.0)], 1, 1, (100.0, 200.0)) == pytest.approx(
        450
    )  # counters know better


def test_predicted_energy_is_the_sites_and_of_the_run_itself_where_it_was_measured() -> None:
    """On a node that draws 200 W and 100 W a worker, at PUE 1.1."""
    runs = of_study({1: 100.0, 2: 195.0, 4: 380.0, 8: 750.0}, batch=8)
    runs = runs.assign(nodes=-(-runs["workers"] // 4))
    runs["energy_j"] = 36.0 * (200 * runs["nodes"] + 100 * runs["workers"])
    for row in predictions.rows(all_series(runs, 4), SOLD):
        watts = 200 * -(-row["workers"] // 4) + 100 * row["workers"]
        assert row["energy_kwh"] == pytest.approx(1.1 * watts / 1000 * row["train_h"])
    assert {row["by"] for row in predictions.rows(all_series(runs, 4), SOLD)} == {
        "measured",
        "predicted",
    }
