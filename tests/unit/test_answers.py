"""What to take, how surely, and what would settle the rest: values, from made-up studies whose
truth is known.
"""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import scaling, together
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.tables import frame
from ddlbench.answers import Answer, Candidate, Certainty, Note, wording
from ddlbench.audit import finding_rows
from ddlbench.core import registry
from ddlbench.core.registry import OWN
from ddlbench.show.page import shown
from ddlbench.show.page.numbers import plain

from tests.builders.results import (
    NOISE,
    STUDIES,
    Rows,
    by_question,
    first,
    noisy,
    only,
    ran,
    ran_program,
    whole_steps,
)

WIDE = (0.0, 0.3, -0.3)
RNG = np.random.default_rng


def of_settings(
    ratios: dict[int, float], repeats: int, spread: float = 0.02, seed: int = 1, **more: object
) -> Rows:
    """Frameworks ddp and horovod under one setting per number of workers, where horovod is so many
    times as fast.
    """
    rng = RNG(seed)
    return [
        one
        for workers, ratio in ratios.items()
        for name, rate in (("ddp", 100.0 * workers), ("horovod", 100.0 * workers * ratio))
        for one in ran(rate, noisy(rng, repeats, spread), framework=name, workers=workers, **more)
    ]


def many_settings(ratio: float, count: int, repeats: int, seed: int = 1) -> Rows:
    """Two frameworks in so many settings that differ in batch and workers."""
    rng = RNG(seed)
    return [
        one
        for k in range(count)
        for name, rate in (("ddp", 100.0 + k), ("horovod", (100.0 + k) * ratio))
        for one in ran(
            rate,
            noisy(rng, repeats),
            framework=name,
            workers=2 ** (k % 7),
            global_batch=128 * (k + 1),
        )
    ]


def test_all_settings_count_though_none_is_sure_by_itself() -> None:
    answer = only(many_settings(1.06, 43, 2), "framework")
    assert answer.taken == Candidate(framework="horovod")
    assert answer.certainty is Certainty.SURE
    assert answer.over and answer.over.settings == 43 and answer.over.leads > 38
    assert answer.over.low and answer.over.high and answer.over.low < 1.06 < answer.over.high
    assert answer.over.high / answer.over.low < 1.02


@pytest.mark.parametrize(("ratio", "count"), [(1.06, 43), (1.25, 10)])
def test_one_run_per_setting_is_said_as_far_as_it_goes_and_never_advised_against(
    ratio: float, count: int
) -> None:
    answer = only(many_settings(ratio, count, 1), "framework")
    assert answer.taken == Candidate(framework="horovod") and answer.certainty is Certainty.FEW
    assert answer.over and answer.over.low and answer.over.low > 1
    single = only(many_settings(ratio, 1, 1), "framework")
    assert single.taken == Candidate(framework="horovod") and single.certainty is Certainty.FEW
    assert (
        single.over and single.over.low is None and single.settles and single.settles.repeats == 2
    )


def test_one_run_of_each_number_of_workers_takes_the_most_that_pays() -> None:
    rows = [
        one
        for n, rate in ((4, 100.0), (16, 380.0), (64, 960.0))
        for one in ran(rate, (0.0,), workers=n)
    ]
    answer = only(rows, "workers")
    assert answer.taken == Candidate(workers=64) and answer.certainty is Certainty.FEW
    assert answer.rows[-1].middle == pytest.approx(9.6) and answer.rows[-1].low is None


def test_two_repeats_have_the_interval_that_they_measured() -> None:
    """Not one that is stretched until it holds 1; the verdict is a word beside it."""
    rows = [
        *ran(1000.0, (0.0, 0.01), framework="horovod"),
        *ran(800.0, (0.0, 0.02), framework="ddp"),
    ]
    over = only(rows, "framework").over
    assert over and over.low and over.high and 1.1 < over.low < 1.25 < over.high < 1.4
    assert only(rows, "framework").certainty is Certainty.FEW
    rows = [
        one for n, rate in ((1, 100.0), (8, 710.0)) for one in ran(rate, (0.0, 0.01), workers=n)
    ]
    answer = only(rows, "workers")
    assert answer.taken == Candidate(workers=8)
    assert answer.rows[1].low and answer.rows[1].low > 6


