"""Accuracies and losses: whether they can be true, and whether they belong to the speeds beside
them.
"""

import math

import numpy as np
import pandas as pd

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import MLCOMMONS, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import finding_per_row, groups, ids, in_parentheses, present, timed
from ddlbench.core import registry


@rule(
    "error",
    "runs.validated_images runs.validation_images",
    "sum correct answers over all batches and ranks",
    f"the training script of Aach et al. 2023 prints the last batch's accuracy; {MLCOMMONS},"
    " Quality measure",
)
def whole_validation_set(material: Material) -> Findings:
    """Check that an accuracy rests on all images of the validation split.

    Scripts that print the accuracy of the last batch, or of one rank, say little: of 64 images one
    is 1.6 percent.
    """
    runs = material.runs
    says = "accuracy of {validated_images} images; the validation split has {validation_images}"
    return finding_per_row(runs, runs["validated_images"] < runs["validation_images"], says)


@rule(
    "error",
    "runs.final_top1 runs.final_top5 runs.validated_images",
    "find out which of the two the training counts; the other one is not measured",
    "seen in training scripts that print one number twice",
    {"final_top1": 0.5, "final_top5": 0.5},
    ["best_top1", "best_top5"],
)
def top1_is_not_top5(material: Material) -> Findings:
    """Check that top-1 and top-5 accuracy are two numbers: of 20 pictures that top-1 misses, one is
    among the next four.

    Where they are equal, one is the other under a second name.
    """
    runs, least = material.runs, 20
    bad = pd.Series(False, runs.index)
    for top1, top5 in (("final_top1", "final_top5"), ("best_top1", "best_top5")):
        if {top1, top5} <= {*runs}:
            missed = (1 - runs[top1].astype("float64")) * runs["validated_images"].astype("float64")
            bad |= (runs[top1] > 0) & (runs[top1] == runs[top5]) & (missed >= least)
    return finding_per_row(
        runs, bad, "top-1 is {final_top1} and top-5 is {final_top5}, of {validated_images} images"
    )


@rule(
    "note",
    "runs.validation",
    "name the validation set as others do (val, valid, validation), or state with accuracies how it"
    " was split",
    "seen in public data sets, whose shards say train and validation in the middle of their names",
)
def validation_set_of_its_own(material: Material) -> Findings:
    """Check that pictures for validation are a set of their own, and were not cut from those for
    training.

    Such an accuracy is fair among the runs of a study, and not comparable with published ones:
    fewer pictures were trained on, and other ones validated.
    """
    runs = material.runs
    for dataset, rows in groups(runs[runs["validation"] != "its own"], ["dataset"]):
        how = ", ".join(sorted({*rows["validation"]}))
        yield Finding(
            ids(rows),
            f"validation pictures were split off the training pictures{in_parentheses(dataset)}: {how}",
        )


@rule(
    "warning",
    "runs.final_loss epochs.loss epochs.epoch",
    "lower the learning rate or lengthen the warm-up",
    f"{TWELVE_WAYS}, number 1",
)
def diverged(material: Material) -> Findings:
    """Check that a run's loss is finite, lower at its end than in its first epoch, and lower than
    that of guessing.

    A run that diverged says nothing about speed that anybody wants. Giving each of C classes the
    same probability has a loss of ln(C), with and without label smoothing. This is not asked of
    runs that train only a part of their epochs.
    """
    first = material["epochs"].query("epoch == 1").set_index("run")["loss"].rename("first_loss")
    runs = material.runs.join(first, on="run")
    learns = runs["final_top1"].notna() if "final_top1" in runs else pd.Series(True, runs.index)
    runs["guessing"] = runs["dataset"].map(_loss_of_guessing) if "dataset" in runs else math.nan
    whole = runs["epochs"] >= runs["of_epochs"] if {"epochs", "of_epochs"} <= {*runs} else True
    guesses = learns & whole & (runs["final_loss"] > 0.99 * runs["guessing"])  # batches scatter
    worse = learns & ~guesses & (runs["final_loss"] > runs["first_loss"])
    yield from finding_per_row(
        runs, guesses, "loss {final_loss} at the end; guessing gives {guessing}"
    )
    yield from finding_per_row(
        runs, worse, "loss {final_loss} at the end, {first_loss} in the first epoch"
    )


def _loss_of_guessing(dataset: str) -> float:
    """Return the loss of guessing; NaN for a data set that is not one of ours."""
    if dataset not in registry.members("datasets"):
        return math.nan
    return math.log(registry.member("datasets", dataset).NUM_CLASSES)


