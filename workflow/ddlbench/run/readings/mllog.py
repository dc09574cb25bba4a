"""mllog: MLPerf's log lines, printed by the program or in a file of its folder.

Progress is what events say of it: `step_num`, or `samples_count` in samples. Their own `time_ms` is when it was.
"""

import re
from pathlib import Path

from ddlbench.core.record import Event, events, read_log
from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Output, Reading, StepEnd, UnreadError, reading

MARK = re.compile(":::MLL")
LOSSES = ("train_loss", "loss")


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """MLPerf's lines."""
    return [MARK]


def read(source: Output) -> Reading:
    """The steps between marks of progress. Raises UnreadError if fewer than two events say how far training was."""
    log = list(events(line.text for line in source.lines if MARK.search(line.text)))
    for path in () if log else sorted(source.folder.rglob("*")):
        if path.is_file() and _is_text(path):
            log += read_log(path)
    batches = (e.value for e in log if e.key == "global_batch_size")
    batch = next((batch for batch in batches if isinstance(batch, int) and batch > 0), source.spec.global_batch)
    points = [point for event in log if (point := _point(event, batch))]
    if not points:
        raise UnreadError(f"{len(log)} MLPerf log lines, and none with step_num or samples_count in its metadata")
    scores = [(event.time_s, _accuracy(event.value)) for event in log if event.key == "eval_accuracy"]
    evaluations = [Evaluation(at_s, top1) for at_s, top1 in scores if top1 is not None]
    return reading(source, sorted(points, key=lambda point: point[:2]), evaluations)


def _is_text(path: Path) -> bool:
    """Whether it may be a log: checkpoints of many gigabytes may lie beside it."""
    with path.open("rb") as file:
        return b"\0" not in file.read(1 << 16)


def _point(event: Event, batch: int) -> StepEnd | None:
    """What an event says of progress, None if nothing."""
    loss = event.value if event.key in LOSSES and isinstance(event.value, int | float) else None
    if event.key == "tracked_stats" and isinstance(event.value, dict):
        loss = next((event.value[name] for name in LOSSES if name in event.value), None)
    if isinstance(step := event.metadata.get("step_num"), int):
        return StepEnd(event.time_s, step, loss)
    if isinstance(samples := event.metadata.get("samples_count"), int):
        return StepEnd(event.time_s, samples // batch, loss)
    return None


def _accuracy(value: object) -> float | None:
    value = value.get("accuracy") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
