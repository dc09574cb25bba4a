"""tensorboard: scalars of event files in the program's folder, by TensorBoard's own reader.

Steps are those of the scalar whose name says it is the loss of training; times are the `wall_time` of its events.
"""

from __future__ import annotations

import re
from typing import Any

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Point, Reading, Source, UnreadError, reading

INSTALL = "pip install tensorboard==2.20.0"
EVENTS = "events.out.tfevents.*"
VALIDATION = re.compile(r"val|eval|test", re.I)


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """No lines are needed."""
    return []


def read(source: Source) -> Reading:
    """The steps. Raises UnreadError without TensorBoard, event files, or a scalar of a loss."""
    if not registry.importable("tensorboard"):
        raise UnreadError(f"TensorBoard is not installed, which reads event files: {INSTALL}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(source.newest(EVENTS).parent), size_guidance={"scalars": 0})
    events.Reload()
    tags = sorted(events.Tags()["scalars"], key=len)
    of = {
        "loss": next((tag for tag in tags if "loss" in tag.lower() and not VALIDATION.search(tag)), None),
        "lr": next((tag for tag in tags if re.search(r"(^|[/_-])(lr|learning.?rate)", tag, re.I)), None),
        "top1": next((tag for tag in tags if VALIDATION.search(tag) and re.search("acc|top.?1", tag, re.I)), None),
        "eval_loss": next((tag for tag in tags if VALIDATION.search(tag) and "loss" in tag.lower()), None),
    }
    if of["loss"] is None:
        raise UnreadError(f"its event files have no scalar of a loss, but {', '.join(tags) or 'none at all'}")
    rates = {event.step: event.value for event in events.Scalars(of["lr"])} if of["lr"] else {}
    points = [Point(e.wall_time, e.step, e.value, rates.get(e.step)) for e in events.Scalars(of["loss"])]
    seen: dict[int, Evaluation] = {}
    for name in ("top1", "eval_loss"):
        for e in events.Scalars(of[name]) if of[name] else ():
            field = {"top1": "top1", "eval_loss": "loss"}[name]
            seen[e.step] = seen.get(e.step, Evaluation(e.wall_time))._replace(**{field: e.value})
    made = reading(source, points, [seen[step] for step in sorted(seen)])
    made.remarks["scalars"] = {name: tag for name, tag in of.items() if tag}
    return made
