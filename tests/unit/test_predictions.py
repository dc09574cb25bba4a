"""Predictions of a study: more workers, what is refused, series, table, text and figure."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.analysis import prediction_priors
from ddlbench.analysis.prediction import Measured, TooLittleError
from ddlbench.outlook import NoAnswerError, predictions
from ddlbench.outlook.predictions import lines, predicted, rows
from ddlbench.outlook.series import NAMED, Series, all_series
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config
from ddlbench.show.figures import Options

from tests.builders.machines import JUWELS
from tests.builders.plans import run_spec
from tests.builders.records import tables, write_record
from tests.facts import missing, refuses
from tests.unit.test_scaling import runs_table, sized

PRIORS = prediction_priors.read()


def made_up(
    rates: dict[int, float],
    batch: float = 64.0,
    node: int = 4,
    spread: float | None = None,
    **of: Any,
) -> Series:
    named = dict.fromkeys(NAMED, "x") | {"machine": "juwels-booster", "precision": "fp32", **of}
    name, points = "throughput_images_per_s", []
    for workers, rate in rates.items():
        low, high = (None, None) if spread is None else (rate / spread, rate * spread)
        point = {"workers": workers, "repeats": 1 if spread is None else 3}
        points.append(point | {name: rate, f"{name}_low": low, f"{name}_high": high})
    measured = Measured(tuple(rates), tuple(rates.values()), (batch,) * len(rates), node)
    return Series(named, measured, tuple(points), 1_281_167.0, 90)


def scaled(*workers: int) -> Series:
    return made_up({n: 100 * n * 0.98 ** math.log2(n) for n in workers})


def of_study(rates: dict[int, float], batch: int = 64, **columns: Any) -> pd.DataFrame:
    """Runs of a batch per worker that draw 100 W a worker."""
    table = runs_table(*((sized(n, batch * n), rate) for n, rate in rates.items()))
    return table.assign(
        **{"of_epochs": 90, "energy_j": 3600.0 * table["workers"], "train_s": 36.0, **columns}
    )


def found(runs: pd.DataFrame) -> list[dict[str, Any]]:
    return rows(all_series(runs, 4), replace(JUWELS, price_per_gpu_hour=2.0))


class TestMoreWorkers:
    def test_three_doublings_and_what_the_study_plans(self) -> None:
        assert predictions.counts((4, 8), [4, 24, 32, 65]) == [16, 24, 32, 64]

    def test_numbers(self) -> None:
        _, _, row, *_ = found(of_study({4: 400.0, 8: 800.0}))
        assert row["workers"] == 16
        assert row["images_per_s"] == pytest.approx(1600, rel=0.05)
        assert row["images_per_s_low"] < row["images_per_s"] < row["images_per_s_high"]
        assert row["efficiency"] == pytest.approx(row["images_per_s"] / 1600)
        assert row["train_h"] == pytest.approx(1200 * 90 / row["images_per_s"] / 3600)
        assert row["train_h_low"] < row["train_h"] < row["train_h_high"]
        assert row["price"] == pytest.approx(row["worker_hours"] * 2)
        assert row["energy_kwh"] == pytest.approx(100 * 16 * row["train_h"] / 1000)
        (_, title, *_) = lines([row])
        assert missing(title, "lenet, ddp, native, fp32", "batch 64", "4 8 workers") == []

    def test_one_node_says_what_to_measure(self) -> None:
        table = found(of_study({1: 100.0, 4: 390.0}))
        assert [row["images_per_s"] for row in table] == [100, 390, None, None, None]
        (_, line, *series) = lines([*table, *(row | {"series": "another"} for row in table)])
        assert len(series) == 2 and all(
            "(measured: 1 4 workers)" in title for title in series
        )  # said once
        assert " 8, 16, 32 workers: " in line and "measure 8 workers" in line

    def test_a_node_is_the_machines_not_the_runs(self) -> None:
        """Runs of 1 and 2 workers on a machine with 4 a node lie within a node."""
        _, _, row, beyond, _ = found(of_study({1: 100.0, 2: 196.0}))
        assert (row["workers"], row["why_not"]) == (4, None)
        assert (beyond["workers"], beyond["images_per_s"]) == (8, None)

    def test_a_batch_that_changes_is_predicted(self) -> None:
        """Of strong scaling each worker has its share, an image at least; what a smaller batch
        costs is the line's.
        """
        table = runs_table(*((sized(n, 32), rate) for n, rate in {4: 4000.0, 8: 7000.0}.items()))
        *_, row, _, none = found(table.assign(scaling="strong"))
        assert row["batch_per_worker"] == 2 and 7000 < row["images_per_s"] < 14_000
        assert (
            "batch 32 of all workers" in lines([row])[1]
            and "each worker needs at least one" in none["why_not"]
        )

    def test_nothing_to_predict(self) -> None:
        assert found(of_study({4: 400.0}, status="failed")) == found(pd.DataFrame()) == []


class TestRefusals:
    def test_a_network_that_nobody_saw(self) -> None:
        with pytest.raises(TooLittleError, match="measure 8 workers"):
            predicted(scaled(1, 2, 4), 64, PRIORS)

    def test_more_than_an_interval_can_say(self) -> None:
        one = scaled(4, 8, 16, 32)
        widths = [
            high / low for n in (64, 128, 256) for _, low, high in [predicted(one, n, PRIORS)]
        ]
        assert widths == sorted(widths)
        with refuses(TooLittleError, "factor of 10", "measure 16 workers"):
            predicted(scaled(4, 8), 100_000, PRIORS)


def test_others_records_have_the_batch_that_they_had() -> None:
    """MLPerf's submitters change the batch along a series; `scaling` says none for them."""
    runs = runs_table((sized(8, 8 * 400), 8000.0), (sized(64, 64 * 51), 60000.0))
    ours = all_series(runs, 4)
    assert {one.measured.workers for one in ours} == {(8,), (64,)}  # two batches, two series
    (one,) = all_series(
        runs.assign(records="mlperf", workers_per_node=8, of_epochs=None, images_seen=42_000), 4
    )
    assert one.images * one.epochs == 42_000  # hours are those of the whole training
    assert one.measured == Measured((8, 64), (8000.0, 60000.0), (400.0, 51.0), 8)


