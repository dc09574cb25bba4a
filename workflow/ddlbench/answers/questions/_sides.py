"""What frameworks, loaders and forms have in common: sides of the same settings, ranked by all
settings together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from ddlbench.analysis import over_settings, together
from ddlbench.analysis.over_settings import Block
from ddlbench.answers import (
    LOSS,
    PLAIN,
    Also,
    Answer,
    Candidate,
    Certainty,
    Choice,
    Dot,
    Fact,
    Given,
    Note,
    Over,
    Row,
    Settles,
    Turns,
    certainty_of,
    loads_nothing,
    ratio_of,
)
from ddlbench.answers.questions._settings import (
    Setting,
    all_sides,
    number_of_pairs,
    with_several_sides,
)

OTHER_ROOM = {
    "framework": "loader",
    "loader": "framework",
}  # what both sides share, and another answer takes
ROWS = 16  # of a figure
OTHERS = 40  # other settings that are told; the table of pairs has all
POINTS = 0.1  # of top-1 by which repeats differ at least
Fair = Callable[[Candidate, Candidate], bool]  # whether two sides may be compared


def answer(given: Given, choice: Choice, axis: str) -> Answer | None:
    """Return which side to take: the one that is ahead over all settings, of those that lose no
    accuracy significantly.

    Where the lead changes significantly along the workers, or with what another answer takes, only
    the settings on the side of the choice count. Of sides that are alike to 5 % one that comes with
    PyTorch is taken.
    """
    settings = with_several_sides(given, axis)
    if not settings:
        return None
    comparisons = given.counted_comparisons(number_of_pairs(given))
    sides = all_sides(settings)
    forms_by_loader = _forms_by_loader(given) if axis == "loader" else {}
    ceiling = _ceiling(sides, axis)
    judged = [side for side in sides if side not in ceiling]
    losses = _losses(given, settings, judged)
    losers = losing(given, axis)
    eligible = [side for side in judged if side not in losers]

    def fair(left: Candidate, right: Candidate) -> bool:
        return _are_comparable(left, right, forms_by_loader)

    used, turns = _where_it_turns(settings, eligible, choice, axis, comparisons, fair)
    blocks = [setting.rates for setting in used]
    order, taken, pooled_ratios = judge(blocks, eligible, comparisons, fair)
    as_good = [
        side
        for side, over in pooled_ratios.items()
        if over.verdict < 1 or certainty_of(over) is Certainty.TIE
    ]
    not_compared = [side for side in order if side != taken and side not in pooled_ratios]
    rival = next(iter(as_good or pooled_ratios), None)
    here = _nearest(used, choice, taken)
    facts = [_rates(here, order, ceiling), *losses]
    facts += _depends(
        used, taken, [side for side in order if side != taken and fair(taken, side)], comparisons
    )
    if ceiling:
        facts.append(
            Fact(
                "ceiling",
                {
                    "side": taken,
                    "ceiling": ceiling[0],
                    "share": _share_of_ceiling(settings, taken, ceiling[0]),
                },
            )
        )
    if not_compared:
        facts.append(Fact("alone", {"sides": tuple(not_compared), "taken": taken}))
    rows = _rows(used, settings, [*ceiling, *judged], taken, pooled_ratios, losers, fair, given)
    return Answer(
        question=axis,
        rule="fastest",
        certainty=certainty(pooled_ratios.values(), not_compared),
        taken=taken,
        among=tuple(order),
        as_good=tuple(as_good),
        over=pooled_ratios[rival] if rival else None,
        turns=turns,
        measure="ratio",
        unit=given.sample,
        rows=shown(rows, ROWS),
        hidden=max(0, len(rows) - ROWS),
        settles=_settles(
            given,
            used,
            taken,
            [pooled_ratios[side] for side in as_good or [*pooled_ratios][:1]],
            comparisons,
        ),
        why=tuple(facts),
        also=tuple(_also(settings, order, fair)[:OTHERS]) if len(settings) > 1 else (),
        runs=tuple(
            dict.fromkeys(
                run for setting in used for runs in setting.runs.values() for run in runs.values()
            )
        ),
        open=_undecided_runs(used, taken, pooled_ratios.values()),
    )


def judge(
    blocks: Sequence[Block],
    sides: Sequence[Candidate],
    comparisons: float,
    fair: Fair = lambda left, right: True,
) -> tuple[list[Candidate], Candidate, dict[Candidate, Over]]:
    """Return the sides by their rank, the one to take, and how it compares with each of the others:
    the best, or of those that are alike to it one that comes with PyTorch.
    """
    order = [
        side
        for side in over_settings.ranked(blocks, sides, fair)
        if any(side in block.cells for block in blocks)
    ]
    best, *others = order
    pooled_ratios = _pooled_ratios(
        blocks, best, [side for side in others if fair(best, side)], comparisons
    )
    taken = _first_with_pytorch(
        [
            best,
            *(side for side, over in pooled_ratios.items() if certainty_of(over) is Certainty.TIE),
        ]
    )
    if taken != best:
        pooled_ratios = _pooled_ratios(
            blocks,
            taken,
            [side for side in order if side != taken and fair(taken, side)],
            comparisons,
        )
    return order, taken, pooled_ratios


def _undecided_runs(
    used: Sequence[Setting], taken: Candidate, pooled_ratios: Iterable[Over]
) -> tuple[str, ...]:
    """Return the runs of the side taken and of rivals that may yet prove better, in the settings
    that both share.
    """
    rivals = {
        over.against
        for over in pooled_ratios
        if not over.verdict and certainty_of(over) is not Certainty.TIE
    }
    runs = [
        setting.runs[side].values()
        for setting in used
        for side in (taken, *rivals)
        if taken in setting.runs and rivals & {*setting.runs} and side in setting.runs
    ]
    return tuple(dict.fromkeys(run for each in runs for run in each))


def _forms_by_loader(given: Given) -> dict[str, set[str]]:
    """Return the forms that each loader reads in this study."""
    runs = together.timed(given.runs)
    return {
        str(name): {str(form) for form in part["form"].dropna()}
        for name, part in runs.groupby("loader")
    }


def _are_comparable(
    left: Candidate, right: Candidate, forms_by_loader: Mapping[str, set[str]]
) -> bool:
    """Return whether two loaders can be compared: both read the same form, or neither reads the
    other's form here.
    """
    if left.loader is None or right.loader is None:
        return True
    left_forms, right_forms = (
        forms_by_loader.get(str(side.loader), set()) for side in (left, right)
    )
    form, other = (
        side.form or "".join(sorted(forms))
        for side, forms in ((left, left_forms), (right, right_forms))
    )
    return form == other or not (form in right_forms or other in left_forms)


def _pooled_ratios(
    blocks: Sequence[Block], side: Candidate, rivals: Sequence[Candidate], comparisons: float
) -> dict[Candidate, Over]:
    """Return the pooled ratio of a side to each rival that shares a setting with it."""
    overall = over_settings.spread_of(blocks)
    return {
        rival: ratio_of(
            over_settings.compare(blocks, side, rival, comparisons, overall=overall), side, rival
        )
        for rival in rivals
        if over_settings.shared(blocks, side, rival)
    }


def _first_with_pytorch(sides: Sequence[Candidate]) -> Candidate:
    """Return the first side that comes with PyTorch, else the first."""
    for name in PLAIN:
        for side in sides:
            if name in side.known.values():
                return side
    return sides[0]


def _ceiling(sides: Sequence[Candidate], axis: str) -> list[Candidate]:
    """Return the sides that load nothing, beside others that do: what a loader can reach at
    best.
    """
    ceiling = [side for side in sides if axis == "loader" and loads_nothing(side.loader)]
    return [] if len(ceiling) == len(sides) else ceiling


def losing(given: Given, axis: str) -> frozenset[Candidate]:
    """Return the sides that lose significantly more than a point of accuracy: none of them is
    taken.
    """

    def find() -> frozenset[Candidate]:
        found = with_several_sides(given, axis)
        sides = all_sides(found)
        ceiling = _ceiling(sides, axis)
        losses = _losses(given, found, [side for side in sides if side not in ceiling])
        return frozenset(fact.values["candidate"] for fact in losses if fact.values["dropped"])

    sides: frozenset[Candidate] = given.cached(f"losing {axis}", find)
    return sides


def _losses(given: Given, settings: Sequence[Setting], judged: Sequence[Candidate]) -> list[Fact]:
    """Return the sides whose top-1 differs by more than a point from that of the side that comes
    with PyTorch: significantly, or as far as one run of each shows.

    A side is dropped if its whole interval, at the level of one of all of them, is more than a
    point below. One run of each, in fewer than three settings, has no interval: then the loss is
    said, and nothing is dropped.
    """
    blocks = [setting.top1 for setting in settings]
    with_top1 = [side for side in judged if any(side in block.cells for block in blocks)]
    if len(with_top1) < 2:
        return []
    baseline, facts = _first_with_pytorch(with_top1), []
    for side in with_top1:
        if side == baseline or not over_settings.shared(blocks, side, baseline):
            continue
        points = over_settings.compare(
            blocks, side, baseline, given.counted_comparisons(len(with_top1) - 1), POINTS, fewest=2
        )
        if abs(points.middle) <= LOSS:
            continue
        values = {
            "candidate": side,
            "against": baseline,
            "middle": points.middle,
            "low": points.low,
            "high": points.high,
        }
        dropped = points.verdict < 0 and points.high is not None and points.high < -LOSS
        if points.low is not None and not points.verdict:
            continue
        facts.append(
            Fact(
                "accuracy",
                values | {"n": points.n, "settings": points.settings, "dropped": dropped},
            )
        )
    return facts


def _where_it_turns(
    settings: list[Setting],
    eligible: Sequence[Candidate],
    choice: Choice,
    axis: str,
    comparisons: float,
    fair: Fair,
) -> tuple[list[Setting], Turns | None]:
    """Return the settings that count for the choice, and where along the workers the lead changes,
    if it does.
    """
    used, turns = settings, None
    blocks = [setting.rates for setting in used]
    best, *others = over_settings.ranked(blocks, eligible, fair)
    for other in others:
        if not fair(best, other):
            continue
        turn = over_settings.turn(blocks, best, other, comparisons)
        if turn:
            halves = (ratio_of(half, best, other) for half in (turn.below, turn.above))
            turns = Turns(turn.at, *halves)
            most = choice.workers or max(setting.workers for setting in used)
            used = [
                setting for setting in used if (setting.workers <= turn.at) is (most <= turn.at)
            ]
            break
    room = OTHER_ROOM.get(axis)
    chosen = getattr(choice, room) if room else None
    same_room = [setting for setting in used if room and setting.shared(room) == chosen]
    if chosen and same_room and len(same_room) < len(used):
        blocks = [setting.rates for setting in used]
        best, *others = over_settings.ranked(blocks, eligible, fair)
        with_choice = {setting.where for setting in same_room}
        if any(
            over_settings.turn(
                blocks, best, other, comparisons, lambda block: float(block.place in with_choice)
            )
            for other in others
            if fair(best, other)
        ):
            used = same_room
    return used, turns


def _depends(
    used: Sequence[Setting], taken: Candidate, others: Sequence[Candidate], comparisons: float
) -> list[Fact]:
    """Return whether the winner changes with a setting: with which value of it, such as a model or
    a precision, another side leads significantly.
    """
    values_by_setting = [
        dict([("model", setting.where.model), *setting.where.more]) for setting in used
    ]
    values = {(name, value) for one in values_by_setting for name, value in one.items()}
    for name, value in sorted(values, key=str):
        with_value = {
            setting.where
            for setting, one in zip(used, values_by_setting, strict=True)
            if one.get(name) == value
        }
        if len(with_value) == len(used):
            continue
        for other in others:
            blocks = [setting.rates for setting in used]
            turn = over_settings.turn(blocks, taken, other, comparisons, _outside(with_value))
            if turn:
                halves = [ratio_of(half, taken, other) for half in (turn.below, turn.above)]
                return [
                    Fact(
                        "depends",
                        {"name": name, "value": value, "inside": halves[0], "outside": halves[1]},
                    )
                ]
    return []


def _outside(places: set[Candidate]) -> Callable[[Block], float]:
    """Return a function that is 0 for blocks of these places, and 1 for the others."""
    return lambda block: float(block.place not in places)


def certainty(pooled_ratios: Iterable[Over], not_compared: Sequence[Candidate] = ()) -> Certainty:
    """Return the certainty that the side taken is ahead of all others: that of the least certain of
    its ratios.

    AHEAD is the least certain: more runs might change the side. It also holds where the side has no
    rival, or shares no setting with one of them (`not_compared`). FEW is next. TIE goes before
    SURE: a side that ties with one rival is not surely ahead of all.
    """
    found = {certainty_of(over) for over in pooled_ratios}
    if Certainty.AHEAD in found or not_compared or not found:
        return Certainty.AHEAD
    return next(one for one in (Certainty.FEW, Certainty.TIE, Certainty.SURE) if one in found)


def _nearest(used: Sequence[Setting], choice: Choice, taken: Candidate) -> Setting:
    """Return the setting with the side taken that fits the choice best; of equals that with the
    most workers.
    """

    def fits(setting: Setting) -> tuple[int, int, int]:
        wanted = {"framework": choice.framework, "loader": choice.loader, "workers": choice.workers}
        wanted |= {"batch": choice.batch, "schedule": choice.schedule}
        same = sum(
            getattr(setting.where, name) == value
            for name, value in wanted.items()
            if value is not None
        )
        return same, len(setting.rates.cells), setting.workers

    return max((setting for setting in used if taken in setting.rates.cells), key=fits)


def _rates(here: Setting, order: Sequence[Candidate], ceiling: Sequence[Candidate]) -> Fact:
    """Return the rates of one setting, which people know by its numbers."""
    rates = {
        side: math.exp(median(here.rates.cells[side].values()))
        for side in order
        if side in here.rates.cells
    }
    return Fact(
        "rates",
        {"where": here.where, "rates": tuple(sorted(rates.items(), key=lambda one: -one[1]))},
    )


def _share_of_ceiling(
    settings: Sequence[Setting], side: Candidate, ceiling: Candidate
) -> float | None:
    """Return how much of the ceiling's rate a side reaches."""
    blocks = [setting.rates for setting in settings]
    if not over_settings.shared(blocks, side, ceiling):
        return None
    return math.exp(over_settings.compare(blocks, side, ceiling).middle)


