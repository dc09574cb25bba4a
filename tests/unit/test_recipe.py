"""Recipes: learning rates against the papers' formulas, tables by batch size, number formats, the
files we ship.
"""

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from ddlbench.core.digest import digest
from ddlbench.core.recipe import STATES, USED_WITH, for_schedule
from ddlbench.core.schedule import learning_rate, peak_lr, scheduled_lr, warm_up, warm_up_fault
from ddlbench.core.spec import RunSpec, relevant_settings
from ddlbench.plan.runs import make_plan
from ddlbench.plan.stale import changes, is_same_run
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.settings.study import load_study

from tests.builders.plans import run_spec
from tests.facts import missing, refuses
from tests.unit.spoiled import Files

RECIPE = load_recipe("aach2023").at(256)


def run(schedule: str = "step", workers: int = 4) -> RunSpec:
    """90 epochs at 64 images a worker."""
    batch = 64 * workers
    return run_spec(
        recipe=RECIPE, workers=workers, global_batch=batch, schedule=schedule, epochs=90
    )


@pytest.mark.parametrize("gpus", [4, 8, 16, 32, 64, 128, 256, 512, 1024])
def test_peak_is_0025_for_each_gpu_at_64_images(gpus: int) -> None:
    assert peak_lr(RECIPE, 64 * gpus) == pytest.approx(0.025 * gpus)


@pytest.mark.parametrize("schedule", ["step", "cosine", "exponential"])
@pytest.mark.parametrize("workers", [4, 1024])
def test_warmup_is_linear_and_meets_the_schedule(schedule: str, workers: int) -> None:
    spec = run(schedule, workers)
    end = scheduled_lr(spec, 5)
    assert learning_rate(spec, 0) == pytest.approx(0.025)
    assert learning_rate(spec, 2.5) == pytest.approx((0.025 + end) / 2)
    assert learning_rate(spec, 5 - 1e-9) == pytest.approx(end)
    assert learning_rate(spec, 5) == end


def cosine(t: float) -> float:
    return 0.05 * (1 + math.cos(math.pi * t / 90))


def exponential(first: float) -> dict[float, float]:
    return {t + part: 0.1 * 0.95 ** (t - first) for t in (5, 30, 89) for part in (0, 0.99)}


# Schedule, what is special about the recipe and the run, and the rate after so many epochs.
RATES: list[tuple[str, dict[str, Any], dict[str, Any], dict[float, float]]] = [
    (
        "step",
        {},
        {},
        {5: 0.1, 29.99: 0.1, 30: 0.01, 59.99: 0.01, 60: 0.001, 79.99: 0.001, 80: 1e-4, 89.99: 1e-4},
    ),
    ("cosine", {}, {}, {45: 0.05, 45.5: 0.05, 70: cosine(70), 90: 0.0}),  # moves once per epoch
    ("cosine", {"cosine_moves": "step"}, {}, {45: 0.05, 45.5: cosine(45.5)}),
    (
        "exponential",
        {},
        {},
        exponential(5),
    ),  # the paper's: from the end of warm-up, which reaches LR_max
    ("exponential", {"exponential_start": "training"}, {}, exponential(0)),
    ("exponential", {"warmup_epochs": 2.5}, {}, {2.5: 0.1, 3.49: 0.1, 3.5: 0.095}),
    # From the end of warm-up to the end of the run, by the step; or as far as the recipe says, and
    # stays there.
    (
        "polynomial",
        {"power": 2.0, "lr_min": 0.01},
        {},
        {5: 0.1, 5.5: 0.01 + 0.09 * (84.5 / 85) ** 2, 90: 0.01},
    ),
    (
        "polynomial",
        {"power": 2.0, "lr_min": 0.01},
        {},
        {6: 0.01 + 0.09 * (84 / 85) ** 2, 47.5: 0.01 + 0.09 / 4},
    ),
    (
        "polynomial",
        {"power": 2.0, "lr_min": 0.0, "decay_epochs": 40.0},
        {},
        {25: 0.1 / 4, 45: 0.0, 89: 0.0},
    ),
    ("polynomial", {"power": 1.0, "lr_min": 0.0, "decay_epochs": 170.0}, {}, {90: 0.05}),
    (
        "polynomial",
        {"power": 1.0, "lr_min": 0.0, "decay_epochs": 1.0},
        {},
        {5: 0.1, 5.5: 0.05, 6: 0.0},
    ),
    *(
        ("polynomial", {"lr_min": 0.01}, {"epochs": n}, {5: 0.01, 6: 0.01}) for n in (3, 5)
    ),  # over when warm-up ends
    ("polynomial", {"warmup_lr": 0.0}, {}, {0: 0.0, 1: 0.1 / 5}),
    # A run that is all warm-up heads for the peak: its schedule would be over when warm-up ends.
    *(
        (
            schedule,
            {},
            {"epochs": n},
            {0: 0.025, 0.5: 0.0325, 1 - 1e-9: 0.04, n - 1e-9: 0.025 + 0.075 * n / 5},
        )
        for schedule in ("cosine", "polynomial")
        for n in (1, 3, 5)
    ),
]


