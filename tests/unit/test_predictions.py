"""Predictions of a study: more workers, what changes do, what is refused, series, table, text and figure."""

import math
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.prediction import Measured, TooLittleError, _priors
from ddlbench.outlook import predictions
from ddlbench.outlook.changes import AS_IT_IS, NAMED, Change, ChangedRate, Question, Series, all_series, ends
from ddlbench.outlook.predictions import asked, lines, rows
from ddlbench.settings.config import ConfigError
from ddlbench.settings.workflow import check_config
from ddlbench.show.figures import Options

from tests.specs import JUWELS, run_spec
from tests.unit.records import tables, write_record
from tests.unit.test_scaling import runs_table, sized

PRIORS = _priors.read()


def made_up(
    rates: dict[int, float], batch: float = 64.0, node: int = 4, spread: float | None = None, **of: Any
) -> Series:
    named = dict.fromkeys(NAMED, "x") | {"machine": "juwels-booster", "precision": "fp32", **of}
    name, points = "throughput_images_per_s", []
    for workers, rate in rates.items():
        low, high = (None, None) if spread is None else (rate / spread, rate * spread)
        point = {"workers": workers, "repeats": 1 if spread is None else 3}
        points.append(point | {name: rate, f"{name}_low": low, f"{name}_high": high})
    measured = Measured(tuple(rates), tuple(rates.values()), (batch,) * len(rates), node)
    return Series(named, measured, tuple(points), 1_281_167.0, 90, 100.0, None)


def rate(one: Series, kind: str, value: Any, workers: int, *others: Series, machine: Any = JUWELS) -> ChangedRate:
    return Question(one, Change(kind, value), workers, [one, *others], machine, PRIORS).rate()


def scaled(*workers: int) -> Series:
    return made_up({n: 100 * n * 0.98 ** math.log2(n) for n in workers})


def of_study(rates: dict[int, float], batch: int = 64, **columns: Any) -> pd.DataFrame:
    """Runs of a batch per worker that draw 100 W a worker."""
    table = runs_table(*((sized(n, batch * n), rate) for n, rate in rates.items()))
    return table.assign(**{"of_epochs": 90, "energy_j": 3600.0 * table["workers"], "train_s": 36.0, **columns})


def found(runs: pd.DataFrame, *workers: int) -> list[dict[str, Any]]:
    return rows(all_series(runs, 4), replace(JUWELS, price_per_gpu_hour=2.0), workers=workers)


class TestMoreWorkers:
    def test_three_doublings_and_what_the_study_plans(self) -> None:
        assert predictions.counts((4, 8), [4, 24, 32, 65]) == [16, 24, 32, 64]

    def test_numbers(self) -> None:
        *_, row = found(of_study({4: 400.0, 8: 800.0}), 16)
        assert row["images_per_s"] == pytest.approx(1600, rel=0.05)
        assert row["images_per_s_low"] < row["images_per_s"] < row["images_per_s_high"]
        assert row["efficiency"] == pytest.approx(row["images_per_s"] / 1600)
        assert row["train_h"] == pytest.approx(1200 * 90 / row["images_per_s"] / 3600)
        assert row["train_h_low"] < row["train_h"] < row["train_h_high"]
        assert row["price"] == pytest.approx(row["worker_hours"] * 2)
        assert row["energy_kwh"] == pytest.approx(100 * 16 * row["train_h"] / 1000)
        assert "  lenet, ddp, native, fp32, batch 64 per worker (measured: 4 8 workers):" in lines([row])

    def test_one_node_says_what_to_measure(self) -> None:
        table = found(of_study({1: 100.0, 4: 390.0}), 16, 32)
        assert [row["images_per_s"] for row in table] == [100, 390, None, None]
        (_, line, *series) = lines([*table, *(row | {"series": "another"} for row in table)])
        assert len(series) == 2 and all("(measured: 1 4 workers)" in title for title in series)  # said once
        assert "  not 16, 32 workers: " in line and "measure 8 workers" in line

    def test_a_node_is_the_machines_not_the_runs(self) -> None:
        """Runs of 1 and 2 workers on a machine with 4 a node lie within a node."""
        *_, row = found(of_study({1: 100.0, 2: 196.0}), 4)
        assert row["why_not"] is None

    def test_a_batch_that_changes_is_predicted(self) -> None:
        """Of strong scaling each worker has its share, an image at least; what a smaller batch costs is the line's."""
        table = runs_table(*((sized(n, 256), rate) for n, rate in {4: 4000.0, 8: 7000.0}.items()))
        *_, row, none = found(table.assign(scaling="strong"), 16, 512)
        assert row["batch_per_worker"] == 16 and 7000 < row["images_per_s"] < 14_000
        assert "batch 256 of all workers" in lines([row])[1] and "give each an image" in none["why_not"]

    def test_nothing_to_predict(self) -> None:
        assert found(of_study({4: 400.0}, status="failed")) == found(pd.DataFrame()) == []