def _rows(
    used: Sequence[Setting],
    settings: Sequence[Setting],
    sides: Sequence[Candidate],
    taken: Candidate,
    pooled_ratios: Mapping[Candidate, Over],
    losers: frozenset[Candidate],
    fair: Fair,
    given: Given,
) -> list[Row]:
    """Return the rows of all sides: how many times as fast as the side taken each is. A dot is a
    setting; where there is only one setting, a pair of runs.
    """
    blocks, rows = [setting.rates for setting in used], []
    overall = over_settings.spread_of(blocks)
    for side in sides:
        note = (
            Note.LOSES if side in losers else Note.CEILING if loads_nothing(side.loader) else None
        )
        if side == taken:
            rows.append(Row(side, 1.0, taken=True, n=0, note=Note.BASE))
            continue
        both = [setting for setting in used if {side, taken} <= {*setting.rates.cells}]
        if not both:
            continue
        if not fair(side, taken) and note is None:
            note = Note.OTHER_FORM
        seen = ratio_of(over_settings.compare(blocks, side, taken, overall=overall), side, taken)
        dots = _dots(both, side, taken, given)
        rows.append(
            Row(side, seen.middle, seen.low, seen.high, seen.n, seen.settings, dots, note=note)
        )
    rows.sort(key=lambda row: (row.note not in (None, Note.BASE), -row.middle))
    return rows


