"""One ratio over many settings: by hand on small numbers, and on made-up studies with known truth."""

import math

import numpy as np
import pytest
from ddlbench.analysis import pooled
from ddlbench.analysis.pooled import Block
from ddlbench.analysis.statistics import NOISE


def block(place: int, size: float = 0.0, **cells: list[float]) -> Block:
    return Block(place, {name: dict(enumerate(values)) for name, values in cells.items()}, size)


def test_two_settings_by_hand() -> None:
    """Pairs 0.1, 0.3 and 0.2, 0.4: the middle is 0.25; the spread of a pair 0.1414 with 2 degrees of freedom."""
    blocks = [block(1, a=[0.1, 0.3], b=[0.0, 0.0]), block(2, a=[0.2, 0.4], b=[0.0, 0.0])]
    seen = pooled.compare(blocks, "a", "b")
    assert (seen.middle, seen.settings, seen.leads, seen.n, seen.pairs) == (pytest.approx(0.25), 2, 2, 2, 4)
    assert (seen.spread, seen.free) == (pytest.approx(0.1 * math.sqrt(2)), 2.0)
    width = pooled.t_value(0.95, 2) * 0.1 * math.sqrt(2) / 2
    assert (seen.low, seen.high) == (pytest.approx(0.25 - width), pytest.approx(0.25 + width))
    assert pooled.compare(blocks, "b", "a").middle == pytest.approx(-0.25)


def test_three_settings_by_hand() -> None:
    """From three settings on the spread between them makes the interval, also of one run each."""
    blocks = [block(k, a=[value], b=[0.0]) for k, value in enumerate((0.1, 0.2, 0.3))]
    seen = pooled.compare(blocks, "a", "b")
    width = pooled.t_value(0.95, 2) * 0.1 / math.sqrt(3)
    assert seen.low == pytest.approx(0.2 - width) and seen.verdict == 0
    assert pooled.compare(blocks[:2], "a", "b").low is None
    steady = [block(k, a=[0.1], b=[0.0]) for k in range(3)]
    assert pooled.compare(steady, "a", "b").high == pytest.approx(0.1 + pooled.t_value(0.95, 2) * NOISE / math.sqrt(3))


def test_a_lead_that_is_sure_in_each_setting_is_sure_though_it_differs() -> None:
    blocks = [block(k, a=[value, value + 0.01, value - 0.01], b=[0.0] * 3) for k, value in enumerate((0.1, 0.5, 1.5))]
    seen = pooled.compare(blocks, "a", "b")
    assert seen.low is not None and seen.low < 0 and seen.verdict == 1


def test_without_a_common_repeat_medians_are_compared_and_nothing_is_sure() -> None:
    only = Block(1, {"a": {1: 0.5, 2: 0.7}, "b": {3: 0.1}})
    seen = pooled.compare([only], "a", "b")
    assert (seen.middle, seen.low, seen.verdict) == (pytest.approx(0.5), None, 0)
    with pytest.raises(ValueError, match="share no setting"):
        pooled.compare([only], "a", "c")


def test_an_unsteady_side_widens_its_own_interval_alone() -> None:
    noise = {"a": [0.0, 0.001, -0.001], "b": [0.1, 0.101, 0.0995], "c": [0.0, 0.5, -0.5]}
    quiet = pooled.compare([block(1, a=noise["a"], b=noise["b"])], "b", "a")
    beside = pooled.compare([block(1, **noise)], "c", "a")
    assert quiet.verdict == 1 and beside.verdict == 0 and beside.low is not None and beside.low < -0.5


def test_a_turn_is_found_where_it_is() -> None:
    rng = np.random.default_rng(1)
    for at, count in ((64, 11), (2, 3)):
        sizes = [2**k for k in range(count)]
        blocks = [
            block(n, float(n), a=[*(lead + rng.normal(0, 0.02, 3))], b=[0.0] * 3)
            for n in sizes
            for lead in ((0.2 if n <= at else -0.2),)
        ]
        turn = pooled.turn(blocks, "a", "b")
        assert turn and turn.at == at and turn.below.middle > 0 > turn.above.middle
        assert pooled.turn(blocks[:1], "a", "b") is None
    steady = [block(n, float(n), a=[*(0.1 + rng.normal(0, 0.02, 1))], b=[0.0]) for n in range(20)]
    assert pooled.turn(steady, "a", "b") is None