@pytest.mark.parametrize(
    ("lost", "communication", "hidden", "expected"),
    [
        ((0.0, 0.1, 0.2), 1.0, 0.6, (1.0, 1.0)),  # no change is none
        ((0.2, 0.2, 0.2), 1e-9, 0.6, (1.0, 1.2)),  # a faster network gives at most what was lost
        ((0.2, 0.2, 0.2), 0.5, 0.0, (1.0, 1.2 / 1.1)),  # twice as fast, without overlap: half of the loss
        ((0.2, 0.2, 0.2), 2.0, 0.6, (1.2 / (1 + 2 * 0.2 + 0.6), 1.0)),  # a slower one brings to light what was hidden
    ],
)
def test_ends(
    lost: tuple[float, float, float], communication: float, hidden: float, expected: tuple[float, float]
) -> None:
    assert ends(lost, (1.0, 1.0), communication, hidden) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "values", "clusters", "seed", "least", "width", "error"),
    [
        ("bandwidth", (0.5, 2.0, 10.0), 60, 1, 400, 3, math.inf),
        ("workers_per_node", (1, 2, 8, 16), 25, 3, 200, 2, 0.05),
    ],
)
def test_intervals_hold_on_simulated_clusters(
    kind: str, values: tuple[Any, ...], clusters: int, seed: int, least: int, width: float, error: float
) -> None:
    """Rings that overlap with the backward pass, whose truth no formula here knows: 16 to 256 workers, known with 4 a
    node. Of other nodes there are rings within them, too, and their workers share a host."""
    random, held, widths, errors = np.random.default_rng(seed), [], [], []
    for _ in range(clusters):
        compute, size, link = random.uniform(0.05, 0.3), random.uniform(5e7, 5e8), random.uniform(1e9, 20e9)
        spread, inner, shared = random.uniform(0.002, 0.03), math.inf, 0.0
        if kind == "workers_per_node":
            inner, shared = random.uniform(20e9, 200e9), random.uniform(0, 0.01)

        def step(
            workers: int,
            node: int = 4,
            faster: float = 1.0,
            of: tuple[float, ...] = (compute, size, link, spread, inner, shared),
        ) -> float:
            c, s, b, d, i, h = of
            nodes, k = -(-workers // node), min(node, workers)
            ring = (2 * (nodes - 1) / nodes * s / (b * faster) if nodes > 1 else 0.0) + 2 * (k - 1) / k * s / i
            computing = c * (1 + d * math.sqrt(2 * math.log(workers))) * (1 + h * (k - 1))
            return computing + max(0.05 * ring, ring - 2 / 3 * c)

        one = made_up({n: 64 * n / step(n) for n in (4, 8, 16, 32)})
        for value, workers in product(values, (16, 64, 256)):
            try:
                got = rate(one, kind, value, workers)
            except TooLittleError:
                continue
            changed = {"faster": value} if kind == "bandwidth" else {"node": value}
            truth = 64 * workers / step(workers, **changed)
            held.append(got.low <= truth <= got.high)
            widths.append(got.high / got.low)
            errors.append(abs(math.log(got.middle / truth)))
    assert len(held) > least
    assert np.mean(held) >= 0.95
    assert np.median(widths) < width
    assert np.median(errors) < error


def test_published_pairs_hold() -> None:
    """Series of one source that differ in their batch only."""
    held = []
    for one, other in permutations(_priors.published(), 2):
        if one.source == other.source and one.name.rsplit("-b", 1)[0] == other.name.rsplit("-b", 1)[0]:
            a, b = one.measured, other.measured
            rates = dict(zip(a.workers, a.images_per_s, strict=True))
            from_a = made_up(rates, a.batch_per_worker[0], a.workers_per_node)
            for workers, truth in zip(b.workers, b.images_per_s, strict=True):
                got = rate(from_a, "batch_per_worker", b.batch_per_worker[0], workers)
                held.append(got.low <= truth <= got.high)
    assert len(held) >= 30
    assert np.mean(held) >= 0.95


class TestRefusals:
    def test_a_network_that_nobody_saw(self) -> None:
        with pytest.raises(TooLittleError, match=r"within one node of 4 workers.*measure 8"):
            rate(scaled(1, 2, 4), "bandwidth", 2.0, 4)
        with pytest.raises(TooLittleError, match="measure 8 workers"):
            rate(scaled(1, 2, 4), AS_IT_IS, None, 64)

    def test_more_than_an_interval_can_say(self) -> None:
        one = scaled(4, 8, 16, 32)
        widths = [got.high / got.low for n in (64, 128, 256) for got in [rate(one, AS_IT_IS, None, n)]]
        assert widths == sorted(widths)
        with pytest.raises(TooLittleError, match="factor of 10; measure 16 workers or more"):
            rate(scaled(4, 8), AS_IT_IS, None, 100_000)

    @pytest.mark.parametrize(("kind", "value"), [("model", "vgg16"), ("precision", "tf32")])
    def test_what_no_record_has(self, kind: str, value: str) -> None:
        bare = replace(JUWELS, peak_tflops_per_worker=())
        with pytest.raises(TooLittleError, match=f"no record of {kind} {value}.*measure it with 4 workers"):
            rate(scaled(4, 8), kind, value, 8, machine=bare)

    def test_a_record_of_another_batch_or_loader_does_not_help(self) -> None:
        bare = replace(JUWELS, peak_tflops_per_worker=())
        changes = ({"loader": "y"}, {"schedule": "y"}, {"form": "y"}, {"bandwidth_mbit": 10}, {"settings": "y"})
        others = [made_up({4: 800}, precision="fp16", **change) for change in changes]
        for other in (made_up({4: 800}, 128.0, precision="fp16"), *others):
            with pytest.raises(TooLittleError):
                rate(scaled(4, 8), "precision", "fp16", 8, other, machine=bare)


def test_another_precision_by_one_record() -> None:
    fast = made_up({4: 800.0}, precision="fp16", recipe="amp")
    got = rate(scaled(4, 8, 16), "precision", "fp16", 16, fast)
    as_it_is = rate(scaled(4, 8, 16), AS_IT_IS, None, 16)
    assert 1.4 < got.middle / as_it_is.middle < 2.1
    assert "without repeats, its error is not in the interval" in got.basis
    sure = made_up({4: 384.16, 8: 752.9, 16: 1475.8}, spread=1.05)
    once, repeated = (
        rate(sure, "precision", "fp16", 16, made_up({4: 800.0}, precision="fp16", spread=spread))
        for spread in (None, 1.05)
    )
    assert repeated.high / repeated.low > 1.1 * once.high / once.low  # both sides may err, in opposite directions


def test_another_precision_by_peaks() -> None:
    peaks = replace(JUWELS, peak_tflops_per_worker=(("fp32", 10.0), ("tf32", 80.0)))
    got = rate(scaled(4, 8, 16), "precision", "tf32", 8, machine=peaks)
    as_it_is = rate(scaled(4, 8, 16), AS_IT_IS, None, 8)
    assert got.low <= as_it_is.low * 1.001  # no gain is possible
    assert 4 < got.high / as_it_is.high <= 8.001


def test_another_model_has_its_gradients() -> None:
    """As much to compute, three times as much to reduce: the lower end falls."""
    alike = made_up({4: 384.16}, model="alike")
    heavy = replace(made_up({4: 384.16}, model="heavy"), gradients_bytes=300.0)
    one = scaled(4, 8, 16, 32)
    few, many = (rate(one, "model", name, 32, alike, heavy) for name in ("alike", "heavy"))
    assert many.low < 0.6 * few.low
    unknown = replace(heavy, gradients_bytes=None)
    with pytest.raises(TooLittleError, match="how large the gradients are"):
        rate(one, "model", "heavy", 32, unknown)


class TestAsked:
    def test_the_configuration_may_leave_it_out(self) -> None:
        given = {"study": "demo", "machine": "local"}
        assert check_config(given)["what_if"] is None
        assert check_config({**given, "what_if": {"bandwidth": [0.5, 4]}})["what_if"] == {"bandwidth": [0.5, 4]}

    def test_each_alone_and_once(self) -> None:
        changes, workers = asked({"bandwidth": [0.5, 0.5, 2], "precision": "fp16", "workers": 64})
        names = ["as it is", "0.5 x bandwidth between nodes", "2 x bandwidth between nodes", "fp16"]
        assert [change.name for change in changes] == names
        assert workers == [64]

    def test_nothing_is_no_change(self) -> None:
        assert asked(None) == ([Change()], []) and asked({"workers": [8]}) == ([Change()], [8])

    @pytest.mark.parametrize(("kind", "value"), [("model", "resnet51"), ("precision", "fp8")])
    def test_an_unknown_name(self, kind: str, value: str) -> None:
        with pytest.raises(ConfigError, match=rf"what_if\.{kind}: {value}: unknown; (did you mean .*)?allowed: "):
            asked({kind: value})

    @pytest.mark.parametrize("wrong", [{"workers": 100_001}, {"bandwidth": 0}, {"bandwith": 2}, {"workers": ["a"]}, 3])
    def test_what_the_configuration_refuses(self, wrong: Any) -> None:
        with pytest.raises(ConfigError, match=r"config\.yaml: what_if"):
            check_config({"study": "demo", "machine": "local", "what_if": wrong})


def test_others_records_have_the_batch_that_they_had() -> None:
    """MLPerf's submitters change the batch along a series; `scaling` says none for them."""
    runs = runs_table((sized(8, 8 * 400), 8000.0), (sized(64, 64 * 51), 60000.0))
    ours = all_series(runs, 4)
    assert {one.measured.workers for one in ours} == {(8,), (64,)}  # two batches, two series
    (one,) = all_series(runs.assign(records="mlperf", workers_per_node=8, of_epochs=None, images_seen=42_000), 4)
    assert one.images * one.epochs == 42_000  # hours are those of the whole training
    assert one.measured == Measured((8, 64), (8000.0, 60000.0), (400.0, 51.0), 8)


def test_series_are_named_by_the_settings_in_which_they_differ() -> None:
    both = [(sized(4, 256, schedule=schedule), 80.0) for schedule in ("step", "cosine")]
    assert [one.name.split(", ")[-2] for one in all_series(runs_table(*both), 4)] == ["cosine", "step"]
    (alone,) = all_series(runs_table(*both[:1]), 4)
    assert "step" not in alone.name


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    of = [made_up({4: 400.0, 8: 780.0}), made_up({4: 400.0, 8: 780.0, 16: 1500.0}, spread=1.02, framework="y")]
    changes, workers = asked({"bandwidth": [0.5, 2], "precision": "bf16", "workers": [64, 128, 100_000]})
    bare = replace(JUWELS, peak_tflops_per_worker=(), price_per_gpu_hour=2.0, currency="EUR")
    return rows(of, bare, changes, workers)


def test_the_table(table: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame([row for row in table if row["framework"] == "y"])
    measured = frame[frame["by"] == "measured"]
    assert list(measured["workers"]) == [4, 8, 16] and set(measured["change"]) == {AS_IT_IS}
    filled = frame[frame["why_not"].isna()]
    assert (filled["images_per_s_low"] <= filled["images_per_s"]).all()
    assert (filled["images_per_s"] <= filled["images_per_s_high"]).all()
    hours = filled["train_h"]
    assert hours.to_list() == pytest.approx((1_281_167 * 90 / filled["images_per_s"] / 3600).to_list())
    assert filled["price"].to_list() == pytest.approx((hours * filled["workers"] * 2).to_list())
    assert frame.loc[frame["why_not"].notna(), "images_per_s"].isna().all()
    text = lines(table)
    # Of each change the largest count, with what it is computed from; a reason once, whatever the series.
    assert text[1].endswith(" (measured: 4 8 workers):") and text[6].endswith(" (measured: 4 8 16 workers):")
    half = text[9]
    assert half.startswith("    128 workers, 0.5 x bandwidth between nodes: ")
    assert " h; up to " in half and half.endswith(" of a step is lost beyond a node")
    why = "  not 4, 8, 64, 128 workers, bf16: no record of precision bf16 "
    both = lines([*table, *(row | {"series": "another"} for row in table if row["framework"] != "y")])
    assert [sum(line.startswith(why) for line in some) for some in (text, both)] == [1, 1]


def test_a_step_larger_than_an_epoch_has_rates_but_no_hours() -> None:
    *_, row = rows([replace(scaled(4, 8), images=300.0)], JUWELS, workers=[16])
    assert row["images_per_s"] > 0 and row["train_h"] is None and "more images than an epoch" in row["basis"]
    assert lines([row])[2].endswith(", and no hours")


def test_the_picture(table: list[dict[str, Any]]) -> None:
    figure = predictions.draw(table, Options("t", "cuda", "GPU"))
    assert "y" in figure.get_suptitle()  # the series with the largest count
    assert [axes.get_title() for axes in figure.axes] == ["bandwidth"]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert {"measured: as it is", "predicted: as it is", "2 x bandwidth between nodes"} <= set(labels)


def test_records_become_rows(tmp_path: Path) -> None:
    specs = [run_spec(workers=n, global_batch=4 * n, repeat=r) for n in (1, 2) for r in (1, 2)]
    runs, _ = tables(tmp_path / "tables", *(write_record(tmp_path / "runs", spec) for spec in specs))
    (series,) = all_series(runs, 4)
    assert series.measured.workers == (1, 2) and series.batch == 4
    table = rows([series], JUWELS, asked({"batch_per_worker": 8})[0], [4])
    assert [row["workers"] for row in table] == [1, 2, 4] * 2
    assert [row["by"] for row in table] == ["measured"] * 2 + ["predicted"] * 4