def shown(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """Return the first rows, with the row of the side taken among them."""
    kept = [row for n, row in enumerate(rows) if n < most or row.taken]
    return tuple(kept if len(kept) <= most else [*kept[: most - 1], kept[-1]])


def _dots(
    both: Sequence[Setting], side: Candidate, other: Candidate, given: Given
) -> tuple[Dot, ...]:
    dots = []
    for setting in both:
        left, right = setting.runs[side], setting.runs[other]
        common = [repeat for repeat in left if repeat in right]
        pairs = setting.rates.pairs(side, other)
        runs: list[tuple[str, ...]] = [(left[repeat], right[repeat]) for repeat in sorted(common)]
        runs = runs or [(*left.values(), *right.values())]
        if len(both) > 1:
            pairs, runs = [median(pairs)], [tuple(run for pair in runs for run in pair)]
        dots += [
            Dot(math.exp(pair), ids, not given.warned.isdisjoint(ids))
            for pair, ids in zip(pairs, runs, strict=True)
        ]
    return tuple(dots)


def _settles(
    given: Given,
    used: Sequence[Setting],
    taken: Candidate,
    rivals: Sequence[Over],
    comparisons: float,
) -> Settles | None:
    """Return the cheapest further runs that would probably separate the side taken from one that
    might be better.
    """
    offers = []
    for over in rivals:
        if certainty_of(over) in (Certainty.TIE, Certainty.SURE):
            continue
        seen = over_settings.compare(
            [setting.rates for setting in used], taken, over.against, comparisons
        )
        more = over_settings.more_pairs(seen, comparisons)
        both = [setting for setting in used if {taken, over.against} <= {*setting.rates.cells}]
        if more is None:
            continue
        each = [(setting.once_s[taken] + setting.once_s[over.against], setting) for setting in both]
        runs_s = more * sum(took for took, _ in each)
        workers_s = more * sum(took * setting.workers for took, setting in each)
        prices = [
            given.tariff.price(
                more * took / 3600, given.tariff.workers_blocked(setting.workers, setting.nodes)
            )
            for took, setting in each
        ]
        price = (
            None if None in prices else math.fsum(value for value in prices if value is not None)
        )
        offers.append(
            Settles(
                (taken, over.against),
                more,
                2 * more * len(both),
                runs_s,
                workers_s,
                price,
                given.tariff.currency,
            )
        )
    return min(offers, key=lambda offer: offer.workers_s, default=None)


def _also(settings: Sequence[Setting], order: Sequence[Candidate], fair: Fair) -> list[Also]:
    """Return of each setting what is ahead there, and of what; those with the largest lead
    first.
    """
    told = []
    for setting in settings:
        there = [side for side in order if side in setting.rates.cells]
        if len(there) < 2:
            continue
        best, *others = over_settings.ranked([setting.rates], there, fair)
        second = next((side for side in others if fair(best, side)), None)
        if second is None:
            continue
        seen = ratio_of(over_settings.compare([setting.rates], best, second), best, second)
        told.append(
            Also(
                setting.where, best, second, seen.middle, seen.low, seen.high, seen.n, seen.verdict
            )
        )
    return sorted(told, key=lambda one: -abs(math.log(one.middle)))