def test_sides_are_ranked_by_how_many_they_are_ahead_of() -> None:
    blocks = [block(1, a=[0.0], b=[1.0], c=[2.0]), block(2, b=[3.0], c=[0.0])]
    assert pooled.ranked(blocks, ["a", "b", "c"]) == ["b", "c", "a"]
    assert pooled.ranked(blocks, ["a", "b", "c"], lambda left, right: "b" not in (left, right))[0] == "c"


def test_accuracies_that_are_alike_differ_surely_in_few_studies() -> None:
    """Of one run nothing is sure; of two and three less than one study of twenty."""
    rng = np.random.default_rng(3)
    for repeats in (1, 2, 3):
        wrong = 0
        for _ in range(400):
            cells = {name: dict(enumerate(rng.normal(50, 2, repeats))) for name in "abc"}
            wrong += any(pooled.unpaired(cells, side, "a", "abc", 2, 0.1).verdict for side in "bc")
        assert wrong == 0 if repeats == 1 else wrong <= 24


def test_a_loss_of_eight_points_is_told_beside_what_hardly_learns() -> None:
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(400):
        cells = {"256": rng.normal(76, 1, 3), "4096": rng.normal(68, 1, 3), "65536": rng.normal(20, 15, 3)}
        values = {name: dict(enumerate(side)) for name, side in cells.items()}
        seen = pooled.unpaired(values, "4096", "256", ["256", "4096"], 2, 0.1)
        told += seen.verdict < 0 and seen.high is not None and seen.high < -1
    assert told > 380


def test_so_many_more_repeats_would_tell() -> None:
    few = pooled.compare([block(1, a=[0.1], b=[0.0])], "a", "b")
    assert pooled.more_pairs(few) == 2
    seen = pooled.compare([block(1, a=[0.01, 0.03, 0.05], b=[0.0] * 3)], "a", "b")
    more = pooled.more_pairs(seen)
    assert more is not None and 1 <= more <= 20
    hopeless = pooled.compare([block(1, a=[-0.5, 0.5, 0.0001], b=[0.0] * 3)], "a", "b")
    assert pooled.more_pairs(hopeless) is None


def test_records_of_others_which_go_by_run_are_compared_without_pairs() -> None:
    """By hand: means 0.3 and 0, each of three runs with spread 0.1, 4 degrees of freedom."""
    cells = {"a": {"x1": 0.2, "x2": 0.3, "x3": 0.4}, "b": {"y1": -0.1, "y2": 0.0, "y3": 0.1}}
    seen = pooled.compare([Block(1, cells)], "a", "b")
    width = pooled.t_value(0.95, 4) * 0.1 * math.sqrt(2 / 3)
    assert (seen.n, seen.free) == (3, 4.0)
    assert (seen.middle, seen.low, seen.high) == (
        pytest.approx(0.3),
        pytest.approx(0.3 - width),
        pytest.approx(0.3 + width),
    )
    few = {side: dict(list(values.items())[:2]) for side, values in cells.items()}
    assert pooled.compare([Block(1, few)], "a", "b").verdict == 0


def test_of_two_settings_none_may_say_the_opposite() -> None:
    """However far ahead it is in the other one."""
    far, behind = [1.0, 1.001, 0.999], [-0.1, -0.101, -0.099]
    for second, verdict in ((far, 1), (behind, 0)):
        seen = pooled.compare([block(1, a=far, b=[0.0] * 3), block(2, a=second, b=[0.0] * 3)], "a", "b")
        assert seen.low is not None and seen.low > 0
        assert seen.verdict == verdict