def test_sides_that_are_alike_are_a_tie_and_the_one_that_comes_with_pytorch_is_taken() -> None:
    answer = only(of_settings(dict.fromkeys((1, 2, 4, 8), 1.002), 3, 0.005), "framework")
    assert (answer.taken, answer.certainty) == (Candidate(framework="ddp"), Certainty.TIE)
    # What is ahead but not told is taken nevertheless.
    rows = [
        *ran(2200.0, framework="deepspeed"),
        *ran(1900.0, WIDE, framework="ddp"),
        *ran(979.0, framework="horovod"),
    ]
    answer = only(rows, "framework")
    assert (answer.taken, answer.certainty) == (Candidate(framework="deepspeed"), Certainty.AHEAD)
    assert Candidate(framework="ddp") in answer.as_good


def test_a_lead_that_turns_round_is_said_where_and_the_choice_is_that_of_its_workers() -> None:
    ratios = {2**k: 0.9 if 2**k <= 64 else 1.12 for k in range(11)}
    found = first(of_settings(ratios, 1))
    answer = by_question(found)["framework"]
    assert answer.turns and answer.turns.at == 64
    assert answer.turns.below.middle * answer.turns.above.middle == pytest.approx(1.0, abs=0.1)
    workers = found.choice.workers
    assert workers and answer.taken == Candidate(framework="horovod" if workers > 64 else "ddp")
    assert only(of_settings(dict.fromkeys(ratios, 1.12), 1), "framework").turns is None


def test_sides_are_ranked_by_pairs_and_a_warned_run_is_a_hollow_dot() -> None:
    """deepspeed leads in two of three pairs, and has a run that is far off."""
    rows = [
        *ran(1000.0, (0.0, 0.001, -0.4), framework="deepspeed"),
        *ran(980.0, (0.0, 0.001, 0.0), framework="ddp"),
    ]
    bad = str(rows[2]["run"])
    finding = dict.fromkeys((column.name for column in finding_rows.COLUMNS), "")
    finding |= {"rule": "steady", "severity": "warning", "runs": bad}
    found = first(rows, (finding,))
    answer = by_question(found)["framework"]
    assert answer.taken == Candidate(framework="deepspeed") and answer.certainty is Certainty.AHEAD
    assert answer.warned == (bad,) and found.warnings == 1
    assert [dot.warned for row in answer.rows for dot in row.dots] == [False, False, True]
    assert answer.over and answer.over.middle == pytest.approx(1000 / 980, rel=1e-3)


def test_what_settles_it_is_the_cheapest_that_could_change_what_to_take() -> None:
    """Not the hopeless pair: fsdp is as fast to a hair, horovod needs little to be told."""
    rows = [
        *ran(1000.0, (0.0, 0.03, -0.03), framework="ddp"),
        *ran(999.9, (0.03, -0.03, 0.0), framework="fsdp"),
    ]
    rows += ran(950.0, (0.0, 0.02, 0.0), framework="horovod")
    settles = only(rows, "framework").settles
    assert settles and Candidate(framework="horovod") in settles.candidates and settles.repeats < 30
    assert settles.runs_s == settles.runs * 60.0 and settles.price is None
    sold = only(rows, "framework", tariff=Tariff(2.0, "EUR", 4)).settles
    assert sold and sold.price == pytest.approx(settles.runs_s / 3600 * 4 * 2.0)


def test_workers_are_judged_by_the_rule_that_is_said() -> None:
    """Speed-up squared over workers, with its own interval; what is as good is named."""
    rows = [one for n, rate in ((1, 100.0), (2, 195.0), (4, 270.0)) for one in ran(rate, workers=n)]
    answer = only(rows, "workers")
    assert (answer.rule, answer.taken) == ("balanced", Candidate(workers=2))
    assert answer.over and answer.over.middle == pytest.approx(1.95**2 / 2, rel=1e-6)
    assert answer.over.against == Candidate(workers=1)
    assert only(rows, "workers", goal="fastest").taken == Candidate(workers=4)
    assert only(rows, "workers", goal="cheapest").taken == Candidate(workers=1)
    noise = {1: NOISE, 32: WIDE, 64: (0.2, -0.2, 0.1)}
    near = [
        one
        for n, rate in ((1, 100.0), (32, 2000.0), (64, 2830.0))
        for one in ran(rate, noise[n], workers=n)
    ]
    answer = only(near, "workers")
    assert (
        Candidate(workers=64) in (answer.taken, *answer.as_good)
        and answer.certainty is not Certainty.SURE
    )


def test_whole_nodes_count_where_a_price_does() -> None:
    """One worker of a node of four is as dear as four."""
    rows = [one for n, rate in ((1, 100.0), (4, 150.0)) for one in ran(rate, workers=n, nodes=1)]
    assert only(rows, "workers").taken == Candidate(workers=1)
    assert only(rows, "workers", tariff=Tariff(2.0, "EUR", 4)).taken == Candidate(workers=4)


