"""How long runs take: guessed from what was published, then from records; and what follows from it
(`bill.py`).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.analysis import prediction_priors
from ddlbench.analysis.prediction import Measured as Series
from ddlbench.analysis.prediction import last_rate
from ddlbench.analysis.price import Draw
from ddlbench.core.files import read_csv
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.seal import seal
from ddlbench.core.spec import RunSpec
from ddlbench.plan import bill, first_guess, printed, reads
from ddlbench.plan.estimate import (
    ANOTHER,
    ONE_RUN,
    Estimator,
    RecordedTime,
    read_measured,
    read_published,
    spread,
)
from ddlbench.plan.kinds.training import guess_minutes
from ddlbench.plan.runs import make_plan
from ddlbench.plan.stale import DONE, FAILED, MISSING, STALE, STOPPED, JobMetadata, state
from ddlbench.plan.values import Plan, Row
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import load_study
from ddlbench.settings.study_keys import MeasureKeys

from tests.builders.machines import JUWELS
from tests.builders.plans import pick
from tests.facts import missing, refuses

LAPTOP = replace(load_machine("local"), workers_per_node=8)
IMAGES = 4000


@pytest.fixture(scope="module")
def demo() -> Plan:
    """Study demo on eight cores."""
    return make_plan(load_study("demo"), LAPTOP)


def measured(spec: RunSpec, rate: float, **changed: object) -> RecordedTime:
    """A record of a run with so many images/s a worker."""
    fields: dict[str, object] = {
        "took_s": 100.0,
        "begin_and_end_s": 0.0,
        "energy_j": None,
        "draw": None,
    } | changed
    epoch_s = IMAGES / rate / spec.workers
    return RecordedTime(json.loads(spec.to_json()), IMAGES, epoch_s=epoch_s, **fields)  # type: ignore[arg-type]


def rates(
    spec: RunSpec, records: Sequence[RecordedTime], machine: Machine = LAPTOP
) -> tuple[float, float, float]:
    """(lowest, likely, highest) rate of a worker that an estimate means."""
    found = Estimator(machine, records, read_published()).estimate(spec, IMAGES)
    assert found.low_s and found.s and found.high_s
    work = spec.epochs * IMAGES / spec.workers
    return work / found.high_s, work / found.s, work / found.low_s


def test_repeats_say_how_much_runs_vary(demo: Plan) -> None:
    spec = pick(demo, timed=True)
    again, other = replace(spec, repeat=2), replace(spec, workers=spec.workers + 1)
    apart = [measured(spec, 100.0), measured(again, 110.0), measured(other, 300.0)]
    assert spread(apart, "local") == (pytest.approx(math.log(1.1) / math.sqrt(2)), 1)
    assert spread(apart[1:], "local") is None and spread(apart, "elsewhere") is None


# Without a record


def test_published_runtimes_are_within_the_first_guess(paper: Plan) -> None:
    estimator = Estimator(JUWELS, [], read_published())
    rows = [
        row for row in read_csv(CONFIG / "references/aach2023.csv") if row["quantity"] == "runtime"
    ]
    assert len(rows) == 4
    for row in rows:
        published_s = float(row["value"]) * {"h": 3600, "s": 1}[row["unit"]]
        spec = pick(
            paper,
            model=row["model"],
            loader="dali-cpu-only",
            workers=int(row["workers"]),
            profiled=False,
        )
        found = estimator.estimate(spec, 1281167)
        assert found.low_s and found.s and found.high_s
        assert found.low_s < published_s < found.high_s
        # A run is given a minute to begin and end. The paper's runtimes and efficiencies differ by
        # a fifth.
        assert found.s - 60 == pytest.approx(published_s, rel=0.25), row


def test_published_efficiencies_decide_between_loaders(paper: Plan) -> None:
    estimator = Estimator(JUWELS, [], read_published())
    same = {"model": "resnet50", "workers": 512, "schedule": "step", "profiled": False}
    hours = {
        (loader, framework): estimator.estimate(
            pick(paper, loader=loader, framework=framework, **same), 1281167
        ).s
        for loader, framework in [
            ("dali-cpu-only", "ddp"),
            ("torchvision", "ddp"),
            ("torchvision", "deepspeed"),
        ]
    }
    fastest, native, slowest = hours.values()
    assert fastest and native and slowest
    # The paper's efficiencies: ddp with the native loader below 0.44 on 256, deepspeed 0.33 on 128.
    assert native > 1.5 * fastest
    assert slowest > native
    assert estimator.worst == pytest.approx(0.33 ** (1 / math.log2(128 / 4)))


def test_a_rate_is_of_one_size_of_pictures(paper: Plan) -> None:
    """liang2023 trains ResNet-50 on pictures of 32 pixels: its rate on ImageNet says nothing of
    that.
    """
    spec = pick(paper, model="resnet50", workers=4, profiled=False)
    small = replace(spec, dataset="cifar10", recipe=replace(spec.recipe, image_size=32))
    found = Estimator(JUWELS, [], []).estimate(small, 50000)
    assert missing(found.basis, "operations", "images_per_s", "published") == []
    assert (
        found.low_s
        and found.high_s
        and found.low_s < 90 * 50000 / (4 * 10_000) < found.high_s / 5.8
    )
    told = replace(
        JUWELS, images_per_s=(*JUWELS.images_per_s, ("resnet50@32", 10_000.0), ("lenet", 7.0))
    )
    estimated = Estimator(told, [], []).estimate(small, 50000)
    assert estimated.s == pytest.approx(60 + 90 * 50000 / (4 * 10_000))
    assert guess_minutes(small, told) == round(30 + 1.5 * 90 * 50000 / (4 * 10_000) / 60)
    assert guess_minutes(small, JUWELS) == pytest.approx(30 + (found.high_s - 300) / 60, abs=1)
    assert [told.rate("resnet50", 224), told.rate("lenet", 32), told.rate("lenet", 28)] == [
        616,
        7,
        7,
    ]


# Images per second in training and 10^9 multiply-adds of models on one RTX 3090: timm's benchmark,
# which `first_guess.py` names.
TIMM = {
    "resnet18": 3481.78,
    "resnet34": 2036.51,
    "efficientnet_b0": 1751.72,
    "vit_small_patch16_224": 1057.92,
    "densenet121": 913.65,
    "resnet101": 747.89,
    "swin_tiny_patch4_window7_224": 648.69,
    "vgg16": 546.06,
    "resnet152": 501.44,
    "coat_lite_small": 461.36,
    "vit_base_patch16_224": 392.99,
}


@pytest.mark.parametrize(("model", "published"), TIMM.items())
def test_a_first_guess_is_as_wide_as_models_differ(model: str, published: float) -> None:
    machine = replace(JUWELS, images_per_s=(("resnet50", 1218.01),))
    guess = first_guess.rate((model, 224), machine, {})
    assert guess is not None
    low, likely, high, basis = guess
    assert low < published < high
    assert likely / low == pytest.approx(first_guess.SPREAD) == pytest.approx(high / likely)
    assert missing(basis, "operations", "images_per_s") == [] and "published" not in basis
    # Nothing is said of this machine: wider. A record of it says more than its file.
    bare = first_guess.rate((model, 224), replace(JUWELS, images_per_s=()), {})
    assert bare is not None
    assert bare[2] / bare[0] == pytest.approx(high / low * first_guess.OTHER_DEVICE**2)
    measured = first_guess.rate((model, 224), machine, {("resnet50", 224): 2436.02})
    assert measured is not None
    assert measured[1] == pytest.approx(2 * likely)
    assert missing(measured[3], "operations", "records") == [] and "images_per_s" not in measured[3]


def test_smaller_pictures_save_at_best_their_share_of_the_operations() -> None:
    machine = replace(JUWELS, images_per_s=(("resnet50", 600.0),))
    small, usual = (
        first_guess.rate(("resnet50", 112), machine, {}),
        first_guess.rate(("resnet50", 224), machine, {}),
    )
    assert small and usual
    assert small[0] == pytest.approx(usual[0])
    assert (
        small[1] / usual[1]
        == pytest.approx(4**first_guess.SLOPE)
        == pytest.approx(small[2] / usual[2])
    )


def test_nothing_known_is_at_most_the_queues_limit_and_likely_nothing(paper: Plan) -> None:
    nobody_counted = replace(pick(paper), model="tinynet_a")
    found = Estimator(JUWELS, [], []).estimate(nobody_counted, 1281167, limit_minutes=90)
    assert (found.low_s, found.s, found.high_s) == (0, None, 90 * 60)
    assert missing(found.basis, "unknown", "images_per_s", "tinynet_a", 224) == []
    found = Estimator(JUWELS, [], []).estimate(nobody_counted, 1281167)
    assert (found.low_s, found.s, found.high_s) == (None, None, None)


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has counted the operations of any model."""
    monkeypatch.setattr(first_guess, "operations", lambda model: None)


