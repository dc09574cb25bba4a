"""Studies become runs: as values, without Snakemake, torch, a GPU or a queue."""

import json
import random
import re
import sys
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.core.recipe import Recipe
from ddlbench.core.spec import COLUMNS, RunSpec
from ddlbench.plan import bill
from ddlbench.plan.runs import make_plan
from ddlbench.plan.stale import changes
from ddlbench.plan.values import Job, Plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import Variant, load_study

from tests.builders.machines import LAPTOP
from tests.builders.plans import pick, run_spec
from tests.facts import missing, refuses
from tests.unit.test_studies import SHORT_ADDS, adds

# What the studies name


def test_aach2023_has_the_runs_of_figures_3_to_9_and_table_2(paper: Plan) -> None:
    to_1024, to_512, repeats = 9, 8, 3  # powers of two from 4
    assert {block: len(runs) for block, runs in paper.blocks.items()} == {
        "resnet50-dali": 2 * 2 * to_1024 * repeats,
        "resnet50-native": 4 * to_512 * repeats,
        "resnets": 3 * to_1024 * repeats,
        "resnet101-dali": 2 * to_1024 * repeats,
        "resnet101-native": 2 * to_512 * repeats,
        "schedules": 3 * to_1024 * repeats,
        "profiled-dali": 3 * (to_1024 - 1) * repeats,
        "profiled-native": 3 * (to_512 - 1) * repeats,
        "profiled-4": 3 * 2 * repeats,
    }


def test_aach2023_makes_shared_runs_once(paper: Plan) -> None:
    new = adds(paper)
    assert new == {block: SHORT_ADDS[block] for block in paper.blocks} | {"schedules": 54}
    assert len(paper.runs) == sum(new.values()) == 540


def test_aach2023_trains_as_the_paper_says(paper: Plan) -> None:
    for job in paper.runs.values():
        spec = job.spec
        assert spec.dataset == "imagenet"
        assert spec.recipe.name == "aach2023"
        assert spec.batch_per_worker == 64
        assert spec.loader_threads == 8
        assert spec.full_epochs == 90
        assert spec.epochs == ((5 if spec.workers == 4 else 10) if spec.profiled else 90)
        assert spec.timed is not spec.profiled
        assert spec.workers <= (512 if spec.loader == "torchvision" else 1024)
        # PyTorch's own loader, and all steps of DALI on the CPU or on the GPU: none of ours.
        assert spec.loader in ("torchvision", "dali-cpu-only", "dali-gpu")
    assert {j.spec.global_batch for j in paper.runs.values()} == {256 * 2**i for i in range(9)}


# Runs are values


def test_ids_are_unique_and_readable(paper: Plan, demo: Plan) -> None:
    for of in (paper, demo):
        assert all(job.spec.id == run for run, job in of.runs.items())
        assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", run) for run in of.runs)
    assert (
        pick(paper, framework="ddp", loader="dali-cpu-only", workers=1024, repeat=2).id
        == "juwels-booster-imagenet-resnet50-aach2023-ddp-dali-cpu-only-1024workers-bs65536-step-90epochs-r2"
    )
    assert pick(paper, profiled=True).id.endswith("-10of90epochs-r1-profiled")


def test_json_round_trip(paper: Plan, demo: Plan) -> None:
    for of in (paper, demo):
        for job in of.runs.values():
            text = job.spec.to_json()
            assert "\n" not in text
            assert RunSpec.from_json(text) == job.spec


def test_a_setting_from_another_version_is_refused_by_name(demo: Plan) -> None:
    text = pick(demo).to_json()
    for known, unknown in (('"workers"', '"ranks"'), ('"gamma"', '"delta"')):
        with refuses(ValueError, unknown[1:-1]):
            RunSpec.from_json(text.replace(known, unknown))


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"recipe": 7}', '{"recipe": {}, "workers": 1}'])
def test_what_are_no_settings_is_said_so(text: str) -> None:
    with refuses(ValueError, "settings"):
        RunSpec.from_json(text)


