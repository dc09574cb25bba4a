"""One ratio over many settings: by hand on small numbers, and on made-up studies with known
truth.
"""

import math

import numpy as np
import pytest
from ddlbench.analysis import over_settings
from ddlbench.analysis.intervals import NOISE, student_t
from ddlbench.analysis.over_settings import Block


def block(place: int, size: float = 0.0, **cells: list[float]) -> Block:
    return Block(place, {name: dict(enumerate(values)) for name, values in cells.items()}, size)


def test_two_settings_by_hand() -> None:
    """Pairs 0.1, 0.3 and 0.2, 0.4: the middle is 0.25; the spread of a pair 0.1414 with 2 degrees
    of freedom.
    """
    blocks = [block(1, a=[0.1, 0.3], b=[0.0, 0.0]), block(2, a=[0.2, 0.4], b=[0.0, 0.0])]
    seen = over_settings.compare(blocks, "a", "b")
    assert (seen.middle, seen.settings, seen.leads, seen.n, seen.pairs) == (
        pytest.approx(0.25),
        2,
        2,
        2,
        4,
    )
    assert (seen.spread, seen.free) == (pytest.approx(0.1 * math.sqrt(2)), 2.0)
    width = student_t(0.95, 2) * 0.1 * math.sqrt(2) / 2
    assert (seen.low, seen.high) == (pytest.approx(0.25 - width), pytest.approx(0.25 + width))
    assert over_settings.compare(blocks, "b", "a").middle == pytest.approx(-0.25)


def test_three_settings_by_hand() -> None:
    """From three settings on the spread between them makes the interval, also of one run each."""
    blocks = [block(k, a=[value], b=[0.0]) for k, value in enumerate((0.1, 0.2, 0.3))]
    seen = over_settings.compare(blocks, "a", "b")
    width = student_t(0.95, 2) * 0.1 / math.sqrt(3)
    assert seen.low == pytest.approx(0.2 - width) and seen.verdict == 0
    assert over_settings.compare(blocks[:2], "a", "b").low is None
    steady = [block(k, a=[0.1], b=[0.0]) for k in range(3)]
    assert over_settings.compare(steady, "a", "b").high == pytest.approx(
        0.1 + student_t(0.95, 2) * NOISE / math.sqrt(3)
    )


def test_a_lead_that_is_sure_in_each_setting_is_sure_though_it_differs() -> None:
    blocks = [
        block(k, a=[value, value + 0.01, value - 0.01], b=[0.0] * 3)
        for k, value in enumerate((0.1, 0.5, 1.5))
    ]
    seen = over_settings.compare(blocks, "a", "b")
    assert seen.low is not None and seen.low < 0 and seen.verdict == 1


def test_without_a_common_repeat_medians_are_compared_and_nothing_is_sure() -> None:
    only = Block(1, {"a": {1: 0.5, 2: 0.7}, "b": {3: 0.1}})
    seen = over_settings.compare([only], "a", "b")
    assert (seen.middle, seen.low, seen.verdict) == (pytest.approx(0.5), None, 0)
    with pytest.raises(ValueError, match="share no setting"):
        over_settings.compare([only], "a", "c")


def test_an_unsteady_side_widens_its_own_interval_alone() -> None:
    noise = {"a": [0.0, 0.001, -0.001], "b": [0.1, 0.101, 0.0995], "c": [0.0, 0.5, -0.5]}
    quiet = over_settings.compare([block(1, a=noise["a"], b=noise["b"])], "b", "a")
    beside = over_settings.compare([block(1, **noise)], "c", "a")
    assert (
        quiet.verdict == 1 and beside.verdict == 0 and beside.low is not None and beside.low < -0.5
    )


def test_a_turn_is_found_where_it_is() -> None:
    rng = np.random.default_rng(1)
    for at, count in ((64, 11), (2, 3)):
        sizes = [2**k for k in range(count)]
        blocks = [
            block(n, float(n), a=[*(lead + rng.normal(0, 0.02, 3))], b=[0.0] * 3)
            for n in sizes
            for lead in ((0.2 if n <= at else -0.2),)
        ]
        turn = over_settings.turn(blocks, "a", "b")
        assert turn and turn.at == at and turn.below.middle > 0 > turn.above.middle
        assert over_settings.turn(blocks[:1], "a", "b") is None
    steady = [block(n, float(n), a=[*(0.1 + rng.normal(0, 0.02, 1))], b=[0.0]) for n in range(20)]
    assert over_settings.turn(steady, "a", "b") is None