def test_workers_that_are_slower_are_not_taken_and_that_is_sure() -> None:
    answer = only(
        [one for n, rate in ((1, 900.0), (2, 600.0)) for one in ran(rate, workers=n)], "workers"
    )
    assert (answer.taken, answer.certainty) == (Candidate(workers=1), Certainty.SURE)


def test_the_accuracy_of_a_batch_is_of_the_same_model_and_schedule_or_not_said() -> None:
    rows = [
        one
        for n in (1, 2)
        for one in ran(100.0 * n, workers=n, model="resnet101", schedule="step", top1=0.41)
    ]
    rows += [
        one
        for n in (1, 2)
        for one in ran(400.0 * n, workers=n, model="resnet50", schedule="cosine", top1=0.31)
    ]
    for answer in by_question(first(rows)).values():
        for fact in answer.why:
            if fact.name == "batch grows" and fact.values["top1"]:
                model = next(one for one in answer.why if one.name == "speed").values["where"].model
                assert fact.values["top1"][2] == pytest.approx(
                    41.0 if model == "resnet101" else 31.0
                )
    unsaid = [one | {"final_top1": None} if one["model"] == "resnet101" else one for one in rows]
    found = only(
        [one for one in unsaid if one["model"] == "resnet101" or one["workers"] == 1], "workers"
    )
    assert found.fact("batch grows").values["top1"] is None  # type: ignore[union-attr]
    worse = [
        one
        for n, top in ((1, 0.75), (2, 0.748), (4, 0.6))
        for one in ran(100.0 * n, top1=top, workers=n)
    ]
    found = only(worse, "workers")
    assert found.taken == Candidate(workers=2)
    assert found.fact("batch grows").values["kept"] == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("repeats", "dropped"), [(3, True), (2, True), (1, False)])
def test_what_loses_accuracy_is_not_taken_where_more_than_one_run_says_so(
    repeats: int, dropped: bool
) -> None:
    rows = [
        *ran(500.0, NOISE[:repeats], framework="ddp"),
        *ran(490.0, NOISE[:repeats], top1=0.748, framework="fsdp"),
    ]
    rows += ran(900.0, NOISE[:repeats], top1=0.65, framework="powersgd")
    answer = only(rows, "framework")
    facts = [fact.values for fact in answer.why if fact.name == "accuracy"]
    assert [(one["candidate"].framework, one["dropped"]) for one in facts] == [
        ("powersgd", dropped)
    ]
    assert answer.taken == Candidate(framework="ddp" if dropped else "powersgd")


def test_a_loader_that_loads_nothing_is_the_ceiling_and_is_never_taken() -> None:
    rates = {"synthetic": 1000.0, "dali-cpu": 800.0, "native": 500.0}
    answer = only([one for name, rate in rates.items() for one in ran(rate, loader=name)], "loader")
    assert (answer.taken, answer.certainty) == (Candidate(loader="dali-cpu"), Certainty.SURE)
    assert answer.fact("ceiling").values["share"] == pytest.approx(0.8)  # type: ignore[union-attr]
    notes = {row.candidate.loader: row.note for row in answer.rows}
    assert notes == {"synthetic": Note.CEILING, "dali-cpu": Note.BASE, "native": None}


def test_loaders_of_two_forms_are_judged_where_they_read_the_same() -> None:
    rates = {("dali-cpu", "webdataset"): 100.0, ("spdl", "raw"): 99.0}
    rates |= {("spdl", "webdataset"): 80.0, ("torchvision", "raw"): 50.0}
    rows = [
        one for (name, form), rate in rates.items() for one in ran(rate, loader=name, form=form)
    ]
    answer = only(rows, "loader")
    assert answer.taken == Candidate(loader="dali-cpu")
    assert answer.fact("alone").values["sides"] == (Candidate(loader="spdl", form="raw"),)  # type: ignore[union-attr]
    assert answer.certainty is Certainty.AHEAD
    assert only(rows, "form").taken == Candidate(form="raw")


def test_sides_that_are_ahead_with_one_loader_only_are_judged_with_the_one_that_is_taken() -> None:
    rates = {("ddp", "native"): 100.0, ("ddp", "dali-cpu"): 200.0, ("horovod", "native"): 90.0}
    rates |= {("horovod", "dali-cpu"): 240.0}
    rows = [
        one
        for (name, loader), rate in rates.items()
        for one in ran(rate, framework=name, loader=loader)
    ]
    found = first(rows).choice
    assert (found.framework, found.loader) == ("horovod", "dali-cpu")