# From records


def test_repeats_are_the_interval(demo: Plan) -> None:
    spec = pick(demo, workers=2)
    low, likely, high = rates(
        spec, [measured(replace(spec, repeat=r), rate) for r, rate in ((2, 90), (3, 110))]
    )
    assert (low, likely, high) == pytest.approx((90, 100, 110))


def test_one_run_is_a_tenth_either_side(demo: Plan) -> None:
    spec = pick(demo, workers=2)
    assert rates(spec, [measured(spec, 100)]) == pytest.approx((100 / ONE_RUN, 100, 100 * ONE_RUN))


def grown(spec: RunSpec, workers: int) -> RunSpec:
    return replace(spec, workers=workers, global_batch=64 * workers)


def test_other_counts_are_predicted_as_snakemake_predict_does(demo: Plan) -> None:
    base = pick(demo, workers=1, timed=True, loader="native")
    records = [
        measured(replace(grown(base, w), repeat=r), rate)
        for w, rate in ((1, 100), (4, 90))
        for r in (1, 2)
    ]
    for workers in (2, 8):
        spec = grown(base, workers)
        made = last_rate.predict(
            Series((1, 4), (100.0, 360.0), (64.0, 64.0), 8),
            [workers],
            [64.0],
            prediction_priors.read(),
        )
        assert made.low is not None and made.high is not None
        expected = [float(value[0]) / workers for value in (made.low, made.images_per_s, made.high)]
        assert rates(spec, records) == pytest.approx(expected)
        found = Estimator(LAPTOP, records, read_published()).estimate(spec, IMAGES)
        assert found.by == "predicted" and missing(found.basis, "4 measured", "1 4 workers") == []
    assert Estimator(LAPTOP, records, []).estimate(grown(base, 4), IMAGES).by == "measured"