def test_records_of_today_keep_their_text() -> None:
    """Snakemake compares this text: a byte that changes here makes all finished runs of all users
    stale.
    """
    text = (
        '{"dataset": "mnist5k", "device": "cpu", "epochs": 2, "form": null, "framework": "ddp",'
        ' "global_batch": 64, "loader": "native", "loader_threads": 1, "machine": "here", "model":'
        ' "lenet", "of_epochs": null, "options": [], "profiled": false, "recipe": {"accumulation":'
        ' 1, "augmentation": "none", "base_batch": 32, "base_lr": 0.002, "beta1": 0.9, "beta2":'
        ' 0.999, "clip_norm": null, "decay_epochs": null, "decay_norm_and_bias": true, "gamma":'
        ' 0.8, "image_size": 32, "label_smoothing": 0.1, "lr_min": 0.0, "lr_scaling": "linear",'
        ' "momentum": 0.9, "name": "demo", "nesterov": false, "optimizer": "sgd", "power": 2.0,'
        ' "precision": "fp32", "seed": 1, "step_epochs": [4, 6], "step_factor": 0.1,'
        ' "sync_batch_norm": false, "trust_coefficient": 0.001, "warmup_epochs": 2, "warmup_lr":'
        ' null, "weight_decay": 0.0001}, "repeat": 1, "schedule": "step", "timed": true, "workers":'
        ' 1, "workers_per_node": 1}'
    )
    assert run_spec(recipe="demo").to_json() == text


def test_what_is_left_out_at_its_default_is_written_otherwise() -> None:
    plain = run_spec()
    other = replace(plain, recipe=replace(plain.recipe, zero_init_last=True), interrupt_steps=7)
    assert '"zero_init_last"' not in plain.to_json()
    assert '"interrupt_steps"' not in plain.to_json()
    assert '"zero_init_last": true' in other.to_json()
    assert '"interrupt_steps": 7' in other.to_json()
    assert RunSpec.from_json(plain.to_json()) == plain
    assert RunSpec.from_json(other.to_json()) == other
    before, now = (json.loads(run.to_json()) for run in (plain, other))
    first, second = changes(before, now)
    assert (
        missing(first, "interrupt_steps", 7)
        == missing(second, "recipe.zero_init_last", "true")
        == []
    )


def test_every_key_of_a_recipe_is_a_column(demo: Plan) -> None:
    run = replace(pick(demo, workers=2), repeat=3)
    columns = run.columns()
    assert set(columns) == set(COLUMNS)
    assert {field.name for field in fields(Recipe)} - {"name"} <= columns.keys()
    assert columns["batch_per_worker"] == 64
    assert columns["seed"] == 3  # the run's own, not the recipe's
    assert columns["step_epochs"] == "[30, 60, 80]"
    assert all(
        column is None or isinstance(column, str | int | float) for column in columns.values()
    )


@pytest.mark.parametrize("timed_first", [True, False])
def test_a_run_that_one_block_wants_timed_is_timed(timed_first: bool) -> None:
    study = load_study("demo")
    block = study.blocks[0]
    blocks = (
        replace(block, timed=timed_first),
        replace(block, name="again", timed=not timed_first),
    )
    twice = make_plan(replace(study, blocks=blocks, figures=()), LAPTOP)
    assert len(twice.runs) == 12
    assert twice.blocks[block.name] == twice.blocks["again"]
    assert all(job.spec.timed for job in twice.runs.values())


def test_a_run_that_another_study_wants_timed_stays_timed() -> None:
    """Two studies would make it again in turn."""
    study = load_study("demo")
    blocks = tuple(replace(block, timed=False) for block in study.blocks)
    made = pick(make_plan(replace(study, blocks=blocks), LAPTOP))
    plan = make_plan(
        replace(study, blocks=blocks), LAPTOP, was_timed=lambda spec: spec.id == made.id
    )
    assert {run for run, job in plan.runs.items() if job.spec.timed} == {made.id}


def test_blocks_say_by_their_batch_which_scaling_they_mean() -> None:
    study = load_study("demo")
    weak = replace(
        study.blocks[0],
        name="weak",
        workers=(1, 2),
        batch_per_worker=(64,),
        global_batch=None,
        repeats=1,
    )
    strong = replace(weak, name="strong", batch_per_worker=None, global_batch=(128,))
    sweep = replace(strong, name="sweep", workers=(1,), global_batch=(32, 64))
    made = make_plan(
        replace(study, blocks=(weak, strong, sweep), figures=(), inference=None), LAPTOP
    )
    said = made.scaling
    kinds = {
        (run.spec.workers, run.spec.global_batch): said.get(name) for name, run in made.runs.items()
    }
    assert kinds == {(1, 64): "weak", (2, 128): None, (1, 128): "strong", (1, 32): None}


