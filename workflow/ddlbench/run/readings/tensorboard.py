"""tensorboard: scalars of event files in the program's folder, by TensorBoard's own reader.

Steps are those of the scalar whose name says it is the loss of training; times are the `wall_time` of its events. A
program may write into several folders: `add_scalars` makes one per curve, a restart often one of its own. A scalar of
one name is then one curve, and one of a folder whose name says so is of validation.
"""

import re
from typing import Any

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Output, Reading, StepEnd, UnreadError, reading

INSTALL = "pip install tensorboard==2.21.0"
EVENTS = "events.out.tfevents.*"
WANTED = (  # what a curve is for, whether it is of validation, what its name holds
    ("loss", False, "loss"),
    ("lr", False, r"(^|[/_-])(lr|learning.?rate)"),
    ("top1", True, r"acc|top.?1"),
    ("eval_loss", True, "loss"),
)
VALIDATION = re.compile(r"(?<![a-z])(val|eval|test)", re.I)


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """No lines are needed."""
    return []


def read(source: Output) -> Reading:
    """The steps. Raises UnreadError without TensorBoard, event files, or a scalar of a loss."""
    if not registry.importable("tensorboard"):
        raise UnreadError(f"TensorBoard is not installed, which reads event files: {INSTALL}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[tuple[str, bool], list[Any]] = {}  # by name, and whether it is of validation
    for folder in sorted({path.parent for path in [source.newest(EVENTS), *source.folder.rglob(EVENTS)]}):
        events: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        below = str(folder.relative_to(source.folder))
        for tag in events.Tags()["scalars"]:
            found.setdefault((tag, bool(VALIDATION.search(f"{below}/{tag}"))), []).extend(events.Scalars(tag))
    shortest = sorted(found, key=lambda name: (len(name[0]), name[0]))
    curves = {name: sorted(found[name], key=lambda event: event.wall_time) for name in shortest}
    tags = {
        name: next((curve for curve in curves if curve[1] == validates and re.search(pattern, curve[0], re.I)), None)
        for name, validates, pattern in WANTED
    }
    if tags["loss"] is None:
        names = ", ".join(dict.fromkeys(tag for tag, _ in curves)) or "none at all"
        raise UnreadError(f"its event files have no scalar of a loss of training, but {names}")
    events_of = {name: curves[curve] if curve else [] for name, curve in tags.items()}
    rates = {event.step: event.value for event in events_of["lr"]}
    points = [StepEnd(e.wall_time, e.step, e.value, rates.get(e.step)) for e in events_of["loss"]]
    seen: dict[int, Evaluation] = {}
    for name, field in (("top1", "top1"), ("eval_loss", "loss")):
        for e in events_of[name]:
            seen[e.step] = seen.get(e.step, Evaluation(e.wall_time))._replace(**{field: e.value})
    run = reading(source, points, [seen[step] for step in sorted(seen)])
    run.remarks["scalars"] = {name: curve[0] for name, curve in tags.items() if curve}
    return run
