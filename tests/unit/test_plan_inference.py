"""Jobs of inference in the plan's bill, its limit and `status`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.commands import status
from ddlbench.commands.job_rule import JobRule
from ddlbench.commands.start import Start
from ddlbench.plan import bill, printed
from ddlbench.plan.estimate import Estimator, RecordedTime
from ddlbench.plan.kinds.inference import FORWARD, InferenceEstimator, guess_minutes, work_s
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan, Row
from ddlbench.settings.config import ConfigError
from ddlbench.settings.study import load_study
from ddlbench.train.inference import AT_LEAST, InferSpec

from tests.builders.machines import JUWELS, LAPTOP
from tests.builders.plans import infer_spec, run_spec
from tests.facts import missing, refuses

IMAGES = {"mnist5k": 4000}
RATED = replace(
    LAPTOP,
    images_per_s=(("lenet", 1000.0), ("resnet8_half", 500.0)),
    price_per_gpu_hour=3,
    currency="EUR",
)


@pytest.fixture
def plan() -> Plan:
    return make_plan(load_study("inference-small"), RATED)


def rows(plan: Plan, results: Path) -> Mapping[str, Row]:
    return {row.run: row for row in bill.rows(plan, IMAGES, results)}


def write(results: Path, spec: InferSpec, **record: object) -> Path:
    """A record of this job, with what the bill reads of it."""
    folder = results / "inference" / spec.id
    folder.mkdir(parents=True)
    (folder / "inference.json").write_text(
        json.dumps({"spec": json.loads(spec.to_json()), **record})
    )
    return folder


def one(plan: Plan, member: str, model: str = "lenet") -> InferSpec:
    (spec,) = [
        j.spec
        for j in plan.non_training.values()
        if (j.spec.member, j.spec.run.model) == (member, model)
    ]
    return spec


def test_every_job_has_a_row_after_the_runs(plan: Plan, tmp_path: Path) -> None:
    found = rows(plan, tmp_path)
    assert list(found) == [*plan.runs, *plan.non_training]
    assert [row.place for row in found.values()] == [*range(1, 13)]
    sliced = found[one(plan, "tensor-slicing").id]
    assert (sliced.rule, sliced.block, sliced.framework, sliced.workers) == (
        "infer",
        "inference",
        "tensor-slicing",
        2,
    )
    assert sliced.state == "missing"
    assert sliced.gpu_hours == pytest.approx(2 * sliced.wall_s / 3600)
    assert sliced.price == pytest.approx(3 * sliced.gpu_hours)
    assert missing(bill.counted([*found.values()]), "2 runs", "10 jobs") == []


def test_without_records_a_forward_pass_is_a_third_of_a_training_step(
    plan: Plan, tmp_path: Path
) -> None:
    slow, fast = (rows(plan, tmp_path)[one(plan, "plain", m).id] for m in ("resnet8_half", "lenet"))
    assert slow.estimate_by == fast.estimate_by == "guessed"
    spec = replace(one(plan, "plain"), batches=(1000,))
    # 40 requests of 1000 pictures, three before them, and all 1000 validation pictures twice
    assert work_s(spec, 10.0) == pytest.approx(FORWARD / 10 * ((AT_LEAST + 3) * 1000 + 2000))
    assert fast.wall_s == pytest.approx(60 + work_s(one(plan, "plain"), 1000.0))
    assert fast.wall_s_low < fast.wall_s < slow.wall_s < slow.wall_s_high
    nobody = rows(replace(plan, machine=LAPTOP), tmp_path)[one(plan, "plain").id]
    assert missing(nobody.estimate, "no estimate", "lenet") == []
    assert nobody.wall_s == 60 + 4.0 * len(one(plan, "plain").batches)


def test_records_of_trainings_say_how_fast_and_how_long_to_begin(plan: Plan) -> None:
    spec = one(plan, "plain")
    # 4000 images in 2 s; 9 s beside the training
    trained = RecordedTime(json.loads(spec.run.to_json()), 4000, 11.0, 9.0, 2.0, None, None)
    took = InferenceEstimator([], Estimator(LAPTOP, [trained], [])).estimate(spec)
    assert took.s == pytest.approx(9 + work_s(spec, 2000.0))
    assert took.s < took.high_s == pytest.approx(300 + 1.5 * work_s(spec, 2000.0))
    assert missing(took.basis, "third", "records") == []


def test_records_of_like_jobs_are_measurements(plan: Plan, tmp_path: Path) -> None:
    spec = one(plan, "plain")
    write(tmp_path, replace(spec, repeat=7), took_s=20.0)
    write(tmp_path, replace(spec, repeat=8), took_s=30.0)
    found = rows(plan, tmp_path)
    like, other = found[spec.id], found[one(plan, "int8").id]
    assert (like.wall_s_low, like.wall_s, like.wall_s_high, like.estimate_by) == (
        20,
        25,
        30,
        "measured",
    )
    assert (other.wall_s_low, other.wall_s, other.wall_s_high) == pytest.approx((20 / 1.5, 25, 45))
    assert (
        other.estimate_by == "guessed"
        and missing(other.estimate, "2 measured jobs", "other ways") == []
    )
    assert missing(found[one(plan, "plain", "resnet8_half").id].estimate, "third") == []


def test_a_job_is_done_with_its_record_and_its_run(plan: Plan, tmp_path: Path) -> None:
    spec = replace(one(plan, "plain"), trained=False)
    job = replace(next(iter(plan.non_training.values())), spec=spec, weights_of=None)
    trained = plan.non_training[one(plan, "int8").id]
    mine = replace(plan, non_training={spec.id: job, trained.spec.id: trained})
    write(tmp_path, spec, took_s=36.0)
    write(tmp_path, trained.spec, took_s=36.0)
    found = rows(mine, tmp_path)
    assert (found[spec.id].state, found[spec.id].wall_s, found[spec.id].gpu_hours) == (
        "done",
        36.0,
        0.01,
    )
    assert (
        found[trained.spec.id].state == "stale" and missing(found[trained.spec.id].why, "run") == []
    )


def test_a_job_that_is_done_wants_no_data_that_are_gone(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run that is done: what no rule makes lets Snakemake take its record for a file that is
    there.
    """
    monkeypatch.chdir(tmp_path)
    spec, other = one(plan, "plain"), one(plan, "int8")
    write(Path("results"), spec)
    start: Any = object.__new__(Start)
    start.plan, start.with_weights = plan, [spec.run.id]
    dag = SimpleNamespace(forcerules=[], forcefiles=set(), targetfiles=set())
    start.workflow, start.waits = (
        SimpleNamespace(is_main_process=True, dag=dag, executor_plugin=None),
        False,
    )
    start._settled = True
    serving = JobRule(start, "infer", None)
    manifest = str(plan.non_training[spec.id].manifest)

    def reads(job: InferSpec, run_is_done: bool) -> object:
        start._done, start._states = {}, {spec.id: "done" if run_is_done else "stale"}
        return serving.input(SimpleNamespace(job=job.id))

    assert missing(reads(spec, True), f"{manifest}: ", spec.id) == []
    assert reads(other, True) == manifest
    assert reads(spec, False) == manifest  # `test_a_job_is_done_with_its_record_and_its_run`
    dag.forcerules = [SimpleNamespace(name="infer")]
    assert reads(spec, True) == manifest
    dag.forcerules = []
    Path(manifest).parent.mkdir(parents=True)
    Path(manifest).write_text("{}")
    assert reads(spec, True) == manifest


