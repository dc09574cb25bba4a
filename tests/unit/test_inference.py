"""Jobs of inference as values, and what they come to; no torch. Each way to serve:
tests/contract/test_inference.py.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.analysis import tables
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.sheets import inference
from ddlbench.core import registry
from ddlbench.plan.runs import figure_runs, make_plan, outputs
from ddlbench.settings.study import load_study
from ddlbench.train.inference import AT_LEAST, AT_MOST, InferSpec, requests
from ddlbench.train.inference_record import FORMAT

from tests.builders.machines import LAPTOP
from tests.builders.plans import STUDY, infer_spec
from tests.facts import missing
from tests.unit.spoiled import Files, bad_input


def test_an_id_is_readable_and_holds_what_differs() -> None:
    spec = infer_spec()
    assert re.fullmatch(r"here-mnist5k-lenet-demo-trained\.[0-9a-f]{4}-plain-1workers-r1", spec.id)
    others = [
        replace(spec, trained=False),
        replace(spec, member="int8"),
        replace(spec, workers=2),
        replace(spec, repeat=2),
        replace(spec, batches=(1, 32)),
        replace(spec, run=replace(spec.run, epochs=3)),
    ]
    assert len({spec.id, *(other.id for other in others)}) == 1 + len(others)


def test_settings_come_back_from_their_text() -> None:
    spec = infer_spec(member="tensor-slicing", workers=2)
    assert InferSpec.from_json(spec.to_json()) == spec
    assert "\n" not in spec.to_json()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"run": {}}', "7", infer_spec().to_json().replace('"member"', '"way"')]
)
def test_what_are_no_settings_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the settings"):
        InferSpec.from_json(text)


@pytest.mark.parametrize("member", registry.members("inference"))
def test_its_ranks_are_started_by_a_framework_that_there_is(member: str) -> None:
    assert infer_spec(member=member).adapter in registry.members("frameworks")


def test_asking_members_loads_nothing_heavy() -> None:
    code = (
        "import sys; from ddlbench.core import registry; [registry.member('inference', n) for n in "
    )
    code += (
        "registry.members('inference')]; print({'torch', 'torchao', 'deepspeed', 'numpy'} &"
        " set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_a_batch_size_is_asked_often_enough_and_not_for_ever() -> None:
    assert requests(1e-6) == requests(0.0) == AT_MOST
    assert requests(60.0) == AT_LEAST
    assert requests(0.04) == 100


# The plan


def test_the_small_study_asks_two_models_in_five_ways() -> None:
    plan = make_plan(load_study("inference-small"), LAPTOP)
    assert len(plan.runs) == 2
    assert len(plan.non_training) == 2 * 5
    specs = [job.spec for job in plan.non_training.values()]
    assert Counter(spec.member for spec in specs) == dict.fromkeys(registry.members("inference"), 2)
    assert {(spec.member, spec.workers) for spec in specs if spec.workers > 1} == {
        ("tensor-slicing", 2)
    }
    assert {spec.run.id for spec in specs} == set(plan.runs)
    for name, job in plan.non_training.items():
        assert (job.spec.id, job.weights_of) == (name, job.spec.run.id)
        assert job.manifest == plan.runs[job.spec.run.id].manifest
        assert str(job.resources["launch"]).endswith("-m ddlbench.train.inference")
        assert f"--workers={job.spec.workers}" in str(job.resources["launch"])
    assert figure_runs(plan, "latency") == list(plan.non_training)
    assert [name for rule, name in outputs(plan) if rule == "infer"] == list(plan.non_training)


def study_with(files: Files, inference: object, **changes: object) -> None:
    """Study `mine` with this key `inference`."""
    text = yaml.safe_load(STUDY) | changes | {"inference": inference}
    (files.folder / "studies/mine.yaml").write_text(yaml.safe_dump(text))


TRAIN = {"runs": "scaling", "members": ["plain"]}


@pytest.mark.parametrize(("inference", "changes", "facts"), bad_input("inference", 2))
def test_a_mistake_is_one_line(
    files: Files, inference: str, changes: str, facts: tuple[str, ...]
) -> None:
    asked = yaml.safe_load(inference)
    if isinstance(asked, dict):
        asked = {key: value for key, value in {**TRAIN, **asked}.items() if value is not None}
    study_with(files, asked, **{"figures": {}} | yaml.safe_load(changes))
    said = files.complaint()
    assert said.startswith(f"{files.path['study']}: inference")
    assert missing(said, *facts) == []


def test_models_that_train_in_fp16_are_refused(files: Files) -> None:
    files.path["recipe"].write_text(files.path["recipe"].read_text() + "precision: fp16\n")
    block = {"frameworks": ["ddp"], "loaders": ["native"], "workers": [1], "global_batch": [256]}
    study_with(files, TRAIN, recipe="mine", figures={}, runs={"scaling": block})
    assert missing(files.complaint(), "recipe mine", "precision fp16", "fp32, tf32, bf16") == []


def test_a_figure_of_latency_needs_the_key(files: Files) -> None:
    files.spoil("study", "plot: efficiency", "plot: latency")
    files.spoil("study", "    reference: aach2023\n", "")
    assert missing(files.complaint(), 'figures.efficiency.plot: "latency"', "key inference") == []


def test_a_model_is_asked_once_by_its_smallest_run(files: Files) -> None:
    study_with(files, TRAIN | {"weights": "initial", "batches": [8, 1]}, repeats=2)
    plan = make_plan(load_study("mine", files.folder / "studies"), files.machine())
    (job,) = plan.non_training.values()
    assert (job.spec.run.workers, job.spec.run.repeat, job.spec.batches) == (1, 1, (1, 8))
    assert job.weights_of is None
    assert not job.spec.trained
    without = make_plan(load_study("mine", files.folder / "studies"), files.machine()).runs
    (files.folder / "studies/mine.yaml").write_text(STUDY.replace("repeats: 1", "repeats: 2"))
    plain = make_plan(load_study("mine", files.folder / "studies"), files.machine())
    assert plain.non_training == {}
    assert {run: job.spec for run, job in plain.runs.items()} == {
        run: job.spec for run, job in without.items()
    }


# Records


def record(of: InferSpec, **changes: object) -> dict[str, Any]:
    """One that is whole: latencies of 2 ms, but for slow first ones."""
    facts = {"cpu": "AMD EPYC", "gpu": None, "package": "torch", "versions": {"torch": "2.13.0"}}
    asked = [
        {"batch": b, "first_s": 0.5, "latencies_s": [0.1, 0.05] + 58 * [0.002]} for b in of.batches
    ]
    counts = {
        "images": 1000,
        "correct": 900,
        "plain_correct": 905,
        "other_answers": 9,
        "largest_difference": 0.25,
    }
    sizes = {"weights_bytes": 100, "plain_weights_bytes": 400, "weights_sha256": "ab"}
    made = {
        "format": FORMAT,
        "spec": json.loads(of.to_json()),
        "facts": facts,
        "reason": None,
        "batches": asked,
    }
    return made | counts | sizes | changes


def test_a_record_becomes_rows(tmp_path: Path) -> None:
    spec = infer_spec(member="int8")
    path = tmp_path / "inference.json"
    path.write_text(json.dumps(record(spec)))
    one, many = inference.rows([tmp_path], [spec])
    assert set(one) == {column.name for column in inference.COLUMNS}
    assert (one["batch"], many["batch"]) == (1, 64)
    assert one["precision"] == "fp32"
    assert one["latency_p50_s"] == one["latency_p95_s"] == 0.002
    assert many["throughput_images_per_s"] == pytest.approx(64 / 0.002)
    assert one["warm_up_requests"] >= 2  # the slow ones
    assert one["requests"] + one["warm_up_requests"] == 60
    assert (one["top1"], one["top1_change"], one["first_s"]) == (0.9, -0.005, 0.5)
    tables.write("inference", [one, many], tmp_path)
    assert {path.name for path in tmp_path.glob("inference.*")} == {
        "inference.json",
        "inference.csv",
        "inference.parquet",
    }


def test_a_way_that_could_not_be_tried_says_why(tmp_path: Path) -> None:
    spec = infer_spec(member="compiled")
    bare = {name: record(spec)[name] for name in ("format", "spec", "facts")}
    (tmp_path / "inference.json").write_text(json.dumps(bare | {"reason": "no C++ compiler"}))
    rows = inference.rows([tmp_path], [spec])
    assert [(row["batch"], row["reason"]) for row in rows] == [
        (b, "no C++ compiler") for b in (1, 64)
    ]
    assert {row["latency_p50_s"] for row in rows} == {None}
    assert len(tables.frame("inference", rows)) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 2}, "format 2; .* 1"),
        ({"spec": json.loads(infer_spec(repeat=2).to_json())}, "has other settings"),
        ({"correct": 1001}, "more answers than"),
        ({"other_answers": -1, "correct": -1, "plain_correct": -1}, "more answers than"),
        (
            {"batches": [{"batch": 1, "first_s": 0.5, "latencies_s": [0.002, float("nan")]}]},
            "impossible times",
        ),
        ({"batches": [{"batch": 1, "first_s": 0.5, "latencies_s": []}]}, "impossible times"),
        (
            {"batches": [{"batch": 1, "first_s": -0.5, "latencies_s": [0.002]}]},
            "impossible times",
        ),
        ({"batches": 7}, "cannot be read"),
        ({"facts": []}, "cannot be read"),
    ],
)
def test_a_record_that_cannot_be_true_is_refused(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    spec = infer_spec()
    text = json.dumps(record(spec, **changes))
    for written, wrong in ((text, says), (text[:-20], "cannot be read")):
        (tmp_path / "inference.json").write_text(written)
        with pytest.raises(RefusedError, match=wrong):
            inference.rows([tmp_path], [spec])