def test_of_other_loaders_rates_between_two_counts_fall_with_the_logarithm(demo: Plan) -> None:
    base = pick(demo, workers=1, timed=True, loader="native")
    other = replace(base, loader="synthetic")
    records = [
        measured(replace(grown(other, w), repeat=r), rate)
        for w, rate in ((1, 100), (8, 70))
        for r in (1, 2)
    ]
    assert rates(grown(base, 2), records) == pytest.approx((70 / ANOTHER, 90, 100 * ANOTHER))
    assert rates(grown(base, 4), records) == pytest.approx((70 / ANOTHER, 80, 100 * ANOTHER))


def test_beyond_a_node_a_doubling_may_cost_nothing_or_the_worst_published(demo: Plan) -> None:
    """From points within a node, where the prediction refuses."""
    base = pick(demo, workers=1, timed=True, loader="native")
    records = [measured(replace(base, repeat=r), 100) for r in (1, 2)]
    small = replace(LAPTOP, workers_per_node=2)
    low, likely, high = rates(grown(base, 4), records, small)
    worst = min(p.share for p in read_published())
    assert (low, high) == pytest.approx((100 * worst**2, 100))
    assert low < likely < high
    found = Estimator(small, records, read_published()).estimate(grown(base, 4), IMAGES)
    assert found.by == "guessed" and missing(found.basis, "2 measured", "1 workers") == []


