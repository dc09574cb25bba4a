"""What answers keep apart: settings, batches and worker counts that differ, and runs that did not
reach the target.
"""

import pandas as pd
import pytest
from ddlbench.analysis.price import Tariff
from ddlbench.answers import Answer, Candidate, Certainty

from tests.builders.results import (
    NOISE,
    Rows,
    by_question,
    first,
    only,
    ran,
    ran_program,
    reached,
)

EUROS = Tariff(2.0, "EUR", 4)


def marked(rows: Rows, **changed: object) -> Rows:
    """These runs with other settings, and with names of their own."""
    mark = "-".join(map(str, changed.values()))
    return [one | changed | {"run": f"{one['run']}-{mark}"} for one in rows]


def fact(answer: Answer, name: str) -> dict[str, object]:
    """The values of a fact of the answer."""
    found = answer.fact(name)
    assert found is not None, name
    return dict(found.values)


@pytest.mark.parametrize("setting", ["settings", "recipe", "dataset", "bandwidth_mbit"])
def test_a_rate_is_of_runs_of_the_same_settings(setting: str) -> None:
    slow, fast = (10.0, 1000.0) if setting == "bandwidth_mbit" else ("a", "b")
    run = ran_program if setting == "settings" else ran
    rows = [*marked(run(50.0), **{setting: slow}), *marked(run(100.0), **{setting: fast})]
    answer = only(rows, "rate")
    assert [(row.middle, row.n) for row in answer.rows] == [
        (pytest.approx(100.0), 3),
        (pytest.approx(50.0), 3),
    ]
    assert len({row.candidate for row in answer.rows}) == 2


def asked(latencies: dict[tuple[str, int], float], repeats: int = 3) -> pd.DataFrame:
    """Jobs of inference, by way and workers, with these latencies [s]."""
    return pd.DataFrame(
        {
            "model": "lenet",
            "batch": 1,
            "member": way,
            "workers": workers,
            "latency_p50_s": s * (1 + NOISE[k]),
        }
        for (way, workers), s in latencies.items()
        for k in range(repeats)
    )


def test_a_way_on_two_and_on_four_workers_is_two_ways() -> None:
    times = {("plain", 1): 0.003, ("tensor-slicing", 2): 0.004, ("tensor-slicing", 4): 0.002}
    answer = only([], "latency", inference=asked(times))
    assert [(row.candidate, row.n) for row in answer.rows] == [
        (Candidate(way="tensor-slicing", workers=4), 3),
        (Candidate(way="plain"), 3),
        (Candidate(way="tensor-slicing", workers=2), 3),
    ]
    assert answer.certainty is Certainty.SURE
    alone = only([], "latency", inference=asked(times, repeats=1))
    assert {row.n for row in alone.rows} == {1} and alone.certainty is Certainty.FEW


def test_repeats_that_never_reach_the_target_are_counted() -> None:
    noise = (*NOISE, 0.005)
    rows = [one for n in (4, 8, 16) for one in ran(100.0 * n, noise, workers=n)]
    times = {4: [400.0, 402.0, 398.0, 401.0], 8: [200.0, 201.0, 199.0]}
    table = reached(rows, times)
    answer = only(rows, "workers", goal="target", reached=table)
    assert (answer.rule, answer.taken) == ("target", Candidate(workers=8))
    assert fact(answer, "missed")["rows"] == ((8, 3, 4), (16, 0, 4))
    assert answer.certainty is Certainty.AHEAD
    answer = only(rows, "time", reached=table)
    assert fact(answer, "missed") == {"reached": 3, "of": 4}
    assert answer.certainty is Certainty.AHEAD
    whole = reached(rows, times | {8: [200.0, 201.0, 199.0, 200.5]})
    answer = only(rows, "workers", goal="target", reached=whole)
    assert answer.certainty is Certainty.SURE and fact(answer, "missed")["rows"] == ((16, 0, 4),)
    answer = only(rows, "time", reached=whole)
    assert answer.certainty is Certainty.SURE and answer.fact("missed") is None


def test_the_rule_that_is_said_is_the_one_that_decides() -> None:
    """A target that no run, or one number of workers alone, has reached."""
    rows = [one for n in (4, 8) for one in ran(100.0 * n, workers=n)]
    for table in (pd.DataFrame(), reached(rows, {4: [400.0, 402.0, 398.0]})):
        answer = only(rows, "workers", goal="target", reached=table)
        assert (answer.rule, answer.measure) == ("fastest", "speed-up")
        assert answer.fact("target unreached") is not None
        assert answer.certainty is Certainty.AHEAD
    assert only(rows, "workers", goal="fastest").certainty is Certainty.SURE


