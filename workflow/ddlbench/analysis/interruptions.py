"""What an interruption took: of runs that were killed on purpose (`train/interruption.py`)."""

from __future__ import annotations

from ddlbench.analysis.record import Record
from ddlbench.core.columns import PROFILER, SHARING, Column, Values, Why

COLUMNS = (
    Column(
        "checkpoint_s",
        "float64",
        "How long training stood still for the checkpoint that an interrupted run went on from.",
        "s",
        spoiled_by=(SHARING, PROFILER),
    ),
    Column("lost_steps", "Int64", "Steps that an interrupted run had made after its checkpoint, and made again."),
    Column(
        "restart_s",
        "float64",
        "From the death of an interrupted run's ranks to training again on all of them. Its machine was still at hand: "
        "a wait for another node is not in it.",
        "s",
        spoiled_by=(SHARING, PROFILER),
    ),
)


def measures(record: Record) -> Values:
    """COLUMNS of a successful run."""
    if record.spec.interrupt_steps is None:
        return {column.name: Why("the run was not interrupted") for column in COLUMNS}
    note = record.said("ddlbench_interrupted")
    if note is None:
        return {column.name: Why("the run ended before it was to be interrupted") for column in COLUMNS}
    later = [event for event in record.events if event.key == "ddlbench_resumed" and event.time_s > note["time_s"]]
    went_on = later[0] if later else record.last["run_start"]  # without a checkpoint it began anew
    step = int(went_on.value["step"]) if later else 0
    took = note["checkpoint_s"]
    return {
        "checkpoint_s": Why("the run was killed before it had written a checkpoint") if took is None else took,
        "lost_steps": note["step"] - step,
        "restart_s": went_on.time_s - note["time_s"],
    }
