"""Numbers that the record says as they are: counts of the run, of the model's operations, and what an audit asks."""

from __future__ import annotations

from ddlbench.analysis.record import Record
from ddlbench.core.columns import UNKNOWN, Column, Values, Why
from ddlbench.core.record import beside_s, train_s

COLUMNS = (
    Column(
        "flops_per_image",
        "Int64",
        "Operations of a forward and a backward pass on one image (`train/models.py`).",
        "operations",
    ),
    Column("skipped_steps", "Int64", "Steps whose update was left out because fp16 overflowed."),
    Column("steps", "Int64", "Steps that were trained."),
    Column("images_seen", "Int64", "Images that were trained on, over all ranks and epochs."),
    Column("evaluations", "Int64", "Validations that gave an accuracy."),
    Column("validation_images", "Int64", "Images of the validation split."),
    Column("validated_images", "Int64", "Images that an accuracy rests on; the fewest of any validation."),
    Column("started_s", "float64", "When training began: seconds since 1970.", "s"),
    Column(
        "run_s",
        "float64",
        "The whole run, from its first process to its last event, without interruptions: `train_s`, and what the run "
        "needed to begin and to end. It is what the plan counts.",
        "s",
    ),
    Column(
        "data_before_clock_s",
        "float64",
        "How long before the clock started the loaders were asked for images, so that they had begun to read.",
        "s",
    ),
    Column("clock_resolution_s", "float64", "The smallest time that the clock of the steps tells apart.", "s"),
    Column(
        "data_cached_share",
        "float64",
        "Share of the data that was in the memory of the computer that started the ranks, before the run; from a "
        "sample of files. Null where the system does not tell.",
    ),
    Column("resumes", "Int64", "How often the run went on from a checkpoint."),
)


def measures(record: Record) -> Values:
    """COLUMNS of a successful run."""
    values: Values = {"resumes": sum(event.key == "ddlbench_resumed" for event in record.events)}
    for name in ("flops_per_image", "skipped_steps"):
        value = record.said(f"ddlbench_{name}")
        values[name] = Why(UNKNOWN) if value is None else value
    values |= {"steps": int(record.steps["step"].nunique()), "images_seen": int(record.steps["images"].sum())}
    stats = [event.value or {} for event in record.events if event.key == "tracked_stats"]
    seen = [of_epoch["seen"] for of_epoch in stats if of_epoch.get("correct") is not None]
    values["evaluations"] = sum(event.key == "eval_accuracy" for event in record.events)
    values["validated_images"] = int(min(seen)) if seen else None
    values["validation_images"] = record.said("eval_samples")
    values["started_s"] = record.last["run_start"].time_s
    values["run_s"] = train_s(record.last) + beside_s(record.last, record.events[0].time_s)
    for name in ("data_before_clock_s", "clock_resolution_s"):
        values[name] = record.said(f"ddlbench_{name}")
    values["data_cached_share"] = record.said("ddlbench_facts", {}).get("data_cached_share")
    if record.spec.reads is None:
        values["data_cached_share"] = Why(f"loader {record.spec.loader} reads nothing")
    return values
