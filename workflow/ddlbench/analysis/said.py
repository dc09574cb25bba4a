"""Numbers that the record says as they are: counts of the run, and of the model's operations."""

from __future__ import annotations

from ddlbench.analysis.read import Record
from ddlbench.columns import UNKNOWN, Column, Values, Why

COLUMNS = (
    Column(
        "flops_per_image",
        "Int64",
        "Operations of a forward and a backward pass on one image (`rank/models.py`).",
        "operations",
    ),
    Column("skipped_steps", "Int64", "Steps whose update was left out because fp16 overflowed."),
    Column("resumes", "Int64", "How often the run went on from a checkpoint."),
)


def measures(record: Record) -> Values:
    """COLUMNS of a successful run."""
    values: Values = {"resumes": sum(event.key == "ddlbench_resumed" for event in record.events)}
    for name in ("flops_per_image", "skipped_steps"):
        value = record.said(f"ddlbench_{name}")
        values[name] = Why(UNKNOWN) if value is None else value
    return values
