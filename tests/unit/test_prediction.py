"""Rates at worker counts that nobody ran: the models, what ours learnt, and the table of a study."""

import json
import math
import sys
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.prediction import Measured, TooLittleError, _priors, _table, last_rate

from tests.conftest import ROOT
from tests.unit.test_scaling import runs_table, sized

PRIORS = _priors.read()
sys.path.insert(0, str(ROOT / "bench"))
learning, rivals = import_module("learning"), import_module("rivals")


def series(rates: dict[int, float], batch: float = 64.0, node: int = 4) -> Measured:
    """Rates of all workers by number of workers."""
    return Measured(tuple(rates), tuple(rates.values()), (batch,) * len(rates), node)


def ideal(*workers: int, one: float = 100.0) -> Measured:
    return series({n: one * n for n in workers})


@pytest.mark.parametrize(
    ("model", "truth"),
    [
        ("ideal", lambda n: n),
        ("amdahl", lambda n: 1 / (0.02 + 0.98 / n)),
        ("gustafson", lambda n: n + 0.1 * (1 - n)),
        ("power-law", lambda n: n**0.9),
        ("logarithmic", lambda n: n * (1 - 0.03 * math.log2(n))),
        ("usl", lambda n: n / (1 + 0.02 * (n - 1) + 1e-4 * n * (n - 1))),
        ("ernest", lambda n: n / (1 + 0.05 * math.log2(n) + 0.001 * n)),
        ("pollux", lambda n: n / (1 + (0 if n == 1 else 0.2 + 0.001 * (n - 2)))),
    ],
)
def test_a_model_finds_its_own_truth(model: str, truth: object) -> None:
    """Each rival predicts its own form from points of it: a broken rival would be beaten too easily."""
    known = (1, 2, 4, 8, 16, 32)
    at = [64, 128]
    measured = series({n: 100 * truth(n) for n in known}, node=1 if model == "pollux" else 4)
    assert rivals.MODELS[model](measured, at, [64.0, 64.0]) == pytest.approx([100 * truth(n) for n in at], rel=0.02)


def width(measured: Measured, at: int = 64) -> float:
    """Of the interval at so many workers, in logarithms."""
    made = last_rate.predict(measured, [at], [64.0], PRIORS)
    assert made.low[0] < made.images_per_s[0] < made.high[0]
    return math.log(made.high[0] / made.low[0])


class TestLastRate:
    def test_its_interval_widens_with_distance_and_narrows_with_points(self) -> None:
        few, many = ideal(4, 8), ideal(4, 8, 16, 32)
        widths = [width(many, 32 * 2**k) for k in range(1, 6)]
        assert widths == sorted(widths)
        assert width(few, 256) > 1.3 * width(many, 256)

    def test_a_series_that_leaves_the_line_has_wider_intervals(self) -> None:
        assert width(series({4: 400, 8: 500, 16: 1600})) > math.log(1.5) + width(series({4: 400, 8: 740, 16: 1450}))

    def test_from_one_node_nothing_beyond_is_predicted(self) -> None:
        with pytest.raises(TooLittleError, match=r"lie within one node of 4 workers.*measure 8 workers"):
            last_rate.predict(ideal(1, 2, 4), [8], [64.0], PRIORS)
        last_rate.predict(ideal(1, 2), [4], [64.0], PRIORS)
        with pytest.raises(TooLittleError, match=r"lie within one node of 1 worker:.*measure 2 workers"):
            last_rate.predict(series({1: 100.0}, node=1), [4], [64.0], PRIORS)
        last_rate.predict(series({1: 100.0, 2: 198.0}, node=1), [4], [64.0], PRIORS)

    def test_a_smaller_batch_is_slower(self) -> None:
        """c0 x0 images fit into the fixed time of a step, so that half the batch costs up to twice their share."""
        one = last_rate.predict(ideal(4, 8, one=2000.0), [16], [64.0], PRIORS)
        half = last_rate.predict(ideal(4, 8, one=2000.0), [16], [32.0], PRIORS)
        assert 0.7 < half.images_per_s[0] / one.images_per_s[0] < 0.95

    def test_each_doubling_costs_what_it_did_in_published_series(self) -> None:
        made = last_rate.predict(ideal(4, 8), [16, 64], [64.0, 64.0], PRIORS).images_per_s
        assert made == pytest.approx([1600 * math.exp(-PRIORS.slope[2]), 6400 * math.exp(-3 * PRIORS.slope[2])])

    def test_the_next_run_narrows_most_per_hour(self) -> None:
        assert last_rate.next_run(ideal(4, 8), 256, {16: 1.0, 64: 1.0, 128: 1.0}) == 128
        assert last_rate.next_run(ideal(4, 8), 256, {16: 1.0, 128: 1000.0}) == 16
        assert last_rate.next_run(ideal(4, 8), 256, {4: 1.0, 8: 1.0}) is None


def test_priors_are_those_of_the_series() -> None:
    """Fitted from the file that lies beside them."""
    every = _priors.published()
    assert json.loads(_priors.FITTED.read_text())["series"] == len(every)
    again = learning.fit(every)
    assert (*again.slope, again.unsteady) == pytest.approx((*PRIORS.slope, PRIORS.unsteady))


