"""Whether runs that are compared trained the same thing: data, weights, recipe, batch and learning
rates.
"""

import json
from dataclasses import fields
from itertools import combinations
from typing import Any

import pandas as pd

from ddlbench.analysis.together import COMPARED, SAME, of_programs, words
from ddlbench.audit import MLCOMMONS, SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import (
    differing,
    differing_frameworks,
    groups,
    ids,
    in_parentheses,
    present,
    short,
    timed,
)
from ddlbench.core import registry
from ddlbench.core.recipe import Recipe
from ddlbench.core.registry import OWN

SETTINGS = [
    field.name for field in fields(Recipe) if field.name not in ("name", "precision", "seed")
]
OF_ANY_BATCH = ("augmentation", "image_size")  # a recipe may have the others by batch


@rule(
    "error",
    "runs.images",
    "prepare the data set again and train the runs with fewer images again; of a program, read what"
    " the shorter run printed last (train.log), remove its folder, and run it again",
    f"{MLCOMMONS}, Data Set; {SC15}, rule 9",
    also=["validation_images"],
)
def same_samples(material: Material) -> Findings:
    """Check that runs that are compared train on the same number of images an epoch, and validate
    on the same number.

    A framework that sees fewer images finishes an epoch sooner; that is no speed. A program of the
    user's own has no training split that is known here: its repeats are compared, of which one may
    have ended early with exit code 0.
    """
    ours = material.runs["dataset"] == OWN
    yield from differing(
        material.runs[~ours], "images", ["dataset"], "images of the training split"
    )
    if "stopped_after" in material.runs:  # after minutes repeats have come as far as they could
        ours &= ~material.runs["stopped_after"].fillna("").astype("str").str.endswith("minutes")
    yield from differing(material.runs[ours], "images", SAME, "samples of repeats")
    if "validation_images" in material.runs:
        yield from differing(
            material.runs, "validation_images", ["dataset"], "images of the validation split"
        )


@rule(
    "error", "runs.data_sha256", "train the runs of the older data again", f"{MLCOMMONS}, Data Set"
)
def same_data(material: Material) -> Findings:
    """Check that runs that are compared read the same data: the SHA-256 of the manifest, which
    holds those of all parts, is equal.

    Data that was prepared again with another source or seed is other data, even under the same
    name. Forms (raw, tfrecord) have manifests of their own and are compared within themselves.
    """
    return differing(
        material.runs, "data_sha256", ["machine", "dataset", "form"], "digests of the data"
    )


@rule(
    "error",
    "runs.precision",
    "compare runs of one precision, or make precision an axis by giving each a recipe of its own",
    f"{TWELVE_WAYS}, numbers 4 and 7; {MLCOMMONS}, Numerics",
)
def same_precision(material: Material) -> Findings:
    """Check that runs that are compared compute in the same number format.

    A run in bf16 beside one in fp32 measures the format, not the framework.
    """
    return differing(material.runs, "precision", COMPARED, "number formats")


@rule(
    "error",
    "runs.recipe runs.global_batch",
    "train the runs of the older recipe again, or give the new recipe a name of its own",
    f"{MLCOMMONS}, Hyperparameters; {SC15}, rule 9",
    also=SETTINGS,
)
def same_recipe(material: Material) -> Findings:
    """Check that runs of one recipe and batch have the same settings: optimizer, rate, momentum,
    weight decay, label smoothing, ..., and of any batch the same augmentation and image size, which
    cost time and decide accuracy.

    Two runs may carry one recipe's name and have been trained with two of its versions.
    """
    for column in present(material.runs, SETTINGS):
        keys = COMPARED if column in OF_ANY_BATCH else [*COMPARED, "global_batch"]
        yield from differing(material.runs, column, keys, f"values of {column}")


@rule(
    "error",
    "runs.global_batch runs.workers runs.framework runs.loader",
    "give the blocks of the study the same batch_per_worker or global_batch",
    f"{TWELVE_WAYS}, number 11",
)
def same_batch(material: Material) -> Findings:
    """Check that frameworks and loaders that are compared at one number of workers share at least
    one batch size.

    With batches that have nothing in common, a difference in speed or accuracy may come of the
    batch.
    """
    for what, rows in groups(timed(material.runs), [*COMPARED, "workers"]):
        batches = {
            names: set(alike["global_batch"])
            for names, alike in rows.groupby(["framework", "loader"])
        }
        if len(batches) > 1 and not set.intersection(*batches.values()):
            parts = [
                f"{' with '.join(map(str, names))} {sorted(sizes)}"
                for names, sizes in sorted(batches.items())
            ]
            yield Finding(
                ids(rows), f"no batch size is common{in_parentheses(what)}: {'; '.join(parts)}"
            )


@rule(
    "error",
    "runs.initial_weights_sha256 runs.seed",
    "let one seed make the model on all ranks; train the deviating runs again",
    f"{MLCOMMONS}, Weight initialization; Madhyastha and Jain 2019, arXiv:1909.10447",
)
def same_initial_weights(material: Material) -> Findings:
    """Check that runs that are compared begin with the same weights: the SHA-256 of the initial
    weights is equal for equal seeds.

    Frameworks that draw their own weights begin elsewhere; with few repeats that is a difference in
    accuracy.
    """
    keys = ["dataset", "model", "image_size", "seed"]
    return differing(material.runs, "initial_weights_sha256", keys, "initial weights")