def test_another_framework_says_less_and_another_machine_or_model_hardly_anything(
    demo: Plan,
) -> None:
    spec = pick(demo, framework="ddp", loader="native", workers=1, timed=True)
    other = replace(spec, framework="horovod")
    records = [measured(replace(other, repeat=r), 100) for r in (1, 2)]
    assert rates(spec, records) == pytest.approx((100 / ANOTHER, 100, 100 * ANOTHER))
    for changed in ({"machine": "other"}, {"model": "resnet50"}, {"dataset": "mnist"}):
        low, _, high = rates(spec, [measured(replace(spec, **changed), 100)])
        assert high / low > 0.99 * first_guess.SPREAD**2, changed


def test_a_run_over_another_bandwidth_is_no_measurement_of_this_one(demo: Plan) -> None:
    spec = replace(pick(demo, framework="ddp", loader="native", workers=2), bandwidth_mbit=10)
    fast = [measured(replace(spec, bandwidth_mbit=1000, repeat=r), 100) for r in (1, 2)]
    assert Estimator(LAPTOP, fast, read_published()).estimate(spec, IMAGES).by == "guessed"
    same = [*fast, measured(spec, 5)]
    found = Estimator(LAPTOP, same, read_published()).estimate(replace(spec, repeat=2), IMAGES)
    assert found.by == "measured"
    assert rates(spec, same) == pytest.approx((5 / ONE_RUN, 5, 5 * ONE_RUN))


def log(
    folder: Path, spec: RunSpec, epochs: Sequence[tuple[float, float]], elapsed: float, status: str
) -> Path:
    """A record's log: epochs as (start, stop) in seconds; the run begins at 0, its processes 10 s
    before.
    """

    def line(key: str, time_s: float, value: object = None, **metadata: object) -> str:
        body = {
            "namespace": "",
            "time_ms": 1_000_000 + int(1e3 * time_s),
            "event_type": "POINT_IN_TIME",
        }
        return f":::MLLOG {json.dumps(body | {'key': key, 'value': value, 'metadata': metadata})}\n"

    ranks = [
        {"host": "vm", "started": 1000 - 10, "local_rank": rank} for rank in range(spec.workers)
    ]
    for rank in ranks:
        rank |= {"host_energy_j": 500.0}
    text = line("init_start", -5) + line("ddlbench_spec", -5, json.loads(spec.to_json()))
    text += (
        line("train_samples", -5, IMAGES)
        + "NCCL INFO something of another program\n"
        + line("run_start", 0)
    )
    for number, (start, stop) in enumerate(epochs, 1):
        text += line("epoch_start", start, epoch_num=number) + line(
            "eval_stop", stop, epoch_num=number
        )
    end = epochs[-1][1]
    text += line("ddlbench_elapsed_s", end, elapsed) + line("run_stop", end, status=status)
    text += line("ddlbench_ranks", end + 2, ranks)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MLLOG).write_text(text)
    (folder / STEPS).write_bytes(b"")
    seal(folder)
    return folder


def test_a_log_says_how_long_an_epoch_takes_and_what_is_beside(tmp_path: Path, demo: Plan) -> None:
    spec = pick(demo, workers=2)
    found = read_measured(log(tmp_path, spec, [(0, 30), (30, 50), (50, 70)], 70, "success"))
    assert found
    assert found.epoch_s == pytest.approx(20)  # not the first, which is warm-up
    assert found.begin_and_end_s == pytest.approx(12)
    assert found.took_s == pytest.approx(82)
    assert found.rate == pytest.approx(IMAGES / 20 / 2)
    assert found.energy_j == 500  # of the one node
    assert found.draw == Draw(2, 1, pytest.approx(500 / 70))
    assert found.spec == json.loads(spec.to_json())