@rule(
    "error",
    "runs.model runs.dataset runs.global_batch epochs.top1 convergence.global_batch",
    "look for validation pictures among the training pictures, and check how epochs are counted",
    f"{MLCOMMONS}, Reference Convergence Points",
)
def convergence(material: Material) -> Findings:
    """Check that ResNet-50 on ImageNet does not reach 75.9 percent in fewer epochs than MLPerf's
    reference convergence points allow.

    A run that converges earlier than the tolerance allows has other data or a leak from the
    validation set. Between two batches of one recipe the reference is interpolated; between two
    recipes it is the fewer epochs of the two. Logs of the open division train with recipes of their
    own.
    """
    points = material["convergence"]
    runs, logs = (
        material.runs,
        material.tables.get("submissions", pd.DataFrame(columns=["run", "division"])),
    )
    closed = runs["run"].isin(logs.loc[logs["division"] == "closed", "run"]) & (
        runs["model"] == "resnet"
    )
    runs = runs[closed | (runs["model"] == "resnet50") & (runs["dataset"] == "imagenet")]
    reached = (
        material["epochs"][material["epochs"]["top1"] >= 0.759]
        .groupby("run")["epoch"]
        .min()
        .rename("reached")
    )
    runs = runs.join(reached, on="run", how="inner")
    runs["expected"] = [_expected_epochs(points, float(batch)) for batch in runs["global_batch"]]
    says = (
        "top-1 of 75.9 % after {reached} epochs at batch {global_batch}; the reference needs"
        " {expected}"
    )
    return finding_per_row(runs, runs["reached"] < 0.9 * runs["expected"], says)


def _expected_epochs(points: pd.DataFrame, batch: float) -> float:
    """Return the epochs of the reference at a batch; for a smaller or larger one than all, those of
    the nearest.
    """
    recipe = present(points, ["origin", "optimizer", "momentum", "weight_decay"])
    epochs = points.groupby("global_batch")["mean_epochs_to_0.759"].mean().sort_index()
    below, above = epochs.index[epochs.index <= batch], epochs.index[epochs.index >= batch]
    if not len(below) or not len(above):
        return float(epochs.iloc[-1] if len(below) else epochs.iloc[0])
    ends = points[points["global_batch"].isin([below[-1], above[0]])]
    if recipe and len(ends.drop_duplicates(recipe)) > 1:
        return float(min(epochs[below[-1]], epochs[above[0]]))
    return float(np.interp(batch, epochs.index, epochs))


@rule(
    "note",
    "runs.throughput_images_per_s runs.global_batch runs.model",
    "train the largest batch to its end and show its accuracy",
    f"{TWELVE_WAYS}, numbers 1 and 2",
)
def speed_without_accuracy(material: Material) -> Findings:
    """Check that, where a larger batch makes training faster, the accuracy at that batch is known,
    too.

    Large batches cost accuracy; a speed at which nothing is learned is worth nothing.
    """
    for what, rows in groups(material.runs, ["dataset", "model"]):
        speeds = timed(rows)
        highest = (
            rows.loc[rows["final_top1"].notna(), "global_batch"].max()
            if "final_top1" in rows
            else math.nan
        )
        largest = speeds["global_batch"].max()
        if speeds["global_batch"].nunique() > 1 and not highest >= largest:
            text = f"accuracies up to batch {highest:g}" if highest > 0 else "no accuracy"
            yield Finding(
                ids(speeds),
                f"speeds are measured up to batch {largest}, and {text}{in_parentheses(what)}",
            )


@rule(
    "warning",
    "runs.model runs.recipe",
    "train the timed recipe to its end",
    f"{TWELVE_WAYS}, number 8",
    also=["final_top1"],
)
def accuracy_of_other_settings(material: Material) -> Findings:
    """Check that speed and accuracy of a model come from the same settings.

    A fast recipe beside the accuracy of a careful one is a model that nobody trained.
    """
    if not {"throughput_images_per_s", "final_top1"} <= {*material.runs}:
        return
    for what, rows in groups(material.runs, ["dataset", "model"]):
        fast, right = (
            set(timed(rows)["recipe"]),
            set(rows.loc[rows["final_top1"].notna(), "recipe"]),
        )
        if fast and right and not fast & right:
            text = (
                f"speeds are of recipe {', '.join(sorted(fast))}, accuracies of"
                f" {', '.join(sorted(right))}"
            )
            yield Finding(ids(rows), f"{text}{in_parentheses(what)}")


@rule(
    "note",
    "runs.final_top1 runs.workers runs.global_batch",
    "state the batch with the number of workers, or train the small number of workers at the large"
    " batch, too",
    f"{TWELVE_WAYS}, numbers 1 and 11",
)
def batch_confounded(material: Material) -> Findings:
    """Check whether the batch grows with the workers: a difference in accuracy may then come from
    either.

    Weak scaling is drawn over workers; its accuracy is that of the batch.
    """
    for what, rows in groups(material.runs, COMPARED):
        pairs = rows[["workers", "global_batch"]].drop_duplicates()
        if len(pairs) > 1 and pairs["workers"].is_unique and pairs["global_batch"].is_unique:
            parts = [f"{b} on {w}" for w, b in sorted(pairs.itertuples(index=False, name=None))]
            yield Finding(
                ids(rows),
                f"accuracies of batch {', '.join(parts)} workers{in_parentheses(what)}: batch and workers"
                " change together",
            )
