"""What if: the formula's ends, what is refused, series of ours and of others, table, text and figure."""

import math
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.prediction import Measured, _priors, _table
from ddlbench.outlook import what_if
from ddlbench.outlook.changed_rates import (
    AS_IT_IS,
    NAMED,
    Change,
    ChangedRate,
    NothingToSayError,
    Question,
    Series,
    ends,
    series,
)
from ddlbench.outlook.what_if import asked
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


@pytest.mark.parametrize("batches", [(256, 512, 1024), (256, 768, 960), (256, 256, 256)])  # ours, others', strong
def test_predict_gives_the_same_answer(batches: tuple[int, ...]) -> None:
    """Of one series, whatever its batches: rates, intervals, efficiency; and that no worker has less than an image."""
    runs = runs_table(*((sized(n, batch), 25.0 * n**0.95) for n, batch in zip((4, 8, 16), batches, strict=True)))
    others, strong = batches[1] == 768, batches[1] == 256
    runs = runs.assign(records="mlperf" if others else "ours", images_seen=1200, energy_j=None, train_s=1.0)
    counts = [32, 64, *[512] * strong]
    predicted = _table.rows(runs, 4, workers=counts, priors=PRIORS)
    made = what_if.rows(series(runs, 4), [Change()], counts, JUWELS, PRIORS)
    names = {"low": "images_per_s_low", "high": "images_per_s_high"}
    for ours, theirs in zip(predicted, [row for row in made if row["workers"] > 16], strict=True):
        assert ours["why_not"] == theirs["why_not"] and (ours["why_not"] is None) == (ours["workers"] < 512)
        for name in ("images_per_s", *names, "efficiency", "batch_per_worker") if ours["why_not"] is None else ():
            assert ours[name] == pytest.approx(theirs[names.get(name, name)], rel=1e-12), name


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
            except NothingToSayError:
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
        with pytest.raises(NothingToSayError, match=r"within one node of 4 workers.*measure 8"):
            rate(scaled(1, 2, 4), "bandwidth", 2.0, 4)
        with pytest.raises(NothingToSayError, match="measure 8 workers"):
            rate(scaled(1, 2, 4), AS_IT_IS, None, 64)

    def test_more_than_an_interval_can_say(self) -> None:
        one = scaled(4, 8, 16, 32)
        widths = [got.high / got.low for n in (64, 128, 256) for got in [rate(one, AS_IT_IS, None, n)]]
        assert widths == sorted(widths)
        with pytest.raises(NothingToSayError, match="factor of 10; measure 16 workers or more"):
            rate(scaled(4, 8), AS_IT_IS, None, 100_000)

    @pytest.mark.parametrize(("kind", "value"), [("model", "vgg16"), ("precision", "tf32")])
    def test_what_no_record_has(self, kind: str, value: str) -> None:
        bare = replace(JUWELS, peak_tflops_per_worker=())
        with pytest.raises(NothingToSayError, match=f"no record of {kind} {value}.*measure it with 4 workers"):
            rate(scaled(4, 8), kind, value, 8, machine=bare)

    def test_a_record_of_another_batch_or_loader_does_not_help(self) -> None:
        bare = replace(JUWELS, peak_tflops_per_worker=())
        changes = ({"loader": "y"}, {"schedule": "y"}, {"form": "y"}, {"bandwidth_mbit": 10}, {"settings": "y"})
        others = [made_up({4: 800}, precision="fp16", **change) for change in changes]
        for other in (made_up({4: 800}, 128.0, precision="fp16"), *others):
            with pytest.raises(NothingToSayError):
                rate(scaled(4, 8), "precision", "fp16", 8, other, machine=bare)


def test_another_precision_by_one_record() -> None:
    fast = made_up({4: 800.0}, precision="fp16", recipe="amp")
    got = rate(scaled(4, 8, 16), "precision", "fp16", 16, fast)
    as_it_is = rate(scaled(4, 8, 16), AS_IT_IS, None, 16)
    assert 1.4 < got.middle / as_it_is.middle < 2.1
    assert "without repeats, its error is not in the interval" in got.basis
    sure = made_up({4: 384.16, 8: 752.9, 16: 1475.8}, spread=1.05)
    wider = rate(sure, "precision", "fp16", 16, made_up({4: 800.0}, precision="fp16", spread=1.05))
    assert wider.high / wider.low > got.high / got.low


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
    with pytest.raises(NothingToSayError, match="how large the gradients are"):
        rate(one, "model", "heavy", 32, unknown)