def test_an_interruption_does_not_make_epochs_longer(tmp_path: Path, demo: Plan) -> None:
    epochs = [(0, 30), (30, 50), (50, 4070), (4070, 4090), (4090, 4110)]
    found = read_measured(log(tmp_path, pick(demo), epochs, 110, "success"))
    assert found
    assert found.epoch_s == pytest.approx(20)
    assert found.took_s == pytest.approx(122)


def test_what_is_no_whole_run_is_no_measurement(tmp_path: Path, demo: Plan) -> None:
    assert read_measured(tmp_path / "absent") is None
    assert read_measured(log(tmp_path / "aborted", pick(demo), [(0, 30)], 30, "aborted")) is None
    folder = log(tmp_path / "cut", pick(demo), [(0, 30)], 30, "success")
    text = (folder / MLLOG).read_text()
    (folder / MLLOG).write_text(text[: text.index("run_stop") - 100])
    assert read_measured(folder) is None


# What is done, what is stale


def test_states_and_their_reasons(tmp_path: Path, demo: Plan) -> None:
    spec = pick(demo)
    folder, manifest = tmp_path / "run", tmp_path / "manifest.json"
    manifest.write_text("{}")
    recorded = json.loads(spec.to_json())
    assert state(folder, spec, None, str(manifest))[0] == MISSING
    (folder / ".partial").mkdir(parents=True)
    assert state(folder, spec, None, str(manifest))[0] == STOPPED
    (folder / ".partial").rename(folder / "failed")
    assert state(folder, spec, None, str(manifest))[0] == FAILED
    log(folder, spec, [(0, 30)], 30, "success")
    assert state(folder, spec, recorded, str(manifest)) == (DONE, "")
    other = recorded | {"recipe": recorded["recipe"] | {"base_lr": 9}, "timed": False}
    now, why = state(folder, spec, other, str(manifest))
    assert now == STALE
    assert missing(why, "recipe.base_lr", 9, spec.recipe.base_lr, "timed", "false", "true") == []
    memory = JobMetadata((str(manifest),), {}, "old")
    assert state(folder, spec, recorded, str(manifest), memory, "old") == (DONE, "")
    now, why = state(folder, spec, recorded, str(manifest), memory, "new")
    assert now == STALE and missing(why, "command") == []
    assert state(folder, spec, recorded, "elsewhere", memory)[1].startswith(
        "reads elsewhere, read "
    )
    manifest.unlink()
    assert state(folder, spec, recorded, str(manifest)) == (
        DONE,
        "",
    )  # data that are gone say nothing against it
    with (folder / MLLOG).open("a") as cut:
        cut.write("# a line behind the seal\n")
    done, why = state(folder, spec, recorded, str(manifest))
    assert (
        done == DONE and "refused" in why and f"move {folder} away" in why
    )  # not made again without being asked
    (folder / STEPS).unlink()
    (folder / "failed").rmdir()
    assert state(folder, spec, recorded, str(manifest)) == (MISSING, f"its {STEPS} is missing")


# What it costs


def bill_of(plan: Plan, results: Path) -> list[Row]:
    return bill.rows(
        plan, {"imagenet": 1281167, "mnist5k": IMAGES, "synthetic-imagenet": IMAGES}, results
    )


def test_a_row_a_run_in_the_machines_units(paper: Plan, tmp_path: Path) -> None:
    machine = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR", pue=1.1)
    table = bill_of(make_plan(paper.study, machine), tmp_path)
    assert [row.run for row in table] == list(paper.runs)
    row = next(row for row in table if row.workers == 1024)
    assert row.wall_s and row.gpu_hours and row.core_hours and row.energy_kwh and row.price
    hours = row.wall_s / 3600
    assert row.gpu_hours == pytest.approx(1024 * hours)
    assert row.core_hours == pytest.approx(256 * 48 * hours)
    assert row.price == pytest.approx(2 * 1024 * hours)
    assert row.energy_kwh == pytest.approx(1.1 * hours * (1024 * 400 + 256 * 285) / 1000)
    assert row.energy_measured is False