def test_batches_reach_accuracies_and_the_largest_that_costs_no_point_is_taken() -> None:
    tops = {
        ("step", 256): 0.77,
        ("step", 8192): 0.768,
        ("step", 65536): 0.41,
        ("cosine", 256): 0.76,
    }
    tops |= {("cosine", 8192): 0.5, ("cosine", 65536): 0.3}
    rows = [
        one
        for (s, size), top in tops.items()
        for one in ran(100.0, top1=top, schedule=s, global_batch=size)
    ]
    found = by_question(first(rows))
    answer = found["batch"]
    assert (answer.taken, answer.certainty) == (Candidate(batch=8192), Certainty.SURE)
    assert [row.note for row in answer.rows] == [None, None, Note.LOSES]
    assert (
        answer.also[0].taken == Candidate(batch=256) and answer.also[0].where.schedule == "cosine"
    )
    # The schedule is that of the batch taken; where a larger batch differs it is told.
    schedule = found["schedule"]
    assert schedule.fact("rates").values["where"].batch == 8192  # type: ignore[union-attr]
    assert {one.where.batch: one.verdict for one in schedule.also} == {256: 1, 65536: 1}
    turned = [one | {"final_top1": 0.52} if one["global_batch"] == 65536 and one["schedule"] == "cosine" else one
              for one in rows]  # fmt: skip
    also = {one.where.batch: one.taken.schedule for one in only(turned, "schedule").also}
    assert also == {256: "step", 65536: "cosine"}
    alone = only([one for one in rows if one["repeat"] == 1], "batch")
    assert (alone.taken, alone.certainty) == (Candidate(batch=8192), Certainty.FEW)


def test_no_batch_is_taken_beyond_one_that_loses_accuracy() -> None:
    tops = ((256, 0.77), (8192, 0.70), (65536, 0.77))
    rows = [one for size, top in tops for one in ran(100.0, top1=top, global_batch=size)]
    assert only(rows, "batch").taken == Candidate(batch=256)


def test_numbers_of_workers_alone_are_no_question_about_batches() -> None:
    """Two numbers of workers have two batches, because workers grow; three and more are a series
    over batches.
    """
    two = [one for n in (4, 8) for one in ran(100.0, workers=n, global_batch=64 * n)]
    assert "batch" not in by_question(first(two))
    assert "batch" in by_question(first([*two, *ran(100.0, workers=16, global_batch=1024)]))


def test_memory_is_that_of_devices_and_says_what_fits() -> None:
    def held(framework: str, size: float, **more: object) -> Rows:
        return [
            one | {"peak_device_memory_bytes": round(size)}
            for one in ran(100.0, framework=framework, **more)
        ]

    answer = only([*held("ddp", 2**33), *held("zero-1", 2**32)], "memory")
    assert (answer.taken, answer.certainty) == (Candidate(framework="zero-1"), Certainty.SURE)
    answer = only(
        [*held("ddp", 2**33), *held("zero-1", 2**32), *held("zero-2", 2**32 * 1.02)], "memory"
    )
    assert answer.as_good == (Candidate(framework="zero-2"),)
    fitted = [*held("ddp", 2**33), *held("zero-1", 2**32), *held("zero-1", 2**33, global_batch=512)]
    rows = only(fitted, "memory").fact("fits").values["rows"]  # type: ignore[union-attr]
    assert {row.candidate.framework: row.candidate.batch for row in rows} == {
        "ddp": 64,
        "zero-1": 256,
    }
    assert "memory" not in by_question(
        first([*ran(1.0, framework="ddp"), *ran(1.0, framework="horovod")])
    )


def test_what_loses_accuracy_is_no_cheap_training() -> None:
    """It was the cheapest, though no answer takes it."""
    tariff = Tariff(2.5, "EUR", 4)
    sides = {"ddp": (500.0, 0.76), "horovod": (560.0, 0.76), "powersgd": (900.0, 0.66)}
    rows = [
        one
        for name, (rate, top1) in sides.items()
        for one in ran(rate, top1=top1, framework=name, workers=4)
    ]
    rows += [one for name in ("ddp", "horovod") for one in ran(100.0, framework=name, workers=1)]
    found = by_question(first(rows, tariff=tariff))
    assert found["framework"].taken == Candidate(framework="horovod")
    assert "powersgd" not in {side.framework for side in found["cost"].among}
    assert found["cost"].taken and found["cost"].taken.framework == "horovod"