class TestAsked:
    def test_the_configuration_may_leave_it_out(self) -> None:
        given = {"study": "demo", "machine": "local"}
        assert check_config(given)["what_if"] is None
        assert check_config({**given, "what_if": None})["what_if"] is None
        assert check_config({**given, "what_if": {"bandwidth": [0.5, 4]}})["what_if"] == {"bandwidth": [0.5, 4]}

    def test_each_alone_and_once(self) -> None:
        changes, workers = asked({"bandwidth": [0.5, 0.5, 2], "precision": "fp16", "workers": 64})
        names = ["as it is", "0.5 x bandwidth between nodes", "2 x bandwidth between nodes", "fp16"]
        assert [change.name for change in changes] == names
        assert workers == [64]

    def test_nothing_is_half_and_twice_the_bandwidth(self) -> None:
        assert [change.value for change in asked(None)[0]] == [None, 0.5, 2]
        assert [change.kind for change in asked({"workers": [8]})[0]] == [AS_IT_IS]

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
    ours = series(runs, 4)
    assert {one.measured.workers for one in ours} == {(8,), (64,)}  # two batches, two series
    (one,) = series(runs.assign(records="mlperf", workers_per_node=8), 4)
    assert one.measured == Measured((8, 64), (8000.0, 60000.0), (400.0, 51.0), 8)


def test_series_are_named_by_the_settings_in_which_they_differ() -> None:
    both = [(sized(4, 256, schedule=schedule), 80.0) for schedule in ("step", "cosine")]
    assert [one.name.split(", ")[-2] for one in series(runs_table(*both), 4)] == ["cosine", "step"]
    (alone,) = series(runs_table(*both[:1]), 4)
    assert "step" not in alone.name


def rows() -> list[dict[str, Any]]:
    one = made_up({4: 400.0, 8: 780.0, 16: 1500.0}, spread=1.02)
    changes, workers = asked({"bandwidth": [0.5, 2], "precision": "bf16", "workers": [64, 128, 100_000]})
    bare = replace(JUWELS, peak_tflops_per_worker=(), price_per_gpu_hour=2.0, currency="EUR")
    return what_if.rows([one], changes, workers, bare, PRIORS)


def test_the_table() -> None:
    table = pd.DataFrame(rows())
    assert set(table["by"]) == {"measured", "computed"}
    measured = table[table["by"] == "measured"]
    assert list(measured["workers"]) == [4, 8, 16] and set(measured["change"]) == {AS_IT_IS}
    said = table[table["why_not"].isna()]
    assert (said["images_per_s_low"] <= said["images_per_s"]).all()
    assert (said["images_per_s"] <= said["images_per_s_high"]).all()
    hours = said["train_h"]
    assert hours.to_list() == pytest.approx((1_281_167 * 90 / said["images_per_s"] / 3600).to_list())
    assert said["price"].to_list() == pytest.approx((hours * said["workers"] * 2).to_list())
    assert table.loc[table["why_not"].notna(), "images_per_s"].isna().all()
    text = what_if.lines(table.to_dict("records"))
    assert any("0.5 x bandwidth between nodes: 128 workers: " in line for line in text)
    # A reason is said once, whatever the number of series that it is of.
    again = pd.concat([table, table.assign(series="another")]).to_dict("records")
    (why,) = [line for line in what_if.lines(again) if line.startswith("  nothing is said of: bf16, 4 8 16 64 128")]
    assert why.endswith(f"; in {table['series'].iloc[0]}; another")


def test_a_step_larger_than_an_epoch_has_rates_but_no_hours() -> None:
    small = replace(scaled(4, 8), images=300.0)
    (row,) = [row for row in what_if.rows([small], [Change()], [16], JUWELS, PRIORS) if row["workers"] == 16]
    assert row["images_per_s"] > 0 and row["train_h"] is None and "more images than an epoch" in row["basis"]


def test_the_picture() -> None:
    figure = what_if.draw(rows(), Options("t", "cuda", "GPU"))
    assert [axes.get_title() for axes in figure.axes] == ["bandwidth"]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert {"measured: as it is", "computed: as it is", "2 x bandwidth between nodes"} <= set(labels)


def test_records_become_rows(tmp_path: Path) -> None:
    specs = [run_spec(workers=n, global_batch=4 * n, repeat=r) for n in (1, 2) for r in (1, 2)]
    runs, _ = tables(tmp_path / "tables", *(write_record(tmp_path / "runs", one) for one in specs))
    (one,) = series(runs, 4)
    assert one.measured.workers == (1, 2) and one.batch == 4
    made = what_if.rows([one], asked({"batch_per_worker": 8})[0], [4], JUWELS, PRIORS)
    assert [row["workers"] for row in made] == [1, 2, 4] * 2
    assert [row["by"] for row in made] == ["measured", "measured", "computed", "computed", "computed", "computed"]