@pytest.mark.usefixtures("uncounted")
def test_unknown_is_null_never_zero(demo: Plan, tmp_path: Path) -> None:
    for row in bill_of(demo, tmp_path):
        unknown = (row.wall_s, row.gpu_hours, row.core_hours, row.energy_kwh, row.price)
        assert unknown == (None, None, None, None, None)
    bill.write(bill_of(demo, tmp_path), "text\n", tmp_path)
    rows = read_csv(tmp_path / "plan.csv")
    assert len(rows) == len(demo.runs)
    assert {row["gpu_hours"] for row in rows} == {""}


@pytest.mark.usefixtures("uncounted")
def test_a_record_is_what_it_took_and_lets_others_be_estimated(demo: Plan, tmp_path: Path) -> None:
    spec = pick(demo, framework="ddp", loader="torchvision", workers=1)
    log(tmp_path / "runs" / spec.id, spec, [(0, 30), (30, 50), (50, 70)], 70, "success")
    table = {row.run: row for row in bill_of(demo, tmp_path)}
    done = table.pop(spec.id)
    assert done.state == DONE
    assert done.wall_s == done.wall_s_low == done.wall_s_high == pytest.approx(82)
    assert done.energy_kwh == pytest.approx(500 / 3.6e6)
    more = replace(demo, machine=replace(demo.machine, pue=1.4))
    assert {row.run: row.energy_kwh for row in bill_of(more, tmp_path)}[spec.id] == pytest.approx(
        700 / 3.6e6
    )
    assert {row.wall_s for row in table.values() if row.model != spec.model} == {
        None
    }  # nothing is known of LeNet
    for row in (row for row in table.values() if row.model == spec.model):
        assert row.state == MISSING
        assert row.wall_s
        assert "1 measured run" in row.estimate
        assert row.energy_measured  # by the power that was measured
    twin = table[replace(spec, loader="native").id]
    assert twin.wall_s == pytest.approx(12 + spec.epochs * 20)


def test_a_measured_study_pays_for_the_epochs_that_it_trains(paper: Plan, tmp_path: Path) -> None:
    blocks = tuple(
        replace(block, measure=MeasureKeys(epochs=3, of=90)) for block in paper.study.blocks[:1]
    )
    short = bill_of(make_plan(replace(paper.study, blocks=blocks, figures=()), JUWELS), tmp_path)
    full = {
        (r.model, r.framework, r.loader, r.workers): r
        for r in bill_of(paper, tmp_path)
        if r.epochs == 90
    }
    for row in short:
        assert (row.epochs, row.of_epochs) == (3, 90)
        whole = full[row.model, row.framework, row.loader, row.workers]
        assert row.wall_s and whole.wall_s
        assert row.wall_s - 60 == pytest.approx((whole.wall_s - 60) / 30)


def test_what_is_printed_fits_a_screen(paper: Plan, demo: Plan, tmp_path: Path) -> None:
    for plan in (paper, demo):
        table = bill_of(plan, tmp_path)
        text = printed.lines(plan, table, reads.forms(plan, {}))
        assert len(text) <= 40
        assert max(map(len, text)) <= 140
        total = next(line for line in text if line.startswith("total"))
        assert str(len(plan.runs)) in total.split()


@pytest.mark.usefixtures("uncounted")
def test_a_limit_is_kept_or_refused(paper: Plan, demo: Plan, tmp_path: Path) -> None:
    table = bill_of(paper, tmp_path)
    hours, unknown = bill.gpu_hours(table)
    assert unknown == 0
    bill.check_limit(table, hours + 1)
    bill.check_limit([], 0.1)
    with refuses(ConfigError, "config/config.yaml", "max_gpu_hours", 540):
        bill.check_limit(table, hours - 1)
    with refuses(ConfigError, "max_gpu_hours", 27):
        bill.check_limit(bill_of(demo, tmp_path), 100)
