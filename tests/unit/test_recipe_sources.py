"""Recipes of the sources: MLPerf's reference convergence points, and DeepSpeed's example after
Liang et al. 2023.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.core.files import read_csv
from ddlbench.core.schedule import learning_rate
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.settings.study import load_study

from tests.facts import refuses

# MLPerf's reference convergence points


def points() -> list[dict[str, str]]:
    return read_csv(CONFIG / "references/mlperf-rcp-resnet50.csv")


def test_mlperf_lars_is_the_table() -> None:
    plan = make_plan(load_study("mlperf-lars"), load_machine("juwels-booster"))
    assert len(points()) == len(plan.blocks) == 10
    assert len(plan.runs) == 50
    for point in points():
        batch, warmup = int(point["global_batch"]), float(point["warmup_epochs"])
        spec = plan.runs[plan.blocks[f"bs{batch}"][0]].spec
        recipe = spec.recipe
        assert (spec.global_batch, spec.schedule, recipe.optimizer) == (
            batch,
            "polynomial",
            point["optimizer"],
        )
        assert spec.batch_per_worker == int(point["batch_norm_images"])
        assert (recipe.momentum, recipe.weight_decay) == (
            float(point["momentum"]),
            float(point["weight_decay"]),
        )
        decay = int(point["decay_steps"]) * batch / 1281167
        assert (recipe.warmup_epochs, recipe.decay_epochs) == (warmup, decay)
        assert spec.epochs == round(warmup + decay) > float(point["mean_epochs_to_0.759"])
        # From 0 to the peak, then as the square of what is left, to 1e-4.
        rate = float(point["base_lr"])
        expected = {
            0: 0,
            warmup / 2: rate / 2,
            warmup: rate,
            warmup + decay / 2: 1e-4 + (rate - 1e-4) / 4,
        }
        assert {epoch: learning_rate(spec, epoch) for epoch in expected} == pytest.approx(expected)
        assert learning_rate(spec, warmup + decay) == pytest.approx(1e-4)


def test_the_small_twin_of_mlperf_lars_is_its_first_row() -> None:
    small, large = load_recipe("mlperf-lars-small").at(1632), load_recipe("mlperf-lars").at(1632)
    assert small == replace(large, name=small.name, accumulation=8)
    point = next(point for point in points() if point["global_batch"] == "1632")
    for machine in ("local", "workstation"):
        plan = make_plan(load_study("mlperf-lars-small"), load_machine(machine))
        assert len(plan.runs) == 5
        for planned in plan.runs.values():
            spec = planned.spec
            assert spec.batch_per_worker / spec.recipe.accumulation == int(
                point["batch_norm_images"]
            )
            assert spec.epochs == 37  # as bs1632 of mlperf-lars
        with refuses(ConfigError, "study mlperf-lars-small"):
            make_plan(load_study("mlperf-lars"), load_machine(machine))


def test_liang2023_trains_what_a_machine_has_workers_for() -> None:
    study, local = load_study("liang2023"), load_machine("local")
    for cores, runs, left_out in ((1, 324, (4,)), (2, 324, (4,)), (4, 660, ()), (12, 660, ())):
        plan = make_plan(study, replace(local, workers_per_node=cores))
        assert (len(plan.runs), plan.left_out) == (runs, left_out)
    assert len(make_plan(study, load_machine("workstation")).runs) == 324


def test_the_table_is_mlcommons_own() -> None:
    """Their package has it: the numbers were not copied by hand."""
    import json

    import mlperf_logging

    file = Path(mlperf_logging.__path__[0]) / "rcp_checker/training_4.0.0/rcps_resnet.json"
    theirs = {p["BS"]: p for p in json.loads(file.read_text(encoding="utf-8")).values()}
    assert set(theirs) == {int(point["global_batch"]) for point in points()}
    names = {
        "base_lr": "opt_base_learning_rate",
        "warmup_epochs": "opt_learning_rate_warmup_epochs",
        "momentum": "opt_momentum",
        "weight_decay": "opt_weight_decay",
        "decay_steps": "opt_learning_rate_decay_steps",
        "batch_norm_images": "model_bn_span",
    }
    for point in points():
        their = theirs[int(point["global_batch"])]
        assert {k: float(point[k]) for k in names} == {
            k: their["Hyperparams"][n] for k, n in names.items()
        }
        epochs = their["Epochs to converge"]
        assert int(point["runs"]) == len(epochs)
        assert float(point["mean_epochs_to_0.759"]) == pytest.approx(
            sum(epochs) / len(epochs), abs=0.005
        )


# DeepSpeed's example, after Liang et al. 2023


def test_liang2023_is_108_trainings() -> None:
    plan = make_plan(load_study("liang2023"), load_machine("slurm"))
    specs = [job.spec for job in plan.runs.values()]
    plain = [spec for spec in specs if spec.framework in ("ddp", "deepspeed")]
    sets = {name: name.removesuffix("-224") for name in {spec.recipe.name for spec in specs}}
    trainings = {
        (spec.model, sets[spec.recipe.name], spec.dataset, spec.framework) for spec in plain
    }
    assert len(trainings) == 9 * 3 * 2 * 2 == 108
    assert {len({training[axis] for training in trainings}) for axis in range(4)} == {9, 3, 2}
    assert len(plain) == 108 * 2 * 3
    assert len(specs) == 648 + 12
    transformers = {spec.model for spec in specs if spec.recipe.image_size == 224}
    assert transformers == {
        "vit_base_patch16_224",
        "swin_tiny_patch4_window7_224",
        "coat_lite_small",
    }
    assert not transformers & {spec.model for spec in specs if spec.recipe.image_size == 32}
    # Finished runs of the study as it was stay its own, but for transformers of 32 pixels.
    assert (
        "slurm-cifar100-densenet121-liang2023-deepspeed-native-4workers-bs16-step-30epochs-r3"
        in plan.runs
    )


@pytest.mark.parametrize("name", ["liang2023", "liang2023-sgd", "liang2023-adam"])
def test_liang2023s_large_pictures_change_nothing_else(name: str) -> None:
    small, large = load_recipe(name).at(16), load_recipe(f"{name}-224").at(16)
    assert large == replace(small, name=large.name, image_size=224)


def test_liang2023_has_deepspeeds_example() -> None:
    plan = make_plan(load_study("liang2023"), load_machine("slurm"))
    example = [
        job.spec
        for job in plan.runs.values()
        if job.spec.recipe.name in ("liang2023", "liang2023-224")
    ]
    assert len(example) == 660 - 2 * 216
    for spec in example:
        assert spec.global_batch == 16
        # 1000 steps of 16 of 50000 images up to 0.001, which stays.
        at_step = {step: learning_rate(spec, step * 16 / 50000) for step in (0, 500, 1000, 50000)}
        assert at_step == pytest.approx({0: 0, 500: 0.0005, 1000: 0.001, 50000: 0.001})


def test_published_accuracies_of_resnet50_are_those_of_the_paper_and_of_the_table() -> None:
    both, paper = (
        read_csv(CONFIG / f"references/{name}.csv") for name in ("resnet50-top1", "aach2023")
    )
    paper = [row for row in paper if row["quantity"] == "top1"]
    assert both[: len(paper)] == paper
    mlperf = [
        (
            row["global_batch"],
            row["source"].rsplit("after ", 1)[1].split()[0],
            row["value"],
            row["schedule"],
        )
        for row in both[len(paper) :]
    ]
    table = [
        (row["global_batch"], row["mean_epochs_to_0.759"], "75.9", "polynomial") for row in points()
    ]
    assert mlperf == table