def test_sides_are_ranked_by_how_many_they_are_ahead_of() -> None:
    blocks = [block(1, a=[0.0], b=[1.0], c=[2.0]), block(2, b=[3.0], c=[0.0])]
    assert over_settings.ranked(blocks, ["a", "b", "c"]) == ["b", "c", "a"]
    assert (
        over_settings.ranked(blocks, ["a", "b", "c"], lambda left, right: "b" not in (left, right))[
            0
        ]
        == "c"
    )


def test_accuracies_that_are_alike_differ_surely_in_few_studies() -> None:
    """Of one run nothing is sure; of two and three less than one study of twenty."""
    rng = np.random.default_rng(3)
    for repeats in (1, 2, 3):
        wrong = 0
        for _ in range(400):
            cells = {name: dict(enumerate(rng.normal(50, 2, repeats))) for name in "abc"}
            wrong += any(
                over_settings.unpaired(cells, side, "a", "abc", 2, 0.1).verdict for side in "bc"
            )
        assert wrong == 0 if repeats == 1 else wrong <= 24


def test_a_loss_of_eight_points_is_told_beside_what_hardly_learns() -> None:
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(400):
        cells = {
            "256": rng.normal(76, 1, 3),
            "4096": rng.normal(68, 1, 3),
            "65536": rng.normal(20, 15, 3),
        }
        values = {name: dict(enumerate(side)) for name, side in cells.items()}
        seen = over_settings.unpaired(values, "4096", "256", ["256", "4096"], 2, 0.1)
        told += seen.verdict < 0 and seen.high is not None and seen.high < -1
    assert told > 380


def test_so_many_more_repeats_would_tell() -> None:
    few = over_settings.compare([block(1, a=[0.1], b=[0.0])], "a", "b")
    assert over_settings.more_pairs(few) == 2
    seen = over_settings.compare([block(1, a=[0.01, 0.03, 0.05], b=[0.0] * 3)], "a", "b")
    more = over_settings.more_pairs(seen)
    assert more is not None and 1 <= more <= 20
    hopeless = over_settings.compare([block(1, a=[-0.5, 0.5, 0.0001], b=[0.0] * 3)], "a", "b")
    assert over_settings.more_pairs(hopeless) is None


def test_records_of_others_which_go_by_run_are_compared_without_pairs() -> None:
    """By hand: means 0.3 and 0, each of three runs with spread 0.1, 4 degrees of freedom."""
    cells = {"a": {"x1": 0.2, "x2": 0.3, "x3": 0.4}, "b": {"y1": -0.1, "y2": 0.0, "y3": 0.1}}
    seen = over_settings.compare([Block(1, cells)], "a", "b")
    width = student_t(0.95, 4) * 0.1 * math.sqrt(2 / 3)
    assert (seen.n, seen.free) == (3, 4.0)
    assert (seen.middle, seen.low, seen.high) == (
        pytest.approx(0.3),
        pytest.approx(0.3 - width),
        pytest.approx(0.3 + width),
    )
    few = {side: dict(list(values.items())[:2]) for side, values in cells.items()}
    assert over_settings.compare([Block(1, few)], "a", "b").verdict == 0


def test_of_two_settings_none_may_say_the_opposite() -> None:
    """However far ahead it is in the other one."""
    far, behind = [1.0, 1.001, 0.999], [-0.1, -0.101, -0.099]
    for second, verdict in ((far, 1), (behind, 0)):
        seen = over_settings.compare(
            [block(1, a=far, b=[0.0] * 3), block(2, a=second, b=[0.0] * 3)], "a", "b"
        )
        assert seen.low is not None and seen.low > 0
        assert seen.verdict == verdict


# Values by hand

# Student's t of the 96 % interval, from a table, by its degrees of freedom; T_996 that of the 99.6
# %.
T_96 = {2: 4.8487, 3: 3.4819, 4: 2.9985, 5: 2.7565, 6: 2.6122}
T_996 = {2: 15.7692}


def around(middle: float, spread: float, count: int = 3) -> list[float]:
    """Values with this mean, median and standard deviation: two at the ends, the others in the
    middle.
    """
    end = spread * math.sqrt((count - 1) / 2)
    return [middle - end, *[middle] * (count - 2), middle + end]


def one(middle: float, spread: float = 0.01, count: int = 3) -> list[Block]:
    """One setting in which `a` is ahead of `b` by that."""
    return [block(1, a=around(middle, spread, count), b=[0.0] * count)]