@pytest.mark.parametrize(
    "text", ["", "[]", '{"spec": 1}', '{"spec": {"run": {}}}', '{"took_s": 5}']
)
def test_a_record_that_cannot_be_read_counts_as_none(text: str, plan: Plan, tmp_path: Path) -> None:
    spec = one(plan, "plain")
    (write(tmp_path, spec) / "inference.json").write_text(text)
    assert rows(plan, tmp_path)[spec.id].state == "missing"


@pytest.mark.parametrize("took", [None, -1, "5", float("inf"), float("nan")])
def test_a_record_that_says_no_time_is_done_all_the_same(
    took: object, plan: Plan, tmp_path: Path
) -> None:
    spec = replace(one(plan, "plain"), trained=False)
    job = replace(next(iter(plan.non_training.values())), spec=spec, weights_of=None)
    write(tmp_path, spec, took_s=took)
    row = rows(replace(plan, non_training={spec.id: job}), tmp_path)[spec.id]
    assert (row.state, row.wall_s, row.gpu_hours) == ("done", None, None)


def test_the_limit_counts_them(plan: Plan, tmp_path: Path) -> None:
    jobs = [row for row in rows(plan, tmp_path).values() if row.rule == "infer"]
    hours = bill.gpu_hours(jobs)[0]
    assert hours > 0
    bill.check_limit(jobs, 1.01 * hours)
    with refuses(ConfigError, "10 jobs"):
        bill.check_limit(jobs, 0.99 * hours)


