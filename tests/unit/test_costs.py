"""What interruptions cost: the formulas against published values and a simulation, and the table made with them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import costs, tables
from ddlbench.analysis.costs import Terms, daly_s, expected_s, young_s
from ddlbench.commands import configuration

from tests.specs import JUWELS, run_spec

TERMS = Terms(node_hours_between=100.0, node_hour_price=8.0, currency="EUR", checkpoint_minutes=30)


def simulated(work: float, interval: float, save: float, restart: float, between: float, seed: int) -> float:
    """One training, event by event: time runs until the next interruption, whatever is being done."""
    draw = np.random.default_rng(seed)
    now, saved, strikes = 0.0, 0.0, draw.exponential(between)
    while saved < work:
        ends = now + interval + save
        if ends <= strikes:
            now, saved = ends, saved + interval
            continue
        now = strikes
        strikes = now + draw.exponential(between)
        while strikes < now + restart:  # a restart is interrupted, too
            now = strikes
            strikes = now + draw.exponential(between)
        now += restart
    return now


@pytest.mark.parametrize(
    ("interval", "save", "restart", "between"), [(30, 5, 10, 360), (117, 5, 10, 1440), (9, 5, 10, 15), (40, 0.5, 0, 60)]
)
def test_a_simulation_takes_as_long(interval: float, save: float, restart: float, between: float) -> None:
    work = 20 * interval
    took = [simulated(work, interval, save, restart, between, seed) for seed in range(1500)]
    expected = expected_s(work, interval, save, restart, between)
    assert abs(np.mean(took) - expected) < 4 * np.std(took) / math.sqrt(len(took))


def test_without_checkpoints_all_is_made_again() -> None:
    took = [simulated(60, 60, 0, 10, 50, seed) for seed in range(3000)]
    expected = expected_s(60, None, 5, 10, 50)
    assert abs(np.mean(took) - expected) < 4 * np.std(took) / math.sqrt(len(took))


@pytest.mark.parametrize(("between", "best"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_the_best_intervals_are_dalys(between: float, best: float) -> None:
    """Captions of Figures 3 to 5 of Daly 2006: checkpoints of 5 minutes, restarts of 10."""
    assert daly_s(5, between) == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize("between", [5.0, 100.0, 1e4, 1e7])
def test_the_best_interval_is_where_the_expected_time_is_least(between: float) -> None:
    around = daly_s(5, between) * np.geomspace(0.3, 3, 2001)
    took = [expected_s(1e6, t, 5, 10, between) for t in around]
    least = around[int(np.argmin(took))]
    assert daly_s(5, between) == pytest.approx(least, rel=0.04)
    assert young_s(5, between) == math.sqrt(10 * between)


def test_ends_of_the_scale() -> None:
    assert daly_s(10, 5) == 5  # no useful interval
    assert daly_s(0, 1e6) == young_s(0, 1e6) == 0
    assert expected_s(1e9, None, 1, 1, 1) == math.inf
    assert expected_s(3600, 600, 0, 0, 1e12) == pytest.approx(3600)


def run(framework: str = "ddp", workers: int = 8, s: float = 36_000, **changes: object) -> dict[str, object]:
    measured = {name: changes.pop(name, None) for name in ("checkpoint_s", "restart_s", "repeat_s")}
    batch = {"global_batch": 64 * workers, "workers": workers, "workers_per_node": 4, "framework": framework}
    spec = run_spec(**batch | changes)
    return spec.columns() | {"status": "success", "full_train_s": s} | measured


def made(*given: dict[str, object], terms: Terms = TERMS) -> pd.DataFrame:
    rows = costs.rows(tables.frame("runs", list(given)), terms)
    return tables.frame("costs", rows)


def test_the_table_has_the_chosen_interval_beside_the_best() -> None:
    """Ten hours on two nodes: 20 node hours at 8 EUR. An interrupted run of fewer epochs is as good."""
    killed = {"interrupt_steps": 60, "epochs": 1, "checkpoint_s": 20.0, "restart_s": 60.0}
    table = made(run(), run(repeat=2, s=38_000), run(repeat=3, s=10_000), run(s=1, **killed))
    assert set(table["interval"].dropna()) == {"chosen", "Young", "Daly"}
    row = table.set_index("interval").loc["chosen"]
    assert row[["nodes", "train_s", "node_hours", "cost", "currency", "n"]].tolist() == [2, 36_000, 20, 160, "EUR", 1]
    assert row[["checkpoint_s", "restart_s", "between_s"]].tolist() == [20, 60, 50 * 3600]
    assert row["expected_s"] == expected_s(36_000, 1800, 20, 60, 180_000)
    assert row["loss_cost"] == pytest.approx(8 * 2 * (row["expected_s"] - 36_000) / 3600)
    assert row["loss_percent"] == pytest.approx(100 * (row["expected_s"] / 36_000 - 1))
    best = table.set_index("interval").loc["Daly"]
    assert best["interval_s"] == daly_s(20, 180_000)
    assert best["loss_percent"] <= table["loss_percent"].min()


@pytest.mark.parametrize(
    ("terms", "killed", "why"),
    [
        (TERMS, {}, "no interrupted run of these settings left a checkpoint"),
        (TERMS, {"framework": "horovod"}, "no interrupted run of these settings left a checkpoint"),
        (TERMS, {"workers": 4}, "no interrupted run of these settings left a checkpoint"),
        (TERMS, {"restart_s": None}, "no interrupted run of these settings left a checkpoint"),
        (replace(TERMS, node_hours_between=None), {"epochs": 2}, "the machine's file does not say how often nodes are"),
    ],
)
def test_what_cannot_be_said_is_not_said(terms: Terms, killed: dict[str, object], why: str) -> None:
    other = {"interrupt_steps": 60, "checkpoint_s": 20.0, "restart_s": 60.0} | killed
    table = made(run(), *([run(**other)] if killed else []), terms=terms)
    (row,) = table[table["framework"] == "ddp"].to_dict("records")
    assert str(row["why"]).startswith(why)
    assert (row["node_hours"], row["cost"], row["interval"]) == (20, 160, "chosen")
    assert math.isnan(row["loss_cost"])
    assert math.isnan(row["expected_s"])


def test_without_a_price_or_checkpoints() -> None:
    killed = run(interrupt_steps=60, checkpoint_s=20.0, restart_s=60.0)
    row = made(run(), killed, terms=Terms(100.0)).set_index("interval").loc["chosen"]
    assert math.isnan(row["cost"])
    assert math.isnan(row["interval_s"])
    assert row["expected_s"] == expected_s(36_000, None, 20, 60, 180_000)
    assert row["loss_node_hours"] > 0


def test_failed_runs_and_controls_cost_nothing() -> None:
    assert made(run() | {"status": "failed"}, run(repeat=1001)).empty


def test_a_node_is_paid_for_as_a_whole() -> None:
    machine = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR")
    assert Terms(*configuration.terms(machine, 30)) == Terms(6334, 8.0, "EUR", 30)
    assert Terms(*configuration.terms(replace(JUWELS, node_hours_between_interruptions=None), None)) == Terms()