def test_the_spread_of_all_pairs_of_sides() -> None:
    """a - b: 0, 0.2, 0.4; a - c: -0.1, 0.1, 0.3; b - c: -0.1 each. Squares 0.08, 0.08 and 0 over 3
    x 2 differences.
    """
    of_three = block(1, a=[0.0, 0.2, 0.4], b=[0.0] * 3, c=[0.1] * 3)
    seen = over_settings.spread_of([of_three])
    assert (seen.deviation, seen.free) == (
        pytest.approx(math.sqrt(0.16 / 6)),
        pytest.approx(4.0),
    )  # (3 - 1) (3 - 1)
    assert seen.between == 0.0
    twice = over_settings.spread_of(
        [of_three, block(2, a=[0.3], b=[0.0])]
    )  # which says nothing of repeats
    assert (twice.deviation, twice.free) == (pytest.approx(seen.deviation), pytest.approx(4.0))
    assert over_settings.spread_of([block(1, a=[1.0], b=[2.0])]).free == 0.0
    assert math.isnan(over_settings.spread_of([block(1, a=[1.0], b=[2.0])]).deviation)


def test_what_settings_differ_by_is_the_median_over_pairs_of_sides() -> None:
    """Standard deviations of 0.1 (a - b), 0.3 (a - c) and 0.4 (b - c)."""
    blocks = [block(k, a=[0.1 * k], b=[0.0], c=[0.4 * k]) for k in range(3)]
    assert over_settings.spread_of(blocks).between == pytest.approx(0.3)
    assert over_settings.spread_of(blocks[:2]).between == 0.0  # two settings tell nothing
    assert over_settings.spread_of(
        [block(k, a=[0.1 * k], b=[0.0]) for k in range(3)]
    ).between == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("middle", "one_of", "verdict"),
    [
        (T_96[2] + 0.01, 1, 1),
        (T_96[2] - 0.01, 1, 0),
        (T_996[2] + 0.02, 10, 1),
        (T_996[2] - 0.02, 10, 0),
        (-T_96[2] - 0.01, 1, -1),
        (-T_96[2] + 0.01, 1, 0),
    ],
)
def test_a_verdict_is_surer_where_one_of_many_would_decide(
    middle: float, one_of: float, verdict: int
) -> None:
    """`middle` in standard errors."""
    error = 0.01 / math.sqrt(3)
    seen = over_settings.compare(one(middle * error), "a", "b", one_of)
    assert (seen.verdict, seen.spread, seen.free) == (verdict, pytest.approx(0.01), 2.0)
    cells = {"a": {"x": 1.0, "y": 1.0 + middle / 100}, "b": {"x": 0.0, "y": 0.0}}
    assert (
        over_settings.compare([Block(1, cells)], "a", "b", one_of).verdict == 0
    )  # two pairs tell nothing


def test_so_many_pairs_a_verdict_asks_for() -> None:
    for fewest, verdict in ((2, 1), (3, 1), (4, 0)):
        assert over_settings.compare(one(1.0), "a", "b", fewest=fewest).verdict == verdict
    names = {"a": {"x1": 1.0, "x2": 1.01, "x3": 0.99}, "b": {"y1": 0.0, "y2": 0.01, "y3": -0.01}}
    for fewest, verdict in ((3, 1), (4, 0)):
        assert over_settings.compare([Block(1, names)], "a", "b", fewest=fewest).verdict == verdict


def test_settings_of_several_sizes_are_counted() -> None:
    blocks = [
        block(1, a=[0.1, 0.2, 0.3], b=[0.0] * 3),
        block(2, a=[-0.1, -0.3], b=[0.0] * 2),
        block(3, a=[9.0]),
    ]
    seen = over_settings.compare(blocks, "a", "b")
    assert (seen.settings, seen.leads, seen.n, seen.pairs) == (2, 1, 3, 5)
    assert seen.middle == pytest.approx(0.0)
    assert math.isnan(seen.between)
    assert [one.place for one in over_settings.shared(blocks, "a", "b")] == [1, 2]


def test_an_interval_holds_the_middle_that_is_shown() -> None:
    """Of pairs that lie on one side the mean is not the median: 0.45 of 11 zeros and 9 ones."""
    pairs = [0.0] * 11 + [1.0] * 9
    seen = over_settings.compare([block(1, a=pairs, b=[0.0] * 20)], "a", "b")
    back = over_settings.compare([block(1, a=pairs, b=[0.0] * 20)], "b", "a")
    width = 2.0930 * math.sqrt(20 * 0.45 * 0.55 / 19 / 20)
    assert (seen.middle, seen.low, seen.high) == (0.0, 0.0, pytest.approx(0.45 + width, rel=1e-4))
    assert (back.middle, back.low, back.high) == (0.0, pytest.approx(-0.45 - width, rel=1e-4), 0.0)