def test_the_fewest_hours_are_of_all_settings_and_the_energy_of_those_that_reached() -> None:
    counts = tuple(range(1, 11))  # more than the figure shows
    rows = [
        one | {"full_energy_j": 3.6e6 * (1 if one["repeat"] == 1 else 100)}
        for n in counts
        for one in ran(100.0 * n, workers=n)
    ]
    times = {n: [1000.0 / n**0.5] for n in counts}
    answer = only(rows, "time", reached=reached(rows, times))
    assert answer.taken == Candidate(framework="ddp", loader="dali-cpu", workers=10)
    least = fact(answer, "fewest hours")
    assert least["candidate"] == Candidate(framework="ddp", loader="dali-cpu", workers=1)
    assert least["hours"] == pytest.approx(1000 / 3600)
    assert fact(answer, "energy")["energy_kwh"] == pytest.approx(1.0)
    assert (len(answer.rows), answer.hidden) == (8, 2)


def test_the_cost_is_of_the_batch_that_is_taken_and_of_none_that_loses() -> None:
    def trained(n: int, batch: int, hours: float, top1: float) -> Rows:
        return ran(
            100.0,
            top1=top1,
            workers=n,
            global_batch=batch,
            nodes=1,
            full_train_s=3600.0 * hours,
        )

    rows = [
        *(one for n in (1, 2) for one in trained(n, 64, 4.0 / n, 0.76)),
        *(one for n in (1, 2) for one in trained(n, 256, 3.0 / n, 0.758)),
        *(one for n in (1, 2) for one in trained(n, 1024, 1.0 / n, 0.46)),
    ]
    found = first(rows, tariff=EUROS, goal="cheapest")
    cost = by_question(found)["cost"]
    assert found.choice.batch == 256
    assert {side.batch for side in cost.among} == {64, 256}
    assert cost.taken is not None and cost.taken.batch == 256
    kept = [one | {"final_top1": 0.76} for one in rows]
    small = [one | {"final_top1": 0.74} if one["global_batch"] == 1024 else one for one in kept]
    for some, batch in ((kept, 1024), (small, 256)):
        found = first(some, tariff=EUROS, goal="cheapest")
        cost = by_question(found)["cost"]
        assert found.choice.batch == batch
        named = {one.name: one.values["candidate"] for one in cost.why if one.name != "training"}
        assert named.get("chosen", named["cheapest"]).batch == batch


def test_larger_batches_lose_where_all_of_them_do() -> None:
    def answered(*tops: float) -> dict[str, object]:
        sizes = (256, 8192, 65536)
        rows = [
            one
            for size, top in zip(sizes, tops, strict=True)
            for one in ran(100.0, top1=top, global_batch=size)
        ]
        return fact(only(rows, "batch"), "loses")

    assert answered(0.77, 0.70, 0.60)["larger too"] is True
    assert answered(0.77, 0.70, 0.77)["larger too"] is False
    assert answered(0.77, 0.77, 0.70)["larger too"] is False


def test_what_settles_a_batch_is_of_the_undecided_and_has_a_price() -> None:
    wide = (0.0, 0.3, -0.3)  # of top-1, three points either side
    rows = [
        *ran(100.0, top1=0.77, global_batch=64, nodes=1),
        *ran(100.0, top1=0.77, global_batch=256, nodes=1),
        *ran(100.0, wide, top1=0.77, global_batch=1024, nodes=1),
    ]
    answer = only(rows, "batch", tariff=EUROS)
    settles = answer.settles
    assert settles is not None
    batch_of = {one["run"]: one["global_batch"] for one in rows}
    assert [one.batch for one in settles.candidates] == sorted(
        {batch_of[run] for run in answer.open}
    )
    assert settles.runs == settles.repeats * len(settles.candidates)
    assert settles.runs_s == pytest.approx(60.0 * settles.runs)
    assert settles.price == pytest.approx(settles.runs_s / 3600 * 4 * 2.0)
    alone = [*ran(100.0, top1=0.77, global_batch=64), *ran(100.0, top1=0.77, global_batch=256)]
    alone += ran(100.0, NOISE[:1], top1=0.40, global_batch=1024)
    answer = only(alone, "batch")
    assert (answer.certainty, answer.settles) == (Certainty.FEW, None)
