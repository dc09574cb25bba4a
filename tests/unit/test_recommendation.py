"""What to train with to an accuracy: the epochs, the candidates, the choice, what is said and what is refused."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis.collect import collect
from ddlbench.analysis.statistics import over_repeats
from ddlbench.core.spec import RunSpec
from ddlbench.outlook import NoAnswerError, predictions
from ddlbench.outlook.changes import all_series
from ddlbench.outlook.recommendation import candidates, choice, convergence, front
from ddlbench.outlook.recommendation.make import REFERENCE, fairness, make, rows, text
from ddlbench.records import mlperf
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine
from ddlbench.show.figures import Options

from tests.specs import JUWELS, run_spec
from tests.unit.records import tables, write_record
from tests.unit.test_mlperf import log, place

IMAGES = 1_281_167
SOLD = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR", power_per_worker_w=400, power_per_node_w=1000, pue=1.5)
SPREAD = (1.0, 0.99, 1.01)  # of three repeats


def spec(workers: int, **changes: object) -> RunSpec:
    whole = {"dataset": "imagenet", "model": "resnet50", "recipe": "aach2023", "machine": "juwels-booster"}
    whole |= {"device": "cuda", "loader": "dali-cpu", "global_batch": 64 * workers, "epochs": 90}
    return run_spec(workers=workers, workers_per_node=min(4, workers), **{**whole, **changes})


def study(
    rates: dict[int, float], reached: dict[int, int | None], repeats: int = 3, **changes: object
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs by workers with their images/s, and after which epoch they have top-1 0.76 (0.5 before), if ever."""
    runs, epochs = [], []
    for workers, rate in rates.items():
        for repeat in range(1, repeats + 1):
            one, speed = spec(workers, repeat=repeat, **changes), rate * SPREAD[repeat - 1]
            measures = {"throughput_images_per_s": speed, "epoch_s": IMAGES / speed, "full_train_s": 1.0}
            runs.append(one.columns() | {"status": "success"} | measures)
            if one.epochs == one.full_epochs and workers in reached:
                first = reached[workers] or math.inf
                epochs += [
                    {"run": one.id, "epoch": e, "top1": 0.76 if e >= first else 0.5} for e in (1, 30, 60, 70, 90)
                ]
    return pd.DataFrame(runs), pd.DataFrame(epochs, columns=["run", "epoch", "top1"])


RATES = {4: 2400.0, 8: 4700.0, 16: 9000.0}
SPEED_ONLY = {"epochs": 2, "of_epochs": 90}