@pytest.mark.parametrize(("least", "verdict"), [(0.02, 1), (0.012, 0), (-0.02, 0)])
def test_of_settings_that_differ_each_may_be_sure_by_itself(least: float, verdict: int) -> None:
    """2.6 standard errors of 0.01 / sqrt(3), with 6 degrees of freedom, are 0.015."""
    blocks = [
        block(k, a=around(value, 0.01), b=[0.0] * 3) for k, value in enumerate((least, 0.5, 1.5))
    ]
    seen = over_settings.compare(blocks, "a", "b")
    assert (seen.verdict, seen.free) == (verdict, 6.0)
    assert seen.between == pytest.approx(np.std([least, 0.5, 1.5], ddof=1))


@pytest.mark.parametrize(
    ("settings", "differ", "verdict"),
    [(3, 0.01, 1), (3, 0.3, 0), (5, 0.3, 0), (6, 0.3, 1), (3, 0.0, 1)],
)
def test_few_settings_that_agree_count_as_if_they_differed_as_others_do(
    settings: int, differ: float, verdict: int
) -> None:
    """a - b is 0.1 everywhere; c differs between settings by so much."""
    cells = [around(0.0, differ, settings)[k] for k in range(settings)]
    blocks = [block(k, a=[0.1], b=[0.0], c=[value]) for k, value in enumerate(cells)]
    everywhere = over_settings.spread_of(blocks)
    assert everywhere.between == pytest.approx(differ)
    assert over_settings.compare(blocks, "a", "b", overall=everywhere).verdict == verdict
    alone = [block(k, a=[0.1], b=[0.0]) for k in range(settings)]
    assert over_settings.compare(alone, "a", "b").verdict == 1


def test_settings_differ_at_least_by_the_noise_of_their_runs() -> None:
    """Medians that agree, of pairs that vary by 0.3: an error of 0.3 / 3."""
    blocks = [block(k, a=around(0.1, 0.3), b=[0.0] * 3) for k in range(3)]
    assert over_settings.compare(blocks, "a", "b").verdict == 0
    steady = [block(k, a=around(0.1, 0.03), b=[0.0] * 3) for k in range(3)]
    assert T_96[2] * 0.03 / 3 < 0.1 < T_96[2] * 0.3 / 3
    assert over_settings.compare(steady, "a", "b").verdict == 1


def test_which_spread_of_a_pair_counts() -> None:
    of_all = [block(1, a=[0.0] * 3, b=[1.0] * 3, c=around(0.0, 0.3))]
    everywhere = over_settings.spread_of(of_all)
    quiet = over_settings.compare(of_all, "b", "a", overall=everywhere)
    assert (quiet.spread, quiet.free) == (pytest.approx(everywhere.deviation), pytest.approx(4.0))
    unsteady = over_settings.compare(of_all, "c", "a", overall=everywhere)
    assert (unsteady.spread, unsteady.free) == (pytest.approx(0.3), 2.0)
    assert over_settings.compare(of_all, "b", "a") == quiet
    two = [block(1, a=[0.0] * 3, b=[1.0] * 3)]
    alone = over_settings.compare(two, "b", "a")
    assert (alone.spread, alone.free) == (NOISE, 2.0)
    assert over_settings.compare(two, "b", "a", noise=0.2).spread == 0.2
    assert over_settings.compare(of_all, "c", "a", noise=0.4).spread == 0.4
    settled = [block(k, a=around(0.1, 0.01), b=[0.0] * 3) for k in range(3)]
    said = over_settings.compare(
        settled, "a", "b", overall=over_settings.Spread(0.02, 9.0)
    )  # of settings it says nothing
    assert (said.spread, said.free, said.verdict) == (0.02, 9.0, 1)