@pytest.mark.parametrize(("schedule", "recipe", "changes", "rates"), RATES)
def test_rates_by_hand(
    schedule: str, recipe: dict[str, Any], changes: dict[str, Any], rates: dict[float, float]
) -> None:
    spec = replace(run(schedule), recipe=replace(RECIPE, **recipe), **changes)
    assert {t: learning_rate(spec, t) for t in rates} == pytest.approx(rates)
    assert warm_up_fault(spec) is None


def test_what_schedules_say_without_a_warmup_and_where_warmup_ends() -> None:
    assert [scheduled_lr(run("cosine"), t) for t in (0, 45, 90)] == pytest.approx(
        [0.1, 0.05, RECIPE.lr_min]
    )
    early = replace(run("exponential"), recipe=replace(RECIPE, exponential_start="training"))
    assert warm_up(run("exponential"))[1] == pytest.approx(0.1)
    assert warm_up(early)[1] == pytest.approx(0.0774, abs=5e-5)
    assert warm_up(replace(early, epochs=3)) == warm_up(early)  # it does not end with the run


def test_only_runs_of_its_schedule_feel_a_schedules_key() -> None:
    """Study aach2023 sets `exponential_start`: its other runs keep the text that finished ones were
    made with.
    """
    runs = make_plan(load_study("aach2023"), load_machine("juwels-booster")).runs.values()
    feel = {job.spec.schedule for job in runs if "exponential_start" in job.spec.to_json()}
    assert feel == {"exponential"}
    assert sum(job.spec.schedule == "exponential" for job in runs) == 27
    assert not [
        job
        for job in runs
        if '"cosine_moves"' in job.spec.to_json() or "zero_init_last" in job.spec.to_json()
    ]
    assert for_schedule(replace(RECIPE, cosine_moves="step"), "cosine").cosine_moves == "step"


# Another value of each key that not every training uses.
CHANGED: dict[str, Any] = {
    "momentum": 0.5,
    "nesterov": True,
    "beta1": 0.5,
    "beta2": 0.5,
    "trust_coefficient": 0.5,
    "lr_min": 0.001,
    "step_epochs": (7,),
    "step_factor": 0.5,
    "gamma": 0.5,
    "exponential_start": "training",
    "cosine_moves": "step",
    "power": 1.0,
    "decay_epochs": 40.0,
    "warmup_lr": 0.001,
}
OF_WARMUP = ("warmup_lr", "exponential_start")
TRAINED = {
    "optimizer": {"schedule": ["step"], "optimizer": [*STATES]},
    "schedule": {"schedule": ["step", "cosine", "exponential", "polynomial"], "optimizer": ["sgd"]},
}


def trained(spec: RunSpec) -> tuple[list[float], list[list[float]]]:
    """What the keys come to: the rates of all epochs, and the weights after each of three steps."""
    import torch
    from ddlbench.train import optimizers

    rates = [learning_rate(spec, t / 2) for t in range(180)]
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, 0.5)
    optimizer, weights = optimizers.build(spec.recipe, model), []
    for step in range(3):
        for parameter in model.parameters():
            parameter.grad = (
                torch.arange(parameter.numel()).reshape(parameter.shape).sub(step).cos()
            )
        optimizer.step()
        weights.append(model.weight.detach().flatten().tolist())
    return rates, weights