def test_the_cost_is_of_the_cheapest_the_taken_and_the_fastest() -> None:
    took = ((4, 7200.0), (8, 5400.0), (16, 5000.0))
    rows = [one for n, s in took for one in ran(1e6 / s, workers=n, nodes=n // 4, full_train_s=s)]
    assert "cost" not in by_question(first(rows))
    found = first(rows, tariff=Tariff(2.5, "EUR", 4), goal="fastest")
    facts = {fact.name: fact.values for fact in by_question(found)["cost"].why}
    assert (
        facts["cheapest"]["middle"] == pytest.approx(20.0) and facts["cheapest"]["time_s"] == 7200.0
    )
    assert facts["chosen"]["candidate"].workers == found.choice.workers
    assert (
        facts["chosen"]["middle"] == pytest.approx(5000 / 3600 * 16 * 2.5)
        and "fastest" not in facts
    )
    facts = {
        fact.name for fact in only(rows, "cost", tariff=Tariff(2.5, "EUR", 4), goal="cheapest").why
    }
    assert facts == {"training", "cheapest", "fastest"}
    drew = [one | {"full_energy_j": 1e3 * int(str(one["workers"]))} for one in rows]
    answer = only(drew, "cost", tariff=Tariff(pue=1.5))
    assert [row.middle for row in answer.rows][:2] == pytest.approx([6.0, 12.0])  # kJ of the site
    nothing = [one | {"full_energy_j": 0.0} for one in rows]
    assert "cost" not in by_question(first(nothing))  # counters that stand still measured nothing


def test_the_cost_is_of_whole_nodes() -> None:
    rows = [
        one
        for n, s in ((1, 7200.0), (4, 5400.0))
        for one in ran(1e6 / s, workers=n, nodes=1, full_train_s=s)
    ]
    answer = only(rows, "cost", tariff=Tariff(2.5, "EUR", 4))
    assert [row.middle for row in answer.rows] == pytest.approx([1.5 * 4 * 2.5, 2 * 4 * 2.5])


def test_why_scaling_stops_is_told_by_parts_of_a_step() -> None:
    rows = [one for n, rate in ((1, 100.0), (2, 150.0)) for one in ran(rate, workers=n)]
    losses = pd.DataFrame(
        {
            "run": one["run"],
            "images": 1200,
            "total_s": 1.0,
            "input_s": (
                (0.1 if one["workers"] == 1 else 0.2) * 1200 / (64 * int(str(one["workers"])))
            ),
            "waiting_s": 0.0,
            "transfer_s": (
                (0.0 if one["workers"] == 1 else 0.3) * 1200 / (64 * int(str(one["workers"])))
            ),
            "compute_s": 0.5 * 1200 / (64 * int(str(one["workers"]))),
            "together_s": None,
        }
        for one in rows
    )
    fact = only(rows, "workers", losses=losses).fact("step grew")
    assert fact and fact.values["total_s"] == pytest.approx(0.4)
    assert [name for name, _ in fact.values["parts"]] == ["transfer_s", "input_s"]
    assert [seconds for _, seconds in fact.values["parts"]] == pytest.approx([0.3, 0.1])


@pytest.mark.parametrize(
    ("waits", "part", "advised"), [(None, "unsplit_s", "recorder"), (0.1, "together_s", "profiler")]
)
def test_a_program_is_advised_what_it_can_do(waits: float | None, part: str, advised: str) -> None:
    """Another framework of ours is none of it; its name is said once."""
    rows = [one for n in (1, 2) for one in ran_program(100.0 * n, workers=n)]
    rows = [one | {"data_wait_s": waits} for one in rows]
    answer = only(rows, "workers", losses=whole_steps(rows))
    fact = answer.fact("step grew")
    assert fact and fact.values["own"] and [name for name, _ in fact.values["parts"]] == [part]
    told = wording.told(answer, wording.Nouns())
    assert advised in told.text and "ddp" not in told.text
    assert told.line.count("wildfire") == 1


def test_another_series_says_whose_speed_up_is_told() -> None:
    rows = [
        one
        for name, twice in (("ddp", 1.9), ("fsdp", 1.1))
        for n, rate in ((1, 100.0), (2, 100.0 * twice))
        for one in ran_program(rate, workers=n, framework=name)
    ]
    (also,) = only(rows, "workers").also
    assert (also.where.framework, also.taken) == ("fsdp", Candidate(workers=1))
    assert also.shown == Candidate(workers=2) and also.middle == pytest.approx(1.1)


def test_what_loads_nothing_is_in_no_answer() -> None:
    """It is fast and cheap, and learns nothing. Where a study asks of nothing else, its speed is
    told, and no cost.
    """
    nothing: dict[str, object] = {
        "loader": "synthetic",
        "form": None,
        "full_energy_j": 1e3,
        "full_train_s": 60.0,
    }
    real = {"full_train_s": 3600.0, "peak_device_memory_bytes": 5e9, "full_energy_j": 1e5}
    fast, slow = list[dict[str, object]](), list[dict[str, object]]()
    for workers in (1, 2):
        for name, of_nothing, of_pictures, hours in (
            ("ddp", 900.0, 80.0, 2),
            ("horovod", 500.0, 120.0, 1),
        ):
            fast += ran(of_nothing * workers, workers=workers, framework=name, **nothing)
            measured = {measure: value * hours for measure, value in real.items()}
            slow += ran(of_pictures * workers, workers=workers, framework=name, **measured)
    for tariff in (Tariff(), Tariff(2.5, "EUR", 4)):
        found = by_question(first(slow + fast, tariff=tariff))
        assert {"cost", "memory"} <= {*found} and found["framework"].taken == Candidate(
            framework="horovod"
        )
        for question, one in found.items():
            assert question == "loader" or not {row["run"] for row in fast} & {*one.runs}
        alone = by_question(first(fast, tariff=tariff))
        assert alone["framework"].taken == Candidate(framework="ddp") and "cost" not in alone


def test_time_to_a_target_is_by_the_figures_that_name_it() -> None:
    of = [
        one
        for n, s in ((4, 7200.0), (8, 5400.0))
        for one in ran(100.0 * n, workers=n, full_train_s=s)
    ]
    ends = {
        "repeats": 3,
        "reached_s_low": 80.0,
        "reached_s_high": 99.0,
        "each": "[90.0, 91.0, 89.0]",
    }
    late = {
        "reached_s": 360.0,
        "reached_s_low": 350.0,
        "reached_s_high": 370.0,
        "each": "[360.0, 361.0, 359.0]",
    }
    ends["runs"] = json.dumps([one["run"] for one in of[:3]])
    late["runs"] = json.dumps([one["run"] for one in of[3:]])
    reached = pd.DataFrame([{**of[0], **ends, "reached_s": 90.0}, {**of[3], **ends, **late}])
    reached = reached.assign(target=0.759, batch_per_worker=64, global_batch=None, ref_workers=4)
    answer = only(of, "time", reached=reached)
    assert answer.taken == Candidate(framework="ddp", loader="dali-cpu", workers=4)
    assert answer.certainty is Certainty.SURE
    assert answer.fact("fewest hours").values["hours"] == pytest.approx(0.1)  # type: ignore[union-attr]


def test_accelerators_of_others_pay_by_time_to_the_target_where_it_is_known() -> None:
    """On four times as many the rate is 3.8 times as high, and with its larger batch the target
    comes twice as soon.
    """
    rows = [one for n, rate in ((8, 100.0), (32, 380.0)) for one in ran(rate, workers=n)]
    rows = [one | {"loader": None, "machine": "N dgx"} for one in rows]
    answer = only(rows, "workers", ours=False)
    assert answer.rows[1].middle == pytest.approx(3.8) and answer.fact("throughput only")
    runs = frame("runs", rows)
    parts = scaling.counted_runs(runs).groupby([*together.SERIES, "workers"], dropna=False)
    each = {8: [400.0, 402.0, 398.0], 32: [200.0, 201.0, 199.0]}
    targets = pd.DataFrame(
        [
            {
                **part.iloc[0],
                "each": str(each[part["workers"].iloc[0]]),
                "runs": json.dumps(part["run"].tolist()),
            }
            for _, part in parts
        ]
    )
    targets = targets.assign(
        target=0.759, reached_s=1.0, reached_s_low=None, reached_s_high=None, repeats=2
    )
    answer = only(rows, "workers", ours=False, reached=targets)
    assert answer.rows[1].middle == pytest.approx(2.0) and not answer.fact("throughput only")
    assert answer.fact("speed").values["where"].machine == "N"  # type: ignore[union-attr]


def test_a_log_that_reached_the_target_and_has_no_rate_is_compared_by_its_run() -> None:
    """Times go with the runs that they are of, whatever their place; records of others make no
    pairs.
    """
    rows = [one for n in (8, 32) for one in ran(100.0 * n, workers=n)]
    rows = [one | {"loader": None, "machine": "N dgx", "records": "mlperf"} for one in rows]
    rows[0] |= {"throughput_images_per_s": None, "epoch_s": None}
    table = scaling.in_series(frame("runs", rows))
    targets = []
    for workers, each in ((8, [400.0, 402.0, 398.0]), (32, [200.0, 201.0, 199.0])):
        part = table[table["workers"] == workers].iloc[::-1]
        targets.append(
            {**part.iloc[0], "each": str(each), "runs": json.dumps(part["run"].tolist())}
        )
    reached = pd.DataFrame(targets)
    reached = reached.assign(
        target=0.759, reached_s=1.0, reached_s_low=None, reached_s_high=None, repeats=3
    )
    answer = only(rows, "workers", ours=False, reached=reached)
    assert answer.rows[1].middle == pytest.approx(2.0)
    assert answer.rows[1].low is not None and answer.rows[1].low > 1.9


def test_sides_of_records_of_others_are_no_pairs_by_the_numbers_of_their_files() -> None:
    """Of the same numbers, and by hand: means of logarithms as they are, four degrees of
    freedom.
    """
    noise = (-0.02, 0.0, 0.02)
    rows = [*ran(100.0, noise, framework="ddp"), *ran(150.0, noise, framework="horovod")]
    paired = only(rows, "framework").over
    apart = only([one | {"records": "mlperf"} for one in rows], "framework").over
    assert paired is not None and apart is not None and apart.n == 3
    assert apart.middle == pytest.approx(1.5) == paired.middle
    # Pairs would agree to the last digit; two samples vary by 2 %.
    assert apart.low is not None and paired.low is not None and apart.low < 1.45 < paired.low


def test_no_answer_is_sure_that_rests_on_what_nothing_proves() -> None:
    rows = [
        one | {"confirmed": True}
        for one in (*ran(100.0, framework="ddp"), *ran(150.0, framework="horovod"))
    ]
    assert only(rows, "framework").certainty is Certainty.SURE
    rows[0]["confirmed"] = False
    answer = only(rows, "framework")
    assert answer.certainty is Certainty.UNPROVED
    assert answer.unproved == (rows[0]["run"],) and answer.taken == Candidate(framework="horovod")
    assert first(rows).sure == 0


def test_models_that_are_asked_are_ranked_by_their_latency() -> None:
    table = pd.DataFrame(
        {"model": "lenet", "batch": b, "member": way, "workers": 1, "latency_p50_s": s * b}
        for way, s in (("plain", 0.002), ("int8", 0.001))
        for b in (1, 64)
    )
    answer = only([], "latency", inference=table)
    assert answer.taken == Candidate(way="int8") and [
        row.middle for row in answer.rows
    ] == pytest.approx([1.0, 2.0])


def test_a_study_of_one_side_says_its_rate_and_how_to_ask() -> None:
    found = first(ran(100.0))
    assert [one.question for one in found.answers] == ["rate"]
    assert [question for question, _ in found.not_asked] == [
        "framework",
        "loader",
        "workers",
        "batch",
    ]
    assert first([]).answers == () == first([]).not_asked
    (answer,) = first(
        [one | {"throughput_images_per_s": None} for one in ran(1.0, top1=1.0)]
    ).answers
    assert (answer.measure, answer.rows[0].high) == ("top-1", 100.0)


def test_a_study_of_programs_says_its_sample_and_settings() -> None:
    rows = [
        one
        for name in ("ddp", "fsdp")
        for one in ran(50.0 + len(name), framework=name, loader="native")
    ]
    rows = [one | {"loader": OWN, "form": None} for one in rows]
    found = first(rows, sample="tokens")
    assert [question for question, _ in found.not_asked] == ["workers", "batch"]
    nouns = wording.Nouns("GPU", "tokens")
    assert "54 tokens/s" in wording.told(found.answers[0], nouns).words.replace("fsdp ", "")


def test_answers_of_runs_that_cannot_be_compared_say_so() -> None:
    rows = [one for name in ("ddp", "horovod") for one in ran(100.0, framework=name)]
    finding = dict.fromkeys((column.name for column in finding_rows.COLUMNS), "")
    finding |= {
        "rule": "same-precision",
        "severity": "error",
        "runs": str(rows[0]["run"]),
        "evidence": "fp16 and fp32",
    }
    found = first(rows, (finding,))
    assert found.answers[0].unfair == ("same-precision",) and found.errors
    warned = first(rows, (finding | {"severity": "warning", "rule": "drift"},))
    assert warned.moved and warned.answers[0].unfair == () and not warned.errors


def test_what_was_killed_is_in_no_answer() -> None:
    killed = [one | {"interrupt_steps": 60.0} for one in ran(50.0, framework="horovod")]
    assert [one.question for one in first([*ran(100.0), *killed]).answers] == ["rate"]


def test_a_figure_of_many_sides_has_the_fastest_and_the_one_taken() -> None:
    answer = only(
        [one for n in range(24) for one in ran(100.0 + n, WIDE, framework=f"f{n}")], "framework"
    )
    assert (
        len(answer.rows) == 16 and answer.hidden == 8 and sum(row.taken for row in answer.rows) == 1
    )


@pytest.mark.parametrize("study", STUDIES)
def test_whoever_rewrites_every_sentence_changes_no_choice(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every template becomes nonsense: the same values, and words of nonsense alone."""
    tariff = Tariff(2.5, "EUR", 4)
    before = first(STUDIES[study], tariff=tariff)
    shutil.copytree(wording.TEMPLATES, tmp_path / "templates")
    for path in (tmp_path / "templates").glob("*.jinja"):
        names = {
            *re.findall(r"macro (\w+)", path.read_text()),
            "take",
            "line",
            "text",
            "measure",
            "other",
        }
        path.write_text(
            "".join(
                f"{{% macro {name}(a, b=0) %}}-sure 1,0 (+){{% endmacro %}}\n" for name in names
            )
        )
    monkeypatch.setattr(wording, "TEMPLATES", tmp_path / "templates")
    assert {wording.told(answer, wording.Nouns()).take for answer in before.answers} == {
        "-sure 1,0 (+)"
    }
    after = first(STUDIES[study], tariff=tariff)
    assert (after.choice, plain(after)) == (before.choice, plain(before))
    assert len(before.answers) >= 2


def test_each_question_has_a_template_and_words() -> None:
    told = {
        answer.question: wording.told(answer, wording.Nouns("GPU"))
        for rows in STUDIES.values()
        for answer in first(rows, tariff=Tariff(2.5, "EUR", 4)).answers
    }
    assert all(
        words.question and words.take and words.line and words.measure for words in told.values()
    )
    assert {*told} >= {"framework", "loader", "workers", "batch", "schedule", "cost", "memory"}
    names = {path.stem for path in wording.TEMPLATES.glob("[!_]*.jinja")}
    assert names == {name.replace("-", "_") for name in registry.members("questions")}


def test_answers_are_values_that_json_can_hold() -> None:
    for rows in STUDIES.values():
        found = first(rows, tariff=Tariff(2.5, "EUR", 4))
        kept = json.loads(json.dumps(plain(found)))
        assert kept["choice"] == {
            name: value for name, value in vars(found.choice).items() if value is not None
        }
        assert [one["question"] for one in kept["answers"]] == [
            one.question for one in found.answers
        ]


def test_the_terminal_has_a_line_per_answer() -> None:
    found = first(STUDIES["sides"])
    assert len(wording.lines(found, wording.Nouns())) == len(found.answers) + 1


def test_below_the_answers_stands_how_many_of_them_are_sure() -> None:
    found = first([*STUDIES["sides"]])
    decided = (Certainty.SURE, Certainty.TIE)
    assert found.sure == sum(answer.certainty in decided for answer in found.answers)
    assert not wording.judged(replace(found, answers=()), wording.Nouns())


def scale_of(answer: Answer) -> shown.Scale:
    return shown.Scale.fit(answer.rows)


def test_what_is_too_noisy_stretches_no_axis() -> None:
    rows = [
        one
        for n, noise in ((1, (0.0, 0.0)), (2, (0.9, -0.7)))
        for one in ran(100.0 * n, noise, workers=n)
    ]
    answer = only(rows, "workers")
    assert not shown.drawn(answer.rows[1]) and scale_of(answer).high < 6
    assert [label for _, label in shown.Scale(0.9988, 1.0012).ticks] == ["0.999", "1.000", "1.001"]
    assert [label for _, label in shown.Scale(1.0, 1.2).ticks] == [
        "1",
        "1.1",
        "1.2",
    ]  # 1.2 - 1 is less than 0.2
    assert math.isclose(float(shown.Scale(1.0, 3.0).at(1.0).removesuffix("%")), 3.0)