def both(*parts: tuple[pd.DataFrame, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    runs, epochs = (pd.concat(list(some), ignore_index=True) for some in zip(*parts, strict=True))
    return runs, epochs


def made(parts: tuple[pd.DataFrame, pd.DataFrame], machine: Machine = SOLD, target: float = 0.759) -> list[dict]:
    return rows(*parts, target, machine)


def at(some: list[dict], workers: int, **wanted: object) -> dict:
    (row,) = [row for row in some if row["workers"] == workers and all(row[k] == v for k, v in wanted.items())]
    return row


class TestEpochs:
    def curve(self, reached: dict[int, int | None]) -> convergence.Curve:
        (one,) = convergence.curves(*study(dict.fromkeys(reached, 100.0), reached), 0.759, None)
        return one

    def test_own_runs_by_batch_and_between_batches(self) -> None:
        curve = self.curve({4: 60, 16: 70})
        assert curve.at(256) == convergence.Epochs(60, pytest.approx(60), pytest.approx(60), "own runs")
        between = curve.at(512)
        assert isinstance(between, convergence.Epochs)
        assert between.middle == pytest.approx(math.sqrt(60 * 70))
        assert between.by == "own runs, between batches 256 and 1024"

    def test_beyond_the_largest_batch_nothing_is_said_and_below_the_smallest_nothing_less(self) -> None:
        curve = self.curve({4: 60, 16: 70})
        assert curve.at(2048) == "batch 2048 is larger than the largest with known epochs, 1024 (own runs)"
        below = curve.at(128)
        assert isinstance(below, convergence.Epochs) and (below.middle, below.by) == (
            60,
            "own runs, those of batch 256",
        )

    def test_a_batch_that_missed_the_target_is_no_candidate_nor_its_neighbourhood(self) -> None:
        curve = self.curve({4: 60, 16: None})
        assert curve.at(1024) == "0 of 3 trainings at batch 1024 reached the target"
        assert str(curve.at(512)).startswith("0 of 3 trainings at batch 1024")

    def test_one_of_several_repeats_that_missed_it_counts(self) -> None:
        runs, epochs = study({4: 100.0}, {4: 60})
        epochs.loc[epochs["run"] == runs["run"].iloc[0], "top1"] = 0.5
        with pytest.raises(NoAnswerError, match="2 of 3 trainings reached"):
            convergence.curves(runs, epochs, 0.759, None)

    def test_short_runs_count_where_others_needed_no_more_epochs(self) -> None:
        """Of runs of 60 of 90 epochs two of three reach it: who counted those only would be too sure."""
        runs, _ = study({4: 100.0}, {}, epochs=60, of_epochs=90)
        epochs = pd.DataFrame(
            [{"run": r, "epoch": 60, "top1": 0.66 if n == 0 else 0.76} for n, r in enumerate(runs["run"])]
        )
        with pytest.raises(NoAnswerError, match="2 of 3 trainings reached"):
            convergence.curves(runs, epochs, 0.759, None)
        (curve,) = convergence.curves(runs[1:], epochs, 0.759, None)
        assert curve.points[256].runs == 2

    def test_the_reference_is_for_what_no_own_training_tells(self) -> None:
        reference = pd.read_csv(REFERENCE)
        (one,) = convergence.curves(*study(RATES, {}, **SPEED_ONLY), 0.759, reference)
        assert one.at(32768) == convergence.Epochs(56.0, None, None, "MLPerf's reference")
        between = one.at(16384)
        assert isinstance(between, convergence.Epochs) and 45.4 < between.middle < 56.0
        assert "larger than the largest" in str(one.at(131072))
        # Own full trainings stand against it.
        curves = convergence.curves(*study({4: 100.0, 8: 100.0}, {4: 60, 8: None}), 0.759, reference)
        assert [curve.source for curve in curves] == ["own runs"]


class TestCandidates:
    def test_numbers_of_what_was_measured(self) -> None:
        row = at(made(study(RATES, {4: 60, 8: 60, 16: 70})), 16)
        assert (row["speed_by"], row["epochs_by"], row["why_not"]) == ("measured", "own runs", None)
        assert row["hours"] == pytest.approx(70 * IMAGES / 9000 / 3600)
        assert row["worker_hours"] == pytest.approx(16 * row["hours"])
        assert (row["price"], row["currency"]) == (pytest.approx(2 * row["worker_hours"]), "EUR")
        assert row["energy_kwh"] == pytest.approx((16 * 400 + 4 * 1000) * row["hours"] / 1000 * 1.5)
        assert row["hours_low"] < row["hours"] < row["hours_high"]
        # All epochs alike: the interval is that of the rate.
        assert row["hours_high"] / row["hours"] == pytest.approx(row["images_per_s"] / row["images_per_s_low"])

    def test_both_intervals_add_up_as_squares(self) -> None:
        row = candidate(1.0, 1.0, (1.0, math.exp(-0.3), math.exp(0.6)), (1.0, math.exp(-0.8), math.exp(0.4)))
        assert candidates.half_widths(row) == (pytest.approx(1.0), pytest.approx(0.5))
        assert candidates.half_widths(row, epochs=False) == (pytest.approx(0.6), pytest.approx(0.3))
        assert candidates.half_widths({**row, "epochs_low": None}) is None

    def test_more_workers_are_predicted_as_far_as_epochs_and_the_machine_reach(self) -> None:
        some = made(study(RATES, {4: 60, 8: 60, 16: 70}))
        assert [row["workers"] for row in some if row["speed_by"] == "predicted"] == [32, 64, 128]
        assert all("larger than the largest" in row["why_not"] for row in some if row["speed_by"] == "predicted")
        small = replace(SOLD, nodes=8)
        reference = made(study(RATES, {}, **SPEED_ONLY), small)
        assert {row["workers"] for row in reference} == {4, 8, 16, 32}
        row = at(reference, 32)
        assert (row["speed_by"], row["interval_of"], row["why_not"]) == ("predicted", "rate", None)
        assert row["images_per_s_low"] < row["images_per_s"] < row["images_per_s_high"]

    def test_a_batch_that_stays_is_predicted_as_predict_does(self) -> None:
        runs, epochs = both(*(study({n: rate}, {n: 60}, global_batch=1024) for n, rate in RATES.items()))
        runs = runs.assign(scaling="strong", images_seen=1200, of_epochs=90, energy_j=None, train_s=1.0)
        row = at(made((runs, epochs)), 64)
        *_, same = predictions.rows(all_series(runs, 4), SOLD, workers=[64])
        assert (row["speed_by"], row["global_batch"], row["epochs_to_target"]) == ("predicted", 1024, 60)
        assert row["images_per_s"] == same["images_per_s"] < 4 * 9000

    def test_from_one_node_nothing_beyond_it(self) -> None:
        some = made(study({1: 620.0, 4: 2400.0}, {1: 60, 4: 60}))
        assert {row["workers"] for row in some} == {1, 2, 4}
        assert at(some, 1)["worker_hours"] == pytest.approx(4 * at(some, 1)["hours"])  # it has its node to itself
        assert "measure 8 workers" in "\n".join(text(some, 0.759, SOLD))

    def test_speed_depends_neither_on_schedule_nor_on_length(self) -> None:
        """Runs of both schedules, and short ones, are repeats of one speed, which serves each schedule."""
        parts = both(
            study({4: 2400.0}, {4: 70}),
            study({4: 2500.0}, {4: 60}, schedule="cosine"),
            study({4: 2600.0}, {}, framework="horovod", **SPEED_ONLY),
            study({4: 2600.0}, {}, framework="horovod", epochs=3),
        )
        some = [row for row in made(parts) if row["speed_by"] == "measured" and row["of_epochs"] == 90]
        assert sorted((row["framework"], row["schedule"], row["repeats"]) for row in some) == [
            ("ddp", "cosine", 6),
            ("ddp", "step", 6),
            ("horovod", "cosine", 6),
            ("horovod", "step", 6),
        ]
        row = at(some, 4, framework="horovod", schedule="cosine")
        assert (row["epochs_to_target"], row["images_per_s"]) == (60, pytest.approx(2600))

    def test_loaders_of_random_pictures_are_no_candidates(self) -> None:
        parts = both(study({4: 2400.0}, {4: 70}), study({4: 9000.0}, {}, loader="synthetic", **SPEED_ONLY))
        assert {row["loader"] for row in made(parts)} == {"dali-cpu"}


def candidate(
    hours: float,
    worker_hours: float,
    rate: tuple[float, float | None, float | None],
    epochs: tuple[float, float | None, float | None] = (60.0, 30.0, 120.0),
    batch: int = 256,
) -> dict:
    """Rate and epochs to the target with their intervals."""
    row = {"hours": hours, "worker_hours": worker_hours, "speed_by": "measured", "repeats": 3, "epochs_by": "own runs"}
    row |= dict(zip(("images_per_s", "images_per_s_low", "images_per_s_high"), rate, strict=True))
    row |= dict(zip(("epochs_to_target", "epochs_low", "epochs_high"), epochs, strict=True))
    subject = {"dataset": "imagenet", "model": "resnet50", "accelerator": None, "global_batch": batch}
    return row | dict.fromkeys(convergence.CURVE, "same") | subject


class TestChoice:
    def row(self, hours: float, worker_hours: float, width: float | None = 0.01, batch: int = 256) -> dict:
        ends = (None, None) if width is None else (math.exp(-width), math.exp(width))
        return candidate(hours, worker_hours, (1.0, *ends), batch=batch)

    def test_workers_are_taken_as_long_as_they_bring_more_than_they_cost(self) -> None:
        # Half the time for a third more hours is worth it; a tenth less time for as much more is not.
        one, two, three = self.row(10, 40), self.row(5, 53), self.row(4.5, 70)
        assert choice.choose([one, two, three]).ordered == (two, three, one)

    def test_the_front(self) -> None:
        some = [self.row(10, 40), self.row(5, 53), self.row(6, 60), self.row(5, 60)]
        choice.mark_front(some)
        assert [row["front"] for row in some] == [True, True, False, False]

    def test_wide_intervals_cannot_tell_and_none_never(self) -> None:
        near = self.row(10.3, 41.2)
        assert choice.choose([self.row(10, 40), near]).alike == ()
        assert choice.choose([self.row(10, 40, 0.04), near]).alike == (near,)
        assert choice.choose([self.row(10, 40, None), near]).alike == (near,)

    def test_epochs_count_where_they_are_not_the_same(self) -> None:
        other = self.row(10.3, 41.2, batch=512)
        assert choice.choose([self.row(10, 40), other]).alike == (other,)

    def test_from_which_change_on_the_second_is_first(self) -> None:
        first, second = self.row(10, 40), self.row(10.5, 44)
        share = choice.faster_by(first, second)
        less = {**second, "hours": 10.5 * (1 - share), "worker_hours": 44 * (1 - share)}
        assert choice.score(less) == pytest.approx(choice.score(first))


def test_intervals_hold_and_equal_candidates_are_seldom_told_apart() -> None:
    """600 pairs of candidates that are equal in truth, of three repeats; rates vary by 3 %, epochs by 2 %."""
    random = np.random.default_rng(1)

    def row(batch: int) -> dict:
        rate = over_repeats(np.exp(random.normal(0, 0.03, 3)).tolist())
        epochs = over_repeats(np.exp(random.normal(0, 0.02, 3)).tolist())
        hours = epochs.middle / rate.middle
        ends = ((of.middle, of.low, of.high) for of in (rate, epochs))
        return candidate(hours, hours, *ends, batch)

    held = told = 0
    for _ in range(600):
        pair = sorted((row(256), row(512)), key=choice.score)
        told += choice.apart(pair[0], pair[1])
        widths = candidates.half_widths(pair[0])
        assert widths
        held += -widths[0] <= -math.log(pair[0]["hours"]) <= widths[1]
    assert held / 600 >= 0.95 and told / 600 <= 0.05


class TestWords:
    def said(self, parts: tuple[pd.DataFrame, pd.DataFrame], machine: Machine = SOLD) -> str:
        return "\n".join(text(made(parts, machine), 0.759, machine))

    def test_all_of_it(self) -> None:
        said = self.said(study(RATES, {4: 60, 8: 60, 16: 70}))
        assert "take ddp, dali-cpu, 16 workers, batch 1024, schedule step over 90 epochs, recipe aach2023\n" in said
        assert "9,000 images/s, measured (n = 3); epochs: 70 in all runs, by own runs" in said
        assert "second: ddp, dali-cpu, 8 workers" in said and "% less time" in said
        assert "shrink the interval of the first most: more repeats with 16 workers, because" in said
        assert "reason: the smallest product of time and worker hours; no candidate has more workers" in said
        assert "[predicted]" not in said and "left out of resnet50, 1 candidate: batch 2048 is larger" in said

    def test_what_is_predicted_is_marked(self) -> None:
        said = self.said(study(RATES, {}, **SPEED_ONLY))
        (line,) = [line for line in said.splitlines() if line.startswith("  take")]
        assert "128 workers, batch 8192, schedule polynomial, " in line
        assert line.split(" (one of")[0].endswith("recipe aach2023 (speed), MLPerf's (LARS) (epochs) [predicted]")
        assert "of the throughput only" in said and "predicted from 4 8 16 workers" in said
        assert "the best with measured throughput: ddp, dali-cpu, 16 workers" in said
        assert "most: runs with 128 workers; beside it full trainings at batch 8192" in said

    def test_what_runs_cannot_tell_apart_is_all_given(self) -> None:
        parts = both(study({16: 9000.0}, {16: 70}), study({16: 9010.0}, {16: 70}, framework="horovod"))
        said = self.said(parts, replace(SOLD, nodes=4))
        assert "take horovod" in said and "one of several that the data cannot separate" in said
        assert "cannot separate it from 1 other:\n    ddp, dali-cpu, 16 workers" in said

    def test_single_runs_tell_nothing_apart(self) -> None:
        said = self.said(study(RATES, {4: 60, 8: 60, 16: 70}, repeats=1))
        assert "no interval" in said and "cannot separate it from 2 others" in said
        assert "more repeats with 16 workers: one run has no interval" in said


def test_the_figure_marks_what_is_predicted_and_names_worker_counts() -> None:
    some = made(study(RATES, {}, **SPEED_ONLY), replace(SOLD, nodes=8))
    figure = front.draw(some, Options("Which", "cuda", "A100", ("ddp",), target=0.759))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_ylabel() == "price [EUR]" and axes.get_xlabel() == "time to top-1 0.759 [min]"
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    hollow, filled = (drawn[f"_ddp, dali-cpu, {by}"] for by in ("predicted", "measured"))
    assert hollow.get_markerfacecolor() == "white" and len(hollow.get_xdata()) == 1
    assert filled.get_markerfacecolor() != "white" and len(filled.get_xdata()) == 3
    assert {text.get_text() for text in axes.texts} == {"4", "8", "16", "32"}
    assert list(drawn["recommended"].get_xdata()) == [at(some, 32)["hours"] * 60]


@pytest.mark.parametrize(
    ("reached", "status", "target", "said"),
    [
        ({4: 60}, "failed", 0.759, "no finished timed run"),
        ({4: 60}, "success", 0.9, "no run reached top-1 0.9; the best had 0.76 ("),
        (None, "success", 0.7, "nobody knows the epochs to top-1 0.7"),
    ],
)
def test_what_it_refuses(reached: dict | None, status: str, target: float, said: str) -> None:
    runs, epochs = study(RATES, reached) if reached else study(RATES, {}, **SPEED_ONLY)
    with pytest.raises(NoAnswerError) as error:
        made((runs.assign(status=status), epochs), target=target)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_where_nobody_timed_what_reached_the_target_it_says_so_and_what_to_do() -> None:
    runs, epochs = both(study({4: 100.0}, {4: 60}, model="resnet101"), study(RATES, {}, **SPEED_ONLY))
    with pytest.raises(NoAnswerError) as error:
        rate = runs["throughput_images_per_s"].where(runs["model"] == "resnet50")
        made((runs.assign(throughput_images_per_s=rate), epochs), target=0.7)
    said = str(error.value).split("\n  ")
    assert said[0] == "no candidate: no full training of resnet50 with recipe aach2023 says how long it takes"
    assert said[1].endswith("resnet101, aach2023, step, whose speed was not measured: 60 at batch 256")
    assert said[2].startswith("what to do: give the study a block that trains ")


def test_a_target_has_to_be_given() -> None:
    with pytest.raises(ConfigError, match=r"target: is missing.*0\.\.1"):
        make({"study": "demo", "machine": "local", "target": None}, [])


def test_what_the_audit_found_is_said(tmp_path: Path) -> None:
    table = tmp_path / "audit.csv"
    assert "the audit has not looked" in fairness(table)
    table.write_text("rule,severity,runs\nsame-batch,warning,\n")
    assert "no errors" in fairness(table)
    table.write_text("rule,severity,runs\nsame-batch,error,\n")
    assert "errors (same-batch): candidates may not be comparable" in fairness(table)


def test_records_become_a_recommendation(tmp_path: Path) -> None:
    """Made-up records have top-1 0.5 after the first epoch."""
    folders = [
        write_record(tmp_path / "runs", run_spec(workers=n, global_batch=4 * n, repeat=r))
        for n in (1, 2)
        for r in (1, 2)
    ]
    some = rows(*tables(tmp_path / "tables", *folders), 0.5, replace(JUWELS, nodes=1, workers_per_node=2))
    assert {(row["workers"], row["epochs_to_target"]) for row in some} == {(1, 1), (2, 1)}
    assert sorted(row["place"] for row in some) == [1, 2]


def test_submitters_are_recommended_by_their_own_records(tmp_path: Path) -> None:
    """Of made-up logs (top-1 0.57 and 0.76 after epochs 3 and 4 of 10 s); the second system's epochs take as long."""
    place(tmp_path / "all", log())
    place(tmp_path / "all", log(), nodes=2)
    place(tmp_path / "all", log(), org="Else", name="other_n1")
    collect(mlperf.find(tmp_path / "all"), tmp_path / "tables", read=mlperf.read)
    runs, epochs = (pd.read_parquet(tmp_path / "tables" / f"{name}.parquet") for name in ("runs", "epochs"))
    runs.loc[runs["machine"] == "Else other", "gpu"] = "B2"
    some = rows(runs, epochs, 0.759, None)
    assert {(row["system"], row["workers"], row["global_batch"], row["place"]) for row in some} == {
        ("Org box_fw", 8, 4096, 1),
        ("Org box_fw", 16, 4096, 2),
        ("Else other", 8, 4096, 1),  # another accelerator, whose price nobody knows
    }
    assert at(some, 16)["hours"] == pytest.approx(49 / 3600, rel=1e-3)  # as logged, with evaluations and all
    assert {row["epochs_by"] for row in some} == {"the submitter's runs"}
    said = "\n".join(text(some, 0.759, None))
    assert "resnet on resnet, A1, to top-1 0.759, 2 candidates:\n  take Org box_fw (F), 8 workers, batch 4096" in said
    assert "None" not in said and "predicted" not in said
    front.draw(some, Options("t", "accelerator", "A", (), target=0.759))
    unnamed = rows(runs.assign(gpu=np.nan), epochs, 0.759, None)
    assert sorted(row["place"] for row in unnamed) == [1, 2, 3]  # nothing tells their accelerators apart
    assert "nan" not in "\n".join(text(unnamed, 0.759, None)).lower().split()
    with pytest.raises(NoAnswerError, match=r"no run reached top-1 0.8; the best had 0.76"):
        rows(runs, epochs, 0.8, None)
    (last,) = runs.loc[runs["workers"] == 16, "run"]
    stopped = rows(runs, epochs[(epochs["run"] != last) | (epochs["epoch"] < 4)], 0.759, None)
    assert "1 of 2 trainings at batch 4096 reached the target" in {row["why_not"] for row in stopped}