@pytest.mark.parametrize("warmup_epochs", [0, 5])
@pytest.mark.parametrize("key", CHANGED)
def test_a_key_makes_those_runs_stale_that_it_changes_and_no_others(
    key: str, warmup_epochs: float
) -> None:
    decides = USED_WITH[key][0] if key in USED_WITH else "schedule"
    uses = []
    for schedule, optimizer in product(TRAINED[decides]["schedule"], TRAINED[decides]["optimizer"]):
        recipe = replace(RECIPE, optimizer=optimizer, warmup_epochs=warmup_epochs)
        before = replace(run(schedule), recipe=recipe)
        now = replace(before, recipe=replace(recipe, **{key: CHANGED[key]}))
        texts = before.to_json(), now.to_json()
        same = trained(before) == trained(now)
        assert (changes(*map(json.loads, texts)) == []) == same, (key, schedule, optimizer)
        assert is_same_run(*texts) == before.trains_like(now) == same
        assert (digest(json.loads(texts[0])) == digest(json.loads(texts[1]))) == same
        assert (
            before.columns() == now.columns()
        ) == same  # or old runs and new ones would be in no table together
        uses.append(not same)
    assert any(uses) == (key not in OF_WARMUP or warmup_epochs > 0)
    assert not all(uses) or key == "warmup_lr"


def test_changed_keys_make_no_run_of_the_paper_stale_that_does_not_use_them() -> None:
    """540 runs on 1024 GPUs: `gamma` is of 27 of them."""
    plan = make_plan(load_study("aach2023"), load_machine("juwels-booster"))
    specs = [job.spec for job in plan.runs.values()]
    stale = {}
    for key in ("gamma", "step_epochs", "lr_min", "base_lr"):
        value = CHANGED.get(key, 0.5)
        changed = [replace(spec, recipe=replace(spec.recipe, **{key: value})) for spec in specs]
        differ = [
            a.schedule
            for a, b in zip(specs, changed, strict=True)
            if not is_same_run(a.to_json(), b.to_json())
        ]
        stale[key] = {schedule: differ.count(schedule) for schedule in {*differ}}
    every = {
        schedule: sum(spec.schedule == schedule for spec in specs)
        for schedule in ("step", "cosine", "exponential")
    }
    assert stale == {
        "gamma": {"exponential": 27},
        "step_epochs": {"step": every["step"]},
        "lr_min": {"cosine": every["cosine"]},
        "base_lr": every,
    }


def test_what_loads_nothing_has_no_threads_and_changes_no_pictures() -> None:
    for loader, uses in (("synthetic", False), ("native", True)):
        spec = replace(run(), loader=loader)
        threads = replace(spec, loader_threads=9)
        pictures = replace(spec, recipe=replace(RECIPE, augmentation="none"))
        assert [is_same_run(spec.to_json(), other.to_json()) for other in (threads, pictures)] == [
            not uses
        ] * 2


@pytest.mark.parametrize(
    "settings", [{}, {"recipe": 3}, {"recipe": {}, "loader": ["x"]}, {"run": {"recipe": None}}]
)
def test_whatever_stands_in_a_record_is_compared(settings: dict[str, Any]) -> None:
    assert relevant_settings(settings) == settings


@pytest.mark.parametrize(
    ("model", "refused"), [("lenet", True), ("vit_tiny_patch16_224", True), ("resnet50", False)]
)
def test_a_model_that_cannot_choose_how_blocks_begin_is_refused_in_the_plan(
    files: Files, model: str, refused: bool
) -> None:
    files.spoil("study", "recipe: demo", "recipe: mine")
    files.spoil("study", "[lenet]", f"[{model}]")
    files.spoil("recipe", "warmup_epochs: 1", "warmup_epochs: 0\nzero_init_last: true")
    if refused:
        said = files.complaint()
        assert (
            missing(said, f"{files.path['recipe']}: zero_init_last: true", f"model {model}") == []
        )
    else:
        files.load()


def test_all_workers_and_frameworks_of_a_repeat_share_a_seed() -> None:
    assert run(workers=4).seed == run(workers=1024).seed == RECIPE.seed


def test_an_unknown_schedule_is_no_schedule() -> None:
    with pytest.raises(ValueError, match="unknown schedule linear"):
        scheduled_lr(run("linear"), 10)


# Other ways to scale and to lower the rate


