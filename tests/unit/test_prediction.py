"""Rates at worker counts that nobody ran: the models and what ours learnt."""

import json
import math
import sys
from importlib import import_module

import numpy as np
import pytest
from ddlbench.analysis import prediction_priors
from ddlbench.analysis.prediction import Measured, TooLittleError, last_rate

from tests.conftest import ROOT
from tests.facts import refuses

PRIORS = prediction_priors.read()
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
    """Each rival predicts its own form from points of it: a broken rival would be beaten too
    easily.
    """
    known = (1, 2, 4, 8, 16, 32)
    at = [64, 128]
    measured = series({n: 100 * truth(n) for n in known}, node=1 if model == "pollux" else 4)
    assert rivals.MODELS[model](measured, at, [64.0, 64.0]) == pytest.approx(
        [100 * truth(n) for n in at], rel=0.02
    )


def width(measured: Measured, at: int = 64) -> float:
    """Of the interval at so many workers, in logarithms."""
    made = last_rate.predict(measured, [at], [64.0], PRIORS)
    assert made.low[0] < made.images_per_s[0] < made.high[0]
    return math.log(made.high[0] / made.low[0])


class TestLastRate:
    def test_from_one_worker_it_reaches_further_down(self) -> None:
        """What workers of a node share, one alone does not show."""
        alone = last_rate.predict(ideal(1), [4], [64.0], PRIORS)
        low, middle, high = (
            math.log(float(end[0])) for end in (alone.low, alone.images_per_s, alone.high)
        )
        assert middle - low == pytest.approx(last_rate.ALONE * (high - middle))
        two = last_rate.predict(ideal(1, 2), [4], [64.0], PRIORS)
        low, middle, high = (
            math.log(float(end[0])) for end in (two.low, two.images_per_s, two.high)
        )
        assert middle - low == pytest.approx(high - middle)

    def test_its_interval_widens_with_distance_and_narrows_with_points(self) -> None:
        few, many = ideal(4, 8), ideal(4, 8, 16, 32)
        widths = [width(many, 32 * 2**k) for k in range(1, 6)]
        assert widths == sorted(widths)
        assert width(few, 256) > 1.3 * width(many, 256)

    def test_a_series_that_leaves_the_line_has_wider_intervals(self) -> None:
        assert width(series({4: 400, 8: 500, 16: 1600})) > math.log(1.5) + width(
            series({4: 400, 8: 740, 16: 1450})
        )

    def test_from_one_node_nothing_beyond_is_predicted(self) -> None:
        with refuses(TooLittleError, "4 workers", "measure 8 workers"):
            last_rate.predict(ideal(1, 2, 4), [8], [64.0], PRIORS)
        last_rate.predict(ideal(1, 2), [4], [64.0], PRIORS)
        with refuses(TooLittleError, "1 worker", "measure 2 workers"):
            last_rate.predict(series({1: 100.0}, node=1), [4], [64.0], PRIORS)
        last_rate.predict(series({1: 100.0, 2: 198.0}, node=1), [4], [64.0], PRIORS)

    def test_a_smaller_batch_is_slower(self) -> None:
        """c0 x0 images fit into the fixed time of a step, so that half the batch costs up to twice
        their share.
        """
        one = last_rate.predict(ideal(4, 8, one=2000.0), [16], [64.0], PRIORS)
        half = last_rate.predict(ideal(4, 8, one=2000.0), [16], [32.0], PRIORS)
        assert 0.7 < half.images_per_s[0] / one.images_per_s[0] < 0.95

    def test_each_doubling_costs_what_it_did_in_published_series(self) -> None:
        made = last_rate.predict(ideal(4, 8), [16, 64], [64.0, 64.0], PRIORS).images_per_s
        assert made == pytest.approx(
            [1600 * math.exp(-PRIORS.slope[2]), 6400 * math.exp(-3 * PRIORS.slope[2])]
        )

    def test_the_next_run_narrows_most_per_hour(self) -> None:
        assert last_rate.next_run(ideal(4, 8), 256, {16: 1.0, 64: 1.0, 128: 1.0}) == 128
        assert last_rate.next_run(ideal(4, 8), 256, {16: 1.0, 128: 1000.0}) == 16
        assert last_rate.next_run(ideal(4, 8), 256, {4: 1.0, 8: 1.0}) is None


def test_priors_are_those_of_the_series() -> None:
    """Fitted from the file that lies beside them."""
    every = prediction_priors.published()
    assert json.loads(prediction_priors.FITTED.read_text())["series"] == len(every)
    again = learning.fit(every)
    assert (*again.slope, again.unsteady) == pytest.approx((*PRIORS.slope, PRIORS.unsteady))


def test_slopes_are_learnt_from_other_sources() -> None:
    """A source that loses half per doubling moves the others' slope as one source of many, and
    never its own.
    """
    steep = Measured((4, 8, 16, 32), (400.0, 400.0, 400.0, 400.0), (64.0,) * 4, 4)
    series = [
        *prediction_priors.published(),
        *[prediction_priors.SourceSeries("steep", "s", steep)] * 9,
    ]
    made = {some[0].source: priors.slope[2] for some, priors in learning.left_out(series)}
    assert made["steep"] == pytest.approx(PRIORS.slope[2])
    assert all(slope < 2 * PRIORS.slope[2] for slope in made.values())


def test_intervals_hold_on_published_series() -> None:
    """With the priors as they are kept; bench/prediction.py does it with each source left out."""
    made = list(learning.tries(prediction_priors.published(), PRIORS, {}))
    assert len(made) > 200
    assert sum(bool(one.held) for one in made) / len(made) > 0.93
    far = [
        one.width
        for one in made
        if one.group == "from beyond a node" and abs(one.doublings - 3) < 0.01
    ]
    assert np.median(far) < 1.7  # a width that one can use


@pytest.mark.parametrize(
    ("workers", "rates", "batches", "says"),
    [
        ((), (), (), "at least one point"),
        ((4, 4), (1.0, 1.0), (1.0, 1.0), "workers must be ascending"),
        ((0,), (1.0,), (1.0,), "workers must be ascending"),
        ((1,), (0.0,), (1.0,), "must be positive"),
        ((1,), (math.inf,), (1.0,), "must be positive"),
        ((1, 2), (1.0, 2.0), (1.0,), "a rate and a batch for each"),
    ],
)
def test_what_is_no_series(workers: tuple, rates: tuple, batches: tuple, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Measured(workers, rates, batches, 4)