def test_unpaired_sides_are_judged_with_those_that_are_steady() -> None:
    """Spreads of 0.1 (a), 0.1 (b) and 0.4 (c), of three runs each."""
    cells = {
        name: dict(enumerate(around(middle, spread)))
        for name, middle, spread in (("a", 1.0, 0.1), ("b", 0.7, 0.1), ("c", 0.0, 0.4))
    }
    with_c = math.sqrt((0.01 + 0.01 + 0.16) / 3)
    for steady, spread, free in (
        ((), 0.1, 4.0),
        ("abc", with_c, 6.0),
        ("ac", 0.1, 4.0),
        ("ab", 0.1, 4.0),
    ):
        seen = over_settings.unpaired(cells, "a", "b", steady)
        assert (seen.spread, seen.free) == (pytest.approx(spread * math.sqrt(2)), free)
        assert math.isnan(seen.between)
        assert (seen.middle, seen.leads, seen.n, seen.pairs, seen.settings) == (
            pytest.approx(0.3),
            1,
            3,
            3,
            1,
        )
        width = student_t(0.95, free) * spread * math.sqrt(2 / 3)
        assert (seen.low, seen.high) == (pytest.approx(0.3 - width), pytest.approx(0.3 + width))
    unsteady = over_settings.unpaired(cells, "c", "a", "abc")  # these two vary more than all
    assert (unsteady.spread, unsteady.free) == (pytest.approx(math.sqrt(0.17)), 4.0)
    assert (unsteady.leads, unsteady.verdict) == (0, -1)
    assert over_settings.unpaired(cells, "a", "b", (), noise=0.2).spread == pytest.approx(
        0.2 * math.sqrt(2)
    )


def test_an_unpaired_verdict_is_surer_where_one_of_many_would_decide() -> None:
    """Standard errors of 0.1 sqrt(2 / 3) with 4 degrees of freedom: 3.0 of them are 96 %, 5.0 are
    99.2 %.
    """
    error = 0.1 * math.sqrt(2 / 3)
    for lead, one_of, verdict in (
        (2.98, 1, 0),
        (3.02, 1, 1),
        (3.02, 5, 0),
        (5.5, 5, 1),
        (-3.02, 1, -1),
    ):
        cells = {
            "a": dict(enumerate(around(lead * error, 0.1))),
            "b": dict(enumerate(around(0.0, 0.1))),
        }
        assert over_settings.unpaired(cells, "a", "b", (), one_of).verdict == verdict


def test_an_unpaired_interval_holds_the_middle_that_is_shown_and_counts_the_smaller_side() -> None:
    skewed = {"a": dict(enumerate([0.0] * 11 + [1.0] * 9)), "b": dict(enumerate([0.0, 0.0] * 20))}
    assert over_settings.unpaired(skewed, "a", "b", ()).low == 0.0
    assert over_settings.unpaired(skewed, "b", "a", ()).high == 0.0
    assert over_settings.unpaired(skewed, "a", "b", ()).n == 20
    single = {"a": {0: 0.5}, "b": {0: 0.2}}
    seen = over_settings.unpaired(single, "a", "b", ())
    assert (seen.middle, seen.low, seen.high, seen.leads, seen.verdict, seen.free) == (
        0.3,
        None,
        None,
        1,
        0,
        0.0,
    )
    assert (seen.n, seen.pairs, seen.settings, math.isnan(seen.spread)) == (1, 1, 1, True)


def settings(*leads: float, spread: float = 0.0, count: int = 1) -> list[Block]:
    """Settings of sizes 1, 2, 3, ..., in which `a` is ahead by so much."""
    return [
        block(
            size,
            float(size),
            a=around(lead, spread, count) if count > 1 else [lead],
            b=[0.0] * count,
        )
        for size, lead in enumerate(leads, 1)
    ]


@pytest.mark.parametrize(
    ("leads", "one_of", "at"),
    [
        ((0.2, 0.2, -0.2, -0.2, -0.2), 1, 2),
        ((-0.2, -0.2, -0.2, 0.2, 0.2), 1, 3),
        ((0.1, 0.0, 0.02, -0.1, 0.0, -0.02), 1, None),  # a mean of 0.04 beside 3.0 errors of 0.03
        ((0.20, 0.1, 0.12, -0.2, -0.1, -0.12), 1, 3),  # 0.14 beside 0.09
        ((0.20, 0.1, 0.12, -0.2, -0.1, -0.12), 20, None),  # beside 0.22: 7.2 errors
        ((0.2, 0.2, 0.2, 0.2, 0.2), 1, None),
        ((0.2, 0.2, 0.0, -0.2, -0.2), 1, None),
        ((0.2, 0.2, 0.2, 0.01, -0.2, -0.2, -0.2), 1, 4),  # of several splits the surest
        ((0.2, 0.2, 0.2, -0.01, -0.2, -0.2, -0.2), 1, 3),
        ((0.2, -0.2, -0.2), 1, None),  # nothing says how runs vary
    ],
)
def test_where_a_lead_turns_of_settings_tried_once(
    leads: tuple[float, ...], one_of: float, at: float | None
) -> None:
    turn = over_settings.turn(settings(*leads), "a", "b", one_of)
    assert (turn and turn.at) == at
    if turn:
        assert (turn.below.settings, turn.above.settings) == (at, len(leads) - turn.at)
        assert turn.below.middle * leads[0] > 0 > turn.below.middle * turn.above.middle