@pytest.mark.parametrize(("scaling", "k"), [("linear", 16), ("sqrt", 4), ("none", 1)])
def test_how_the_peak_grows_with_the_batch(scaling: str, k: float) -> None:
    recipe = replace(RECIPE, lr_scaling=scaling)
    assert peak_lr(recipe, recipe.base_batch) == pytest.approx(0.025)
    assert peak_lr(recipe, 16 * recipe.base_batch) == pytest.approx(k * 0.025)


def test_polynomial_of_a_run_that_is_only_measured_is_the_whole_runs() -> None:
    whole, part = run("polynomial"), replace(run("polynomial"), epochs=3, of_epochs=90)
    for epoch in (0, 2.5, 5, 50):
        assert learning_rate(part, epoch) == learning_rate(whole, epoch)


@pytest.mark.parametrize(
    ("changes", "recipe", "says"),
    [
        ({"schedule": "cosine", "epochs": 6}, {}, "0.025 to 0.00669873"),
        (
            {"schedule": "exponential"},
            {"gamma": 0.5, "exponential_start": "training"},
            "fall from 0.025 to 0.003125",
        ),
        ({"schedule": "step"}, {"step_epochs": (3.0,)}, "fall from 0.025 to 0.01"),
        ({"global_batch": 32}, {}, "0.025 to 0.0125"),
        (
            {"global_batch": 32, "schedule": "polynomial"},
            {"warmup_lr": 0.02},
            "fall from 0.02 to 0.0125",
        ),
    ],
)
def test_warmup_that_would_fall_is_a_fault(
    changes: dict[str, Any], recipe: dict[str, Any], says: str
) -> None:
    spec = replace(run(), **changes, recipe=replace(RECIPE, **recipe))
    reason = warm_up_fault(spec)
    assert reason is not None
    assert says in reason
    assert learning_rate(spec, 4.9) < learning_rate(spec, 0)
    allowed = float(reason.split("warmup_lr of at most ")[1].split(",")[0])
    assert (
        warm_up_fault(replace(spec, recipe=replace(spec.recipe, warmup_lr=0.999 * allowed))) is None
    )


@pytest.mark.parametrize(
    ("changes", "recipe"),
    [
        ({}, {}),
        ({"schedule": "cosine", "epochs": 12}, {}),
        # The base rate is the peak: the demo's runs at 32 images a step.
        ({"schedule": "exponential", "global_batch": 64}, {"gamma": 0.8}),
        ({"global_batch": 32}, {"warmup_epochs": 0.0}),
    ],
)
def test_warmup_that_is_none(changes: dict[str, Any], recipe: dict[str, Any]) -> None:
    assert warm_up_fault(replace(run(), **changes, recipe=replace(RECIPE, **recipe))) is None


@pytest.mark.parametrize(
    ("study", "machine"),
    [
        ("demo", "local"),
        ("aach2023", "juwels-booster"),
        ("mlperf-lars", "juwels-booster"),
        ("liang2023", "slurm"),
        ("frameworks", "local"),
        ("one-gpu", "slurm"),
    ],
)
def test_warmup_of_our_studies_ends_where_the_schedule_stands(study: str, machine: str) -> None:
    """That was so for every run once: what is defined for runs that are all warm-up changes none of
    these.
    """
    for job in make_plan(load_study(study), load_machine(machine)).runs.values():
        assert warm_up(job.spec)[1] == scheduled_lr(job.spec, job.spec.recipe.warmup_epochs), (
            job.spec.id
        )


# Tables by batch size


def test_values_between_two_rows_are_interpolated() -> None:
    recipe = load_recipe("mlperf-lars").at(6144)  # half way between 4096 and 8192
    assert peak_lr(recipe, 6144) == recipe.base_lr == pytest.approx((10 + 17) / 2)
    assert recipe.decay_epochs == pytest.approx((42.000107714 + 38.972468070) / 2)
    assert (recipe.momentum, recipe.weight_decay, recipe.warmup_epochs) == pytest.approx(
        (0.9, 2e-4, 5)
    )
    assert load_recipe("mlperf-lars").at(4096 + 1024).base_lr == pytest.approx(10 + 7 / 4)


@pytest.mark.parametrize("batch", [1631, 67841, 256])
def test_batch_sizes_outside_the_table_are_refused(batch: int) -> None:
    with refuses(ConfigError, f"recipes/mlperf-lars.yaml: by_batch: {batch}", 1632, 67840):
        load_recipe("mlperf-lars").at(batch)