@pytest.mark.parametrize("limit", [1e-6, 1e6])
def test_snakemake_counts_the_jobs_that_it_will_run(
    limit: float, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [
        SimpleNamespace(rule=SimpleNamespace(name=rule), wildcards=SimpleNamespace(**{of: name}))
        for rule, of, name in (
            ("infer", "job", one(plan, "plain").id),
            ("figure", "figure", "latency"),
        )
    ]
    start = object.__new__(Start)
    start.plan = plan
    start.given = SimpleNamespace(
        config={"max_gpu_hours": limit, "data": {"sources": {}}}, images=IMAGES
    )  # type: ignore[assignment]
    start.workflow = SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda: jobs))
    if limit > 1:
        start.keep_limit()
        return
    with refuses(SystemExit, "max_gpu_hours: <0.001 ", "1 job"):
        start.keep_limit()


def test_the_plan_says_how_many_and_from_what(plan: Plan, tmp_path: Path) -> None:
    said = "\n".join(printed.lines(plan, [*rows(plan, tmp_path).values()], ()))
    assert missing(said, "2 runs", "10 jobs", "`inference`") == []
    (line,) = [line for line in said.splitlines() if "third" in line]
    assert missing(line, "inference", "images_per_s") == []
    assert "of 2 runs are guessed" in said


def test_status_shows_them(plan: Plan, tmp_path: Path) -> None:
    found = rows(plan, tmp_path)
    failed, stopped = one(plan, "int8"), one(plan, "compiled")
    (tmp_path / "inference" / failed.id / "failed").mkdir(parents=True)
    report = {"cause": "killed", "rank": 1, "message": "rank 1 was killed"}
    (tmp_path / "inference" / failed.id / "failed/failure.json").write_text(json.dumps(report))
    (tmp_path / "inference" / stopped.id / ".partial").mkdir(parents=True)
    states, _ = status.now(plan, [*found.values()], tmp_path, tmp_path)
    assert states[failed.id] == status.Now("failed")
    assert states[stopped.id] == status.Now("waiting", None, "was stopped")
    said = "\n".join(status.lines(plan, [*found.values()], states, tmp_path, None))
    assert missing(said, "2 runs", "10 jobs", "0 done", "0 running", "11 waiting", "1 failed") == []
    assert f"failed  {failed.id}: killed" in said


def test_a_queues_limit_grows_with_attempts_and_ends_at_the_queues() -> None:
    """JUWELS has a rate of ResNet-50; of models whose operations nobody counted it is all that the
    queue gives.
    """
    run = run_spec(
        machine="juwels-booster",
        device="cuda",
        model="resnet50",
        recipe="aach2023",
        dataset="imagenet",
    )
    spec = infer_spec(run=run)
    first, second = (guess_minutes(spec, JUWELS, attempt) for attempt in (1, 2))
    assert 30 <= first < 60
    assert second == 2 * first
    assert first <= guess_minutes(replace(spec, run=replace(run, model="resnet34")), JUWELS) < 60
    assert guess_minutes(replace(spec, run=replace(run, model="tinynet_a")), JUWELS) == 24 * 60