@rule(
    "warning",
    "runs.final_loss runs.framework runs.repeat",
    "compare accuracies as well as speeds; look for options that change the training, or gradients"
    " that are not averaged",
    f"{MLCOMMONS}, Reference implementations; AlgoPerf (frameworks agree before they are compared)",
)
def same_losses(material: Material) -> Findings:
    """Check that trainings that differ in the framework only end at the same loss.

    Repeats of one number have one seed, the same initial weights and the same samples. Losses that differ
    significantly, and by more than 5 percent, are of another training. It needs three pairs; with
    fewer no difference is significant.
    """
    return differing_frameworks(material.runs, "final_loss", "the last loss", 0.05)


@rule(
    "warning",
    "runs.options runs.framework runs.workers",
    "give both sides the same options, or add a variant of the other side that has them (frameworks"
    " of the study)",
    f"{TWELVE_WAYS}, number 4",
)
def same_options(material: Material) -> Findings:
    """Check that frameworks that are compared have variants with the same common options:
    `compile`, `channels_last`, ...

    A compiled model on one side only measures the compiler. Options that one framework alone has
    are its own.
    """
    members = registry.members("frameworks")
    common = sorted(
        set.intersection(*({*registry.options(name)} for name in members if registry.options(name)))
    )
    runs = timed(material.runs) if "throughput_images_per_s" in material.runs else material.runs
    runs = runs[~of_programs(runs) & runs["options"].notna()]
    for what, rows in groups(runs, [*COMPARED, "loader", "workers"]):
        sides: dict[str, set[tuple[Any, ...]]] = {}
        for framework, options in {*zip(rows["framework"], rows["options"], strict=True)}:
            given = json.loads(options)
            adapter = str(given.get("framework", framework))
            if adapter in members:
                values = {**registry.option_defaults(adapter), **given}
                sides.setdefault(adapter, set()).add(tuple(values.get(name) for name in common))
        for (left, ours), (right, theirs) in combinations(sorted(sides.items()), 2):
            if not ours & theirs:
                parts = [
                    f"{side} {_options(common, values)}"
                    for side, values in ((left, ours), (right, theirs))
                ]
                yield Finding(
                    ids(rows),
                    f"no variants have the same options{in_parentheses(what)}: {'; '.join(parts)}",
                )


def _options(names: list[str], values: set[tuple[Any, ...]]) -> str:
    """Format the options that variants of a framework have, as `compile=true,
    channels_last=false`.
    """
    each_one = (
        ", ".join(f"{name}={json.dumps(value)}" for name, value in zip(names, of, strict=True))
        for of in values
    )
    return " or ".join(sorted(each_one))


@rule(
    "error",
    "runs.flops_per_image",
    "find out which run's model differs, and make it again",
    "Chowdhery et al. 2022, arXiv:2204.02311, section 4.1",
)
def same_operations(material: Material) -> Findings:
    """Check that a model costs the same operations per image in all runs that are compared.

    Otherwise two runs train two models under one name, and their utilisation counts something else.
    """
    return differing(
        material.runs, "flops_per_image", ["dataset", "model", "image_size"], "operations per image"
    )


@rule(
    "error",
    "epochs.lr epochs.lr_end epochs.epoch runs.global_batch",
    "let the recipe own the learning rate and train the deviating runs again",
    f"{MLCOMMONS}, Hyperparameters; seen in itwinai's Horovod adapter",
)
def same_learning_rates(material: Material) -> Findings:
    """Check that runs that are compared at one batch have the same learning rate in each epoch, at
    its first and at its last step.

    Some adapters multiply the rate by the number of workers in silence; accuracies then compare two
    recipes.
    """
    columns = present(material.runs, [*COMPARED, "global_batch", "epochs", "base_lr", "base_batch"])
    rates = material["epochs"].merge(material.runs[["run", *columns]], on="run")
    for values, alike in rates.groupby(columns, dropna=False):
        ends = alike.groupby("epoch", dropna=False)[["lr", "lr_end"]].agg(["min", "max"])
        low, high = (pd.DataFrame(ends.xs(kind, axis=1, level=1)) for kind in ("min", "max"))
        bad = ends.index[
            (high - low).max(axis=1) > 1e-6 * high.max(axis=1)
        ]  # rates are float64 in all records
        if not len(bad):
            continue
        first = alike[alike["epoch"] == bad[0]]
        least, most = (
            short(f(first["lr"].tolist() + first["lr_end"].tolist())) for f in (min, max)
        )
        deviating = first.iloc[
            (first["lr_end"] - first["lr_end"].median()).abs().argsort(kind="stable")[::-1]
        ]
        text = (
            f"learning rates of epoch {bad[0]} differ{in_parentheses(words(columns, values))}: from {least} to"
            f" {most}"
        )
        yield Finding(ids(deviating), f"{text}, in {len(bad)} epochs")