def test_slopes_are_learnt_from_other_sources() -> None:
    """A source that loses half per doubling moves the others' slope as one source of many, and never its own."""
    steep = Measured((4, 8, 16, 32), (400.0, 400.0, 400.0, 400.0), (64.0,) * 4, 4)
    series = [*_priors.published(), *[_priors.SourceSeries("steep", "s", steep)] * 9]
    made = {some[0].source: priors.slope[2] for some, priors in learning.left_out(series)}
    assert made["steep"] == pytest.approx(PRIORS.slope[2])
    assert all(slope < 2 * PRIORS.slope[2] for slope in made.values())


def test_intervals_hold_on_published_series() -> None:
    """With the priors as they are kept; bench/prediction.py does it with each source left out."""
    made = list(learning.tries(_priors.published(), PRIORS, {}))
    assert len(made) > 200
    assert sum(bool(one.held) for one in made) / len(made) > 0.93
    far = [one.width for one in made if one.group == "from beyond a node" and abs(one.doublings - 3) < 0.01]
    assert np.median(far) < 1.7  # a width that one can use


@pytest.mark.parametrize(
    ("workers", "rates", "batches", "says"),
    [
        ((), (), (), "at least one point"),
        ((4, 4), (1.0, 1.0), (1.0, 1.0), "workers must grow"),
        ((0,), (1.0,), (1.0,), "workers must grow"),
        ((1,), (0.0,), (1.0,), "must be positive"),
        ((1,), (math.inf,), (1.0,), "must be positive"),
        ((1, 2), (1.0, 2.0), (1.0,), "a rate and a batch for each"),
    ],
)
def test_what_is_no_series(workers: tuple, rates: tuple, batches: tuple, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Measured(workers, rates, batches, 4)


class TestTable:
    """Of a study's runs."""

    def runs(self, rates: dict[int, float]) -> pd.DataFrame:
        table = runs_table(*((sized(n, 64 * n), rate) for n, rate in rates.items()))
        return table.assign(of_epochs=90, energy_j=3600.0 * table["workers"], train_s=36.0)

    def test_three_doublings_and_what_the_study_plans(self) -> None:
        assert _table.asked((4, 8), [4, 24, 32, 65]) == [16, 24, 32, 64]

    def test_numbers(self) -> None:
        (row,) = _table.rows(self.runs({4: 400.0, 8: 800.0}), 4, price_per_hour=2.0, workers=[16])
        assert row["images_per_s"] == pytest.approx(1600, rel=0.05)
        assert row["low"] < row["images_per_s"] < row["high"]
        assert row["efficiency"] == pytest.approx(row["images_per_s"] / 1600)
        assert row["train_h"] == pytest.approx(1200 * 90 / row["images_per_s"] / 3600)
        assert row["train_h_low"] < row["train_h"] < row["train_h_high"]
        assert row["price"] == pytest.approx(row["worker_hours"] * 2)
        assert row["energy_kwh"] == pytest.approx(100 * 16 * row["train_h"] / 1000)  # 100 W a worker
        assert "(measured: 4 8 workers): 16 workers: " in _table.lines([row])[1]
        both = _table.lines([row, row | {"recipe": "other"}])
        assert [line.split()[1] for line in both if "16 workers" in line] == [row["recipe"], "other"]

    def test_one_node_says_what_to_measure(self) -> None:
        rows = _table.rows(self.runs({1: 100.0, 4: 390.0}), 4, workers=[16, 32])
        assert [row["images_per_s"] for row in rows] == [None, None]
        (_, line, *series) = _table.lines([*rows, *(row | {"framework": "horovod"} for row in rows)])
        assert len(series) == 2 and all("(measured: 1 4 workers)" in one for one in series)  # the reason stands once
        assert "  not 16, 32 workers: " in line and "measure 8 workers" in line

    def test_a_node_is_the_machines_not_the_runs(self) -> None:
        """Runs of 1 and 2 workers on a machine with 4 a node lie within a node."""
        (row,) = _table.rows(self.runs({1: 100.0, 2: 196.0}), 4, workers=[4])
        assert row["why_not"] is None

    def test_a_batch_that_changes_is_predicted(self) -> None:
        """Of strong scaling each worker has its share; what a smaller batch costs is the line's."""
        table = runs_table(*((sized(n, 256), rate) for n, rate in {4: 4000.0, 8: 7000.0}.items()))
        table = table.assign(of_epochs=90, energy_j=3600.0, train_s=36.0, scaling="strong")
        (row,) = _table.rows(table, 4, workers=[16])
        assert row["batch_per_worker"] == 16 and 7000 < row["images_per_s"] < 14_000
        assert "batch 16 per worker" in _table.lines([row])[1]

    def test_nothing_to_predict(self) -> None:
        failed = self.runs({4: 400.0}).assign(status="failed")
        assert _table.rows(failed, 4) == []
        assert "no timed run" in _table.lines([])[0]