def test_where_a_lead_turns_of_few_settings_with_repeats() -> None:
    """Four settings of three pairs, with 8 degrees of freedom: 2.45 errors of 0.1 / sqrt(6) are
    0.10.
    """
    for lead, one_of, at in ((0.11, 1, 2), (0.09, 1, None), (0.11, 100, None)):
        turn = over_settings.turn(
            settings(lead, lead, -lead, -lead, spread=0.1, count=3), "a", "b", one_of
        )
        assert (turn and turn.at) == at
    by_place = over_settings.turn(
        settings(0.3, 0.3, -0.3, -0.3, spread=0.1, count=3),
        "b",
        "a",
        size=lambda block: -10 * block.size,
    )
    assert by_place and by_place.at == -30 and by_place.below.middle > 0


def test_a_side_that_is_compared_with_none_is_the_last() -> None:
    blocks = [block(1, a=[0.0], b=[1.0]), block(2, b=[0.0], c=[0.5]), block(3, d=[9.0])]
    assert over_settings.ranked(blocks, ["d", "a", "b", "c"]) == [
        "c",
        "b",
        "a",
        "d",
    ]  # c is ahead by more on average
    asked: list[tuple[str, str]] = []

    def fair(left: str, right: str) -> bool:
        asked.append((left, right))
        return (left, right) == ("b", "c")

    assert over_settings.ranked(blocks, ["a", "b", "c"], fair) == ["c", "b", "a"]
    assert asked == [("a", "b"), ("a", "c"), ("b", "c")]


def found(
    middle: float,
    settings: int,
    n: int,
    pairs: int,
    spread: float,
    free: float,
    between: float = math.nan,
) -> over_settings.Pooled:
    return over_settings.Pooled(middle, None, None, settings, 0, n, pairs, 0, spread, free, between)


@pytest.mark.parametrize(
    ("seen", "one_of", "more"),
    [
        (found(0.1, 1, 1, 1, math.nan, 0.0), 1, 2),  # three are the fewest
        (found(0.1, 2, 1, 2, math.nan, 0.0), 1, 2),
        (found(0.1, 1, 5, 5, math.nan, 0.0), 1, 1),
        # An effect of 0.1 - 0.1 / 4 beside 3.48 + 0.84 errors of 0.1 / sqrt(4 (1 + more)).
        (found(0.1, 4, 1, 4, 0.1, 3.0, 0.1), 1, 8),
        (found(-0.1, 4, 1, 4, 0.1, 3.0, 0.1), 1, 8),
        (found(0.1, 4, 1, 4, 0.1, 3.0, 0.1), 10, 35),  # 8.05 + 0.84 errors
        (
            found(0.1, 4, 2, 8, 0.1, 3.0, 0.075),
            1,
            11,
        ),  # 0.000625 of the variance are no noise of runs
        (
            found(0.1, 4, 1, 4, 0.1, 3.0, 0.3),
            1,
            None,
        ),  # they differ, however often they are repeated
        (found(0.1, 4, 1, 4, 0.1, 3.0, 0.4), 1, None),  # nothing is left of the effect
        (found(0.0, 1, 3, 3, 0.1, 2.0), 1, None),
        # An effect of 0.1 - 0.1 / sqrt(3) / 2, of spread 0.1: normal, 1.57 (2.05 + 0.84)^2 (0.1 /
        # 0.071)^2.
        (found(0.1, 1, 3, 3, 0.1, 2.0), 1, 24),
        (found(0.1, 2, 3, 6, 0.1, 4.0), 1, 8),
        (found(0.1, 2, 3, 6, 0.1, 10.0), 1, 4),  # other sides say how runs vary
        (found(0.01, 1, 3, 3, 0.1, 2.0), 1, None),
    ],
)
def test_so_many_more_repeats_by_hand(
    seen: over_settings.Pooled, one_of: float, more: int | None
) -> None:
    assert over_settings.more_pairs(seen, one_of) == more