def test_a_form_that_is_not_preferred_makes_another_run() -> None:
    study = load_study("demo")
    block = replace(
        study.blocks[0], loaders=("dali-cpu", "native", "synthetic"), workers=(1,), repeats=1
    )
    planned = {
        form: make_plan(replace(study, blocks=(replace(block, form=form),), figures=()), LAPTOP)
        for form in (None, "raw")
    }
    preferred, raw = (
        {pick(of, loader=name).id for name in block.loaders} for of in planned.values()
    )
    # native prefers raw, synthetic reads nothing: those runs are the same.
    assert {
        name.replace("-dali-cpu-raw-", "-dali-cpu-") for name in raw - preferred
    } == preferred - raw
    assert len(raw - preferred) == 1
    jobs = {job.spec.loader: job for job in planned["raw"].runs.values()}
    assert {name: job.spec.columns()["form"] for name, job in jobs.items()} == {
        "dali-cpu": "raw",
        "native": "raw",
        "synthetic": None,
    }
    assert jobs["dali-cpu"].manifest == f"{LAPTOP.data}/{block.dataset}/raw/manifest.json"
    assert jobs["synthetic"].manifest is None
    spec = pick(planned[None], loader="dali-cpu")
    assert replace(spec, form="tfrecord").id == spec.id
    assert (
        planned[None].runs[spec.id].manifest
        == f"{LAPTOP.data}/{block.dataset}/tfrecord/manifest.json"
    )


def two_blocks(**blocks_of: tuple[str, Variant, float]) -> Plan:
    """Blocks of one run each, by name: the name of the recipe, the framework, the recipe's
    gamma.
    """
    study = load_study("demo")
    block = replace(
        study.blocks[0], adapters=study.blocks[0].adapters[:1], loaders=("native",), workers=(1,)
    )
    block = replace(block, repeats=1)
    blocks = []
    for name, (recipe, framework, gamma) in blocks_of.items():
        file = replace(block.recipe_file, name=recipe, gamma=gamma)
        blocks.append(replace(block, name=name, recipe_file=file, adapters=(framework,)))
    return make_plan(replace(study, blocks=tuple(blocks), figures=()), LAPTOP)


OPTIONS = (("bucket_mb", 1), ("framework", "ddp"))


def test_different_runs_of_one_id_are_refused() -> None:
    """Recipe demo with variant v-w would be trained, and recipe demo-v with variant w taken for
    it.
    """
    with pytest.raises(ConfigError) as error:
        two_blocks(
            one=("demo", Variant("v-w", OPTIONS), 0.5), two=("demo-v", Variant("w", OPTIONS), 0.5)
        )
    said = str(error.value)
    assert said.startswith(f"{load_study('demo').path}: runs.two: ")
    assert missing(said, "framework", '"v-w"', '"w"', "recipe.name", '"demo"', '"demo-v"') == []
    assert "\n" not in said


@pytest.mark.parametrize("seed", range(5))
def test_distinct_runs_have_distinct_ids_or_are_refused(seed: int) -> None:
    """Names from few parts, so that some pairs collide: a plan has as many runs as were named, or
    there is none.
    """
    chance = random.Random(seed)

    def name() -> str:
        return "-".join(chance.choices(("a", "b", "r1", "native"), k=chance.randint(1, 3)))

    refused = 0
    for _ in range(60):
        given = {
            block: (
                name(),
                Variant(name(), (("bucket_mb", chance.randint(1, 2)), ("framework", "ddp"))),
                0.5,
            )
            for block in ("one", "two")
        }
        try:
            plan = two_blocks(**given)
        except ConfigError:
            refused += 1
            assert given["one"] != given["two"]
        else:
            assert len(plan.runs) == len(
                {(recipe, framework) for recipe, framework, _ in given.values()}
            )
    assert refused < 30


def test_an_id_is_a_file_name() -> None:
    plan = two_blocks(one=("r" * 70, Variant("v" * 70, OPTIONS), 0.5))
    assert max(map(len, plan.runs)) <= 240
    with refuses(ConfigError, "runs.one", 240):
        two_blocks(one=("r" * 100, Variant("v" * 100, OPTIONS), 0.5))