def test_series_are_named_by_the_settings_in_which_they_differ() -> None:
    both = [(sized(4, 256, schedule=schedule), 80.0) for schedule in ("step", "cosine")]
    assert [one.name.split(", ")[-2] for one in all_series(runs_table(*both), 4)] == [
        "cosine",
        "step",
    ]
    (alone,) = all_series(runs_table(*both[:1]), 4)
    assert "step" not in alone.name


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    of = [
        made_up({4: 400.0, 8: 780.0}),
        made_up({4: 400.0, 8: 780.0, 16: 1500.0}, spread=1.02, framework="y"),
    ]
    return rows(of, replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR"), planned=[24])


def test_the_table(table: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame([row for row in table if row["framework"] == "y"])
    assert list(frame.loc[frame["by"] == "measured", "workers"]) == [4, 8, 16]
    assert list(frame.loc[frame["by"] == "predicted", "workers"]) == [24, 32, 64, 128]
    assert (frame["images_per_s_low"] <= frame["images_per_s"]).all()
    assert (frame["images_per_s"] <= frame["images_per_s_high"]).all()
    hours = frame["train_h"]
    assert hours.to_list() == pytest.approx(
        (1_281_167 * 90 / frame["images_per_s"] / 3600).to_list()
    )
    assert frame["price"].to_list() == pytest.approx((hours * frame["workers"] * 2).to_list())


def test_a_step_larger_than_an_epoch_has_rates_but_no_hours() -> None:
    *_, row = rows([replace(scaled(4, 8), images=300.0)], JUWELS)
    assert (
        row["images_per_s"] > 0
        and row["train_h"] is None
        and missing(row["basis"], "global batch") == []
    )
    assert missing(lines([row])[2], "no hours") == []


def test_the_picture(table: list[dict[str, Any]]) -> None:
    figure = predictions.draw(table, Options("t", "cuda", "GPU"))
    (axes,) = figure.axes
    assert "y" in figure.get_suptitle()  # the series with the largest count
    drawn = {line.get_label(): line for line in axes.get_lines()}
    assert list(drawn["measured"].get_xdata()) == [4, 8, 16]
    assert list(drawn["predicted"].get_xdata()) == [24, 32, 64, 128]
    assert list(drawn["measured"].get_ydata()) == pytest.approx([100.0, 97.5, 93.75])


def test_records_become_rows(tmp_path: Path) -> None:
    specs = [run_spec(workers=n, global_batch=4 * n, repeat=r) for n in (1, 2) for r in (1, 2)]
    runs, _ = tables(
        tmp_path / "tables", *(write_record(tmp_path / "runs", spec) for spec in specs)
    )
    (series,) = all_series(runs, 4)
    assert series.measured.workers == (1, 2) and series.batch_at(8) == 4
    table = rows([series], JUWELS)
    assert [row["workers"] for row in table] == [1, 2, 4, 8, 16]
    assert [row["by"] for row in table] == ["measured"] * 2 + ["predicted"] * 3


CONFIG: dict[str, Any] = check_config({"study": "demo", "machine": "local"})


def test_files_are_written_and_named(tmp_path: Path) -> None:
    specs = [run.spec for run in make_plan(load_study("demo"), load_machine("local")).runs.values()]
    wanted = [spec for spec in specs if spec.loader == "native" and spec.adapter == "ddp"]
    folders = [
        write_record(tmp_path / "runs", spec, images=8 * spec.global_batch) for spec in wanted
    ]
    said = predictions.make(CONFIG, folders, tmp_path / "results")
    home = tmp_path / "results/demo/local"
    figures = [f"figures/predictions.{suffix}" for suffix in ("pdf", "png", "svg")]
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*.*")) == [
        *figures,
        "tables/predictions.csv",
    ]
    assert f"{home}/tables/predictions.csv" in said and f"{home}/figures/predictions.png" in said
    assert set(pd.read_csv(home / "tables/predictions.csv")["model"]) & {"resnet8_half", "lenet"}


def test_without_records_it_says_what_to_do(tmp_path: Path) -> None:
    with refuses(NoAnswerError, "study demo", "machine local"):
        predictions.make(CONFIG, [], tmp_path)
    assert not any(tmp_path.rglob("*.*"))
