"""Formulas of scaling and of what interruptions cost, against published values and by hand; tables
made with them.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import comparisons, tables
from ddlbench.analysis.price import Tariff
from ddlbench.analysis.scaling import efficiency, scaling, speed_up, throughput
from ddlbench.analysis.sheets import Terms, costs
from ddlbench.analysis.sheets.costs import daly_s, expected_s, young_s
from ddlbench.commands import configuration
from ddlbench.core.spec import RunSpec
from ddlbench.core.zero import held_bytes, optimizer_bytes

from tests.builders.machines import JUWELS
from tests.builders.plans import run_spec
from tests.builders.records import SPEC
from tests.builders.tables import repeats, row
from tests.facts import missing


def test_formulas() -> None:
    assert throughput(1_281_167.0, 100.0) == pytest.approx(12_811.67)
    assert speed_up(3600.0, 200.0) == 18
    assert efficiency(1.0, 4, 4) == 1  # the paper's base is one node of 4 GPUs
    assert efficiency(194.56, 4, 1024) == pytest.approx(0.76)


def runs_table(*rows: tuple[RunSpec, float]) -> pd.DataFrame:
    """Finished runs of 1200 images with a throughput each."""
    return pd.DataFrame(
        [
            spec.columns()
            | {"status": "success", "throughput_images_per_s": rate, "epoch_s": 1200 / rate}
            for spec, rate in rows
        ]
    )


def sized(workers: int, batch: int, **changes: object) -> RunSpec:
    return replace(
        SPEC, workers=workers, workers_per_node=min(4, workers), global_batch=batch, **changes
    )


def test_weak_scaling_over_repeats() -> None:
    table = scaling(
        runs_table(
            (sized(8, 512, repeat=1), 150.0),
            (sized(8, 512, repeat=2), 200.0),
            (sized(4, 256, repeat=1), 100.0),
            (sized(4, 256, repeat=2), 100.0),
        )
    )
    assert list(table["workers"]) == [4, 8]
    assert list(table["repeats"]) == [2, 2]
    assert set(table["batch_per_worker"]) == {64}
    assert table["global_batch"].isna().all()
    assert list(table["ref_workers"]) == [4, 4]
    base, row = table.iloc[0], table.iloc[1]
    assert (base["speed_up"], base["efficiency"]) == (1, 1)
    # Two repeats: the median is the geometric mean. T_4 = 12 s; T_8 = 8 s and 6 s, pair by pair.
    assert row["throughput_images_per_s"] == pytest.approx(math.sqrt(150 * 200))
    assert row["speed_up"] == pytest.approx(math.sqrt(12 / 8 * 12 / 6))
    width = (
        1.12 * 12.7062 * math.log(8 / 6) / 2
    )  # t of one degree of freedom; two logarithms differ by so much
    assert row["speed_up_low"] == pytest.approx(row["speed_up"] * math.exp(-width), rel=1e-4)
    assert row["speed_up_high"] == pytest.approx(row["speed_up"] * math.exp(width), rel=1e-4)
    for end in ("", "_low", "_high"):
        assert row[f"efficiency{end}"] == pytest.approx(row[f"speed_up{end}"] / 2)
    assert base[["speed_up_low", "speed_up_high"]].isna().all()  # by itself


def test_of_one_run_there_is_no_interval_but_the_spread_of_its_steps() -> None:
    runs = runs_table(*((sized(w, 64 * w), 90.0 * w) for w in (1, 2)))
    table = scaling(runs.assign(step_p5_s=0.08, step_median_s=0.1, step_p95_s=0.2))
    assert (
        table[["speed_up_low", "efficiency_high", "throughput_images_per_s_low"]]
        .isna()
        .all(axis=None)
    )
    assert table["spread_low"].tolist() == pytest.approx([0.5, 0.5])
    assert table["spread_high"].tolist() == pytest.approx([1.25, 1.25])
    several = pd.concat([runs, runs.assign(repeat=2)]).assign(
        step_p5_s=0.08, step_median_s=0.1, step_p95_s=0.2
    )
    assert scaling(several)["spread_low"].isna().all()


def test_equal_global_batches_are_strong_scaling() -> None:
    table = scaling(
        runs_table(
            *(
                (sized(w, batch), 100.0 * w)
                for w in (1, 2, 4)
                for batch in (256, 512)
                if (w, batch) != (2, 512)
            )
        )
    )
    assert table["batch_per_worker"].isna().all()
    assert list(zip(table["global_batch"], table["workers"], strict=True)) == [
        (256, 1), (256, 2), (256, 4), (512, 1), (512, 4),
    ]  # fmt: skip
    assert list(table["efficiency"]) == pytest.approx([1, 1, 1, 1, 1])


def test_a_weak_and_a_strong_series_share_a_point() -> None:
    """The point is in both, whichever of the two has more of the others, and whichever ones
    failed.
    """
    weak, strong = [sized(w, 64 * w) for w in (1, 2, 4)], [sized(w, 256) for w in (1, 2, 8)]
    runs = runs_table(*((spec, 100.0 * spec.workers) for spec in (*weak, *strong)))
    said = ["weak", "weak", None, "strong", "strong", "strong"]
    table = scaling(runs.assign(scaling=said))
    of = table.groupby("batch_per_worker", dropna=False)["workers"].agg(list)
    assert of.tolist() == [[1, 2, 4], [1, 2, 4, 8]]
    assert table["global_batch"].dropna().unique().tolist() == [256]
    assert table["efficiency"].tolist() == pytest.approx([1] * 7)
    # A batch of which no block says anything is kept as gives fewer series.
    more = pd.concat(
        [runs.assign(scaling=said), runs_table((sized(4, 512), 350.0))], ignore_index=True
    )
    assert scaling(more)["batch_per_worker"].dropna().unique().tolist() == [64, 128]


def test_runs_that_read_nothing_scale_as_others_do() -> None:
    """Their form is null."""
    runs = runs_table(*((sized(w, 64 * w, loader="synthetic"), 90.0 * w) for w in (1, 2)))
    assert runs["form"].isna().all()
    table = scaling(runs)
    assert list(table["ref_workers"]) == [1, 1]
    assert list(table["speed_up"]) == pytest.approx([1, 2])


def test_series_have_bases_of_their_own_and_only_timed_successful_runs() -> None:
    runs = runs_table(
        (sized(1, 64), 100.0),
        (sized(2, 128), 150.0),
        (sized(2, 128, framework="horovod"), 100.0),
        (sized(4, 256, framework="horovod"), 190.0),
        (sized(1, 64, loader="synthetic"), 400.0),
    )
    runs.loc[4, "status"] = "failed"
    runs = pd.concat(
        [runs, runs_table((sized(4, 256, timed=False), float("nan")))], ignore_index=True
    )
    table = scaling(runs)
    assert list(table["framework"]) == ["ddp", "ddp", "horovod", "horovod"]
    assert list(table["ref_workers"]) == [1, 1, 2, 2]
    assert list(table["efficiency"]) == pytest.approx([1, 0.75, 1, 0.95])
    assert scaling(runs.iloc[4:5]).empty


def test_runs_killed_on_purpose_are_no_repeats() -> None:
    (row,) = scaling(
        runs_table((sized(4, 256), 80.0), (sized(4, 256, interrupt_steps=24), 60.0))
    ).to_dict("records")
    assert (row["repeats"], row["throughput_images_per_s"]) == (1, 80.0)


def compare(*runs: dict[str, Any], **price: Any) -> list[dict[str, Any]]:
    made = comparisons.rows(pd.DataFrame([{"run_s": 3600.0, **run} for run in runs]), **price)
    assert len(tables.frame("comparisons", made)) == len(made)
    return made


def test_a_pair_of_frameworks_has_a_verdict() -> None:
    (one,) = compare(*repeats(120.0), *repeats(100.0, framework="horovod"))
    assert (one["compared"], one["left"], one["right"], one["with"]) == (
        "framework",
        "ddp",
        "horovod",
        "dali-cpu",
    )
    assert (one["n"], one["verdict"], one["more_repeats"]) == (3, "faster", None)
    assert one["ratio"] == pytest.approx(1.2)
    assert one["runs"].count(" ") == 5


def test_what_more_repeats_cost_is_said_where_runs_cannot_tell() -> None:
    (one,) = compare(
        *repeats(101.0, 0.97, 1.0, 1.02), *repeats(100.0, 1.01, 0.99, 1.0, framework="horovod")
    )
    assert one["verdict"] == "cannot tell"
    assert one["more_repeats"] > 0
    assert one["more_worker_hours"] == pytest.approx(
        one["more_repeats"] * 2 * 4
    )  # two sides, 4 workers, an hour
    assert one["more_price"] is one["currency"] is None
    sides = [
        *repeats(101.0, 0.97, 1.0, 1.02),
        *repeats(100.0, 1.01, 0.99, 1.0, framework="horovod"),
    ]
    (sold,) = compare(*sides, tariff=Tariff(2.5, "EUR", 8))
    assert (sold["more_price"], sold["currency"]) == (
        pytest.approx(2.5 * 2 * one["more_worker_hours"]),
        "EUR",
    )  # 4 of 8
    (alone,) = compare(row(120.0), row(100.0, framework="horovod"))
    assert (alone["n"], alone["verdict"], alone["low"], alone["more_repeats"]) == (
        1,
        "cannot tell",
        None,
        None,
    )


def test_only_like_is_compared() -> None:
    other = [
        row(100.0, framework="horovod", workers=8),
        row(100.0, framework="horovod", model="vit"),
    ]
    assert compare(row(120.0), *other, row(9.0, framework="fsdp") | {"status": "failed"}) == []
    (one,) = compare(row(120.0, form="tfrecord"), row(100.0, loader="native", form="raw"))
    assert (one["compared"], one["left"], one["right"], one["with"]) == (
        "loader",
        "dali-cpu",
        "native",
        "ddp",
    )


def test_forms_are_not_repeats_of_one_loader() -> None:
    """Native reads raw and webdataset, DALI tfrecord and webdataset: each of the four is a side of
    its own.
    """
    sides = [
        ("native", "raw", 100.0),
        ("native", "webdataset", 110.0),
        ("dali-cpu", "tfrecord", 120.0),
    ]
    sides += [("dali-cpu", "webdataset", 130.0), ("synthetic", None, 200.0)]
    made = compare(
        *(one for loader, form, rate in sides for one in repeats(rate, loader=loader, form=form))
    )
    pairs = {
        (one["compared"], one["left"], one["right"], one["with"]): one["ratio"] for one in made
    }
    assert pairs == {
        ("form", "raw", "webdataset", "ddp and native"): pytest.approx(100 / 110),
        ("form", "tfrecord", "webdataset", "ddp and dali-cpu"): pytest.approx(120 / 130),
        ("loader", "dali-cpu (tfrecord)", "native (raw)", "ddp"): pytest.approx(
            1.2
        ),  # neither reads the other's form
        ("loader", "dali-cpu (webdataset)", "native (webdataset)", "ddp"): pytest.approx(130 / 110),
        ("loader", "dali-cpu (tfrecord)", "synthetic", "ddp"): pytest.approx(0.6),
        ("loader", "dali-cpu (webdataset)", "synthetic", "ddp"): pytest.approx(0.65),
        ("loader", "native (raw)", "synthetic", "ddp"): pytest.approx(0.5),
        ("loader", "native (webdataset)", "synthetic", "ddp"): pytest.approx(0.55),
    }
    assert {one["n"] for one in made} == {3} and {one["runs"].count(" ") for one in made} == {5}
    frameworks = compare(
        *repeats(120.0, form="raw"), *repeats(130.0), *repeats(100.0, framework="fsdp", form="raw")
    )
    assert [one["with"] for one in frameworks if one["compared"] == "framework"] == [
        "dali-cpu (raw)"
    ]


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_example(stage: int, gigabytes: float) -> None:
    """Figure 1: 7.5 billion parameters on 64 GPUs with K = 12."""
    held = held_bytes(7.5e9, stage, 64, optimizer_bytes=12, number_bytes=2)
    assert held / 1e9 == pytest.approx(gigabytes, abs=0.05)
    assert held_bytes(1000, stage, 1, 8) == 16_000  # one worker holds all
    with pytest.raises(ValueError, match="stage 4: allowed: 0, 1, 2, 3"):
        held_bytes(1000, 4, 1, 8)


@pytest.mark.parametrize(
    ("optimizer", "momentum", "k"),
    [("sgd", 0.9, 4), ("sgd", 0, 0), ("lars", 0, 4), ("adamw", 0, 8)],
)
def test_the_optimizers_state(optimizer: str, momentum: float, k: float) -> None:
    assert optimizer_bytes(optimizer, momentum) == k


TERMS = Terms(node_hours_between=100.0, node_hour_price=8.0, currency="EUR", checkpoint_minutes=30)


def simulated(
    work: float, interval: float, save: float, restart: float, between: float, seed: int
) -> float:
    """One training, event by event: time runs until the next interruption, whatever is being
    done.
    """
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
    ("interval", "save", "restart", "between"),
    [(30, 5, 10, 360), (117, 5, 10, 1440), (9, 5, 10, 15), (40, 0.5, 0, 60)],
)
def test_a_simulation_takes_as_long(
    interval: float, save: float, restart: float, between: float
) -> None:
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


def run(
    framework: str = "ddp", workers: int = 8, s: float = 36_000, **changes: object
) -> dict[str, object]:
    measured = {name: changes.pop(name, None) for name in ("checkpoint_s", "restart_s", "repeat_s")}
    batch = {
        "global_batch": 64 * workers,
        "workers": workers,
        "workers_per_node": 4,
        "framework": framework,
    }
    spec = run_spec(**batch | changes)
    return spec.columns() | {"status": "success", "full_train_s": s} | measured


def made(*given: dict[str, object], terms: Terms = TERMS) -> pd.DataFrame:
    rows = costs.rows(tables.frame("runs", list(given)), terms)
    return tables.frame("costs", rows)


def test_the_table_has_the_chosen_interval_beside_the_best() -> None:
    """Ten hours on two nodes: 20 node hours at 8 EUR. An interrupted run of fewer epochs is as
    good.
    """
    killed = {"interrupt_steps": 60, "epochs": 1, "checkpoint_s": 20.0, "restart_s": 60.0}
    table = made(run(), run(repeat=2, s=38_000), run(repeat=3, s=10_000), run(s=1, **killed))
    assert set(table["interval"].dropna()) == {"chosen", "Young", "Daly"}
    row = table.set_index("interval").loc["chosen"]
    assert row[["nodes", "train_s", "node_hours", "cost", "currency", "n"]].tolist() == [
        2,
        36_000,
        20,
        160,
        "EUR",
        1,
    ]
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
        (TERMS, {}, "checkpoint"),
        (TERMS, {"framework": "horovod"}, "checkpoint"),
        (TERMS, {"workers": 4}, "checkpoint"),
        (TERMS, {"restart_s": None}, "checkpoint"),
        (replace(TERMS, node_hours_between=None), {"epochs": 2}, "the machine's file"),
    ],
)
def test_what_cannot_be_said_is_not_said(terms: Terms, killed: dict[str, object], why: str) -> None:
    other = {"interrupt_steps": 60, "checkpoint_s": 20.0, "restart_s": 60.0} | killed
    table = made(run(), *([run(**other)] if killed else []), terms=terms)
    (row,) = table[table["framework"] == "ddp"].to_dict("records")
    assert missing(row["why"], why) == []
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


@pytest.mark.parametrize(
    ("minutes", "epochs", "interval_s"),
    [(None, 1, 9000), (30, 1, 1800), (30, None, 1800), (180, 1, 9000)],
)
def test_the_chosen_interval_is_that_of_epochs_or_minutes(
    minutes: float | None, epochs: int | None, interval_s: float
) -> None:
    """Ten hours of four epochs: each takes 9000 s."""
    killed = run(interrupt_steps=60, checkpoint_s=20.0, restart_s=60.0)
    terms = Terms(100.0, checkpoint_minutes=minutes, checkpoint_epochs=epochs)
    ours = run() | {"epochs": 4, "of_epochs": 4}
    row = made(ours, killed, terms=terms).set_index("interval").loc["chosen"]
    assert row["interval_s"] == interval_s


def test_failed_runs_cost_nothing() -> None:
    assert made(run() | {"status": "failed"}).empty


def test_a_node_is_paid_for_as_a_whole() -> None:
    machine = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR")
    written = {"minutes": 30, "epochs": 2}
    assert Terms(*configuration.terms(machine, written)) == Terms(6334, 8.0, "EUR", 30, 2)
    never = dict.fromkeys(written)
    assert (
        Terms(*configuration.terms(replace(JUWELS, node_hours_between_interruptions=None), never))
        == Terms()
    )