def test_workers_that_the_machine_lacks_are_left_out_if_the_study_says_so() -> None:
    study = load_study("demo")
    study = replace(study, blocks=tuple(replace(block, fit=True) for block in study.blocks))
    one = make_plan(study, replace(LAPTOP, workers_per_node=1))
    assert (len(one.runs), one.left_out) == (6 + 9, (2,))
    assert {planned.spec.workers for planned in one.runs.values()} == {1}
    assert make_plan(study, LAPTOP).left_out == ()
    two = replace(
        study,
        blocks=(*(replace(block, workers=(2,)) for block in study.blocks[:2]), study.blocks[2]),
    )
    with refuses(ConfigError, "figures.throughput.runs", "local", 1):
        make_plan(two, replace(LAPTOP, workers_per_node=1))
    with refuses(ConfigError, ": runs: ", "local", 1):
        make_plan(replace(two, blocks=two.blocks[:2]), replace(LAPTOP, workers_per_node=1))


def test_a_study_of_too_many_runs_is_refused_at_once() -> None:
    study = load_study("demo")
    many = replace(study, blocks=(replace(study.blocks[0], repeats=100_000),), figures=())
    with refuses(ConfigError, "runs.loaders", 400000, 20000):
        make_plan(many, LAPTOP)


def test_runs_on_gpus_of_one_machine_never_share_it() -> None:
    spec = replace(pick(make_plan(load_study("demo"), LAPTOP)), timed=False)
    for device, threads in (("cpu", spec.workers), ("cuda", 16)):
        assert (
            Job("training", replace(spec, device=device), None, lambda attempt: {}).threads(16)
            == threads
        )


def test_the_study_of_one_gpu() -> None:
    """12 in three repeats, six more so, and two profiled runs; all but these measure 3 of 90
    epochs.
    """
    plan = make_plan(load_study("one-gpu"), load_machine("workstation"))
    assert len(plan.runs) == 3 * (12 + 6) + 2
    assert {job.spec.recipe.precision for job in plan.runs.values()} == {
        "bf16",
        "fp16",
        "tf32",
        "fp32",
    }
    assert {(job.spec.epochs, job.spec.full_epochs) for job in plan.runs.values()} == {(3, 90)}
    assert all("-3of90epochs-" in run for run in plan.runs)


def test_the_study_of_frameworks_has_four_and_their_variants() -> None:
    plan = make_plan(load_study("frameworks"), LAPTOP)
    assert len(plan.runs) == 18
    assert {job.spec.adapter for job in plan.runs.values()} == {
        "ddp",
        "deepspeed",
        "fsdp",
        "horovod",
    }
    ids = {job.spec.id.split("-lenet-demo-")[1].split("-native-")[0] for job in plan.runs.values()}
    assert all(
        "." in name for name in ids if name not in registry.members("frameworks")
    )  # its options are in its id


def test_settings_of_other_versions_are_named() -> None:
    assert changes({"a": 1, "gone": 2}, {"a": 1, "new": None}) == [
        "gone 2 -> not set",
        "new not set -> null",
    ]


def test_a_run_takes_no_more_calls_in_a_larger_plan(tmp_path: Path) -> None:
    """So 50 000 runs take five times as long as 10 000."""
    study, machine, counts = load_study("demo"), load_machine("local"), []
    images = {block.dataset: 4000 for block in study.blocks}
    for repeats in (1, 3, 6, 12):  # the first imports what is missing
        calls: Counter[str] = Counter()
        sys.setprofile(lambda frame, event, _, calls=calls: calls.update([event]))  # type: ignore[misc]
        try:
            plan = make_plan(
                replace(study, blocks=tuple(replace(b, repeats=repeats) for b in study.blocks)),
                machine,
            )
            rows = bill.rows(plan, images, tmp_path)
        finally:
            sys.setprofile(None)
        counts.append((len(rows), calls["call"] + calls["c_call"]))
    _, (few, a), (more, b), (most, c) = counts
    assert most > more > few > 20
    assert (c - b) / (most - more) < 1.05 * (b - a) / (more - few)
    assert plan.jobs is plan.jobs  # Snakemake asks for a job nine times
