"""tensorboard: scalars of event files in the program's folder.

Steps are those of the scalar of the loss of training; times are the `wall_time` of its events. What
the axis counts the key `axis` says, or it shows: samples grow by multiples of the batch. A program
may write into several folders: `add_scalars` makes one per curve, a restart often one of its own. A
scalar of one name is then one curve, and one of a folder whose name says so is of validation.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from ddlbench.core.program import Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import (
    Evaluation,
    Output,
    Reading,
    StepEnd,
    UnreadError,
    as_fractions,
    reading,
)
from ddlbench.run.readings._events import Scalar, scalars
from ddlbench.run.readings._proof import MAY_BE_STEPS
from ddlbench.run.readings._step_numbers import epoch_steps

EVENTS = "*tfevents.*"
WANTED = (  # what a curve is for, whether it is of validation, what its name holds
    ("loss", False, "loss"),
    ("lr", False, r"(^|[/_-])(lr|learning.?rate)"),
    ("top1", True, r"acc|top.?1"),
    ("eval_loss", True, "loss"),
)
Curve = tuple[str, bool]  # its name, and whether it is of validation


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return nothing: no lines are needed."""
    return []


def read(source: Output) -> Reading:
    """Return the steps. Raises UnreadError without event files, a scalar of a loss, or a known
    axis.
    """
    program = source.spec.program
    assert program is not None
    curves: dict[Curve, list[Scalar]] = {}
    for path in sorted({source.newest(EVENTS), *source.files(EVENTS)}):
        below = str(path.parent.relative_to(source.folder.parent))
        for one in scalars(path):
            curves.setdefault(
                (one.tag, bool(log_text.VALIDATION.search(f"{below}/{one.tag}"))), []
            ).append(one)
    for curve in curves.values():
        curve.sort(key=lambda one: one.wall_time)
    tags = {
        name: _curve(curves, program, name, validates, pattern)
        for name, validates, pattern in WANTED
    }
    if tags["loss"] is None:
        names = ", ".join(dict.fromkeys(tag for tag, _ in curves)) or "none at all"
        raise UnreadError(
            f"its event files have no scalar for the training loss; there are: {names}"
        )
    of = {name: curves[found] if found else [] for name, found in tags.items()}
    rates = {one.step: one.value for one in of["lr"]}
    axis = program.axis or _axis([one.step for one in of["loss"]], source.spec)
    points = [
        StepEnd(o.wall_time, _step(o.step, axis, source.spec), o.value, rates.get(o.step))
        for o in of["loss"]
    ]
    seen: dict[int, Evaluation] = {}
    for name, field in (("top1", "top1"), ("eval_loss", "loss")):
        for one in of[name]:
            seen[one.step] = seen.get(one.step, Evaluation(one.wall_time))._replace(
                **{field: one.value}
            )
    evaluations = as_fractions([seen[step] for step in sorted(seen)], program.top1_in)
    evidence: dict[str, Any] = (
        {"printed_samples_per_step": float(source.spec.global_batch)} if axis == "sample" else {}
    )
    run = reading(source, points, evaluations, paused_s=[e.time_s for e in evaluations], **evidence)
    run.remarks |= {
        "scalars": {name: found[0] for name, found in tags.items() if found},
        "axis": axis,
    }
    return run


def _curve(
    curves: dict[Curve, list[Scalar]], program: Program, name: str, validates: bool, pattern: str
) -> Curve | None:
    """Return the scalar that key `columns` names, or the only one whose name says what it is; of
    losses the total goes first. Raises UnreadError where several fit.
    """
    said = dict(program.columns).get(name)
    if said is not None:
        found = next((curve for curve in curves if curve[0] == said), None)
        if found is None:
            names = ", ".join(dict.fromkeys(tag for tag, _ in curves))
            raise UnreadError(
                f"its event files have no scalar {said!r} (key columns); there are: {names}"
            )
        return found
    fit = [
        curve for curve in curves if curve[1] == validates and re.search(pattern, curve[0], re.I)
    ]
    fit = [curve for curve in fit if name != "loss" or len(curves[curve]) > 1]
    if len(fit) > 1 and name in ("loss", "eval_loss"):
        fit = [curve for curve in fit if log_text.TOTAL_LOSS.search(curve[0])] or fit
    total = [curve for curve in fit if "total" in curve[0].lower()]
    fit = total if len(fit) > 1 and len(total) == 1 else fit
    if len(fit) > 1 and name == "loss":
        names = ", ".join(curve[0] for curve in fit)
        raise UnreadError(
            f"several scalars may be the loss of training: {names}; say columns: {{loss: ...}}"
        )
    return min(fit, key=lambda curve: (len(curve[0]), curve[0]), default=None)


def _axis(steps: Sequence[int], spec: RunSpec) -> str:
    """Return what an axis counts. Raises UnreadError where it may be samples, or epochs."""
    apart = {b - a for a, b in itertools.pairwise(steps) if b > a}
    batch = spec.global_batch
    if batch > 1 and apart and all(distance % batch == 0 for distance in apart):
        most = max(apart)
        raise UnreadError(
            f"the axis of its scalars grows by {most}, {most // batch} batches of {batch}: samples?"
            f" Then say axis: sample; {MAY_BE_STEPS} axis: step"
        )
    if apart == {1} and spec.program and not spec.program.steps_per_epoch and len(steps) < 100:
        raise UnreadError(
            f"its scalars have {len(steps)} points, 1 apart: epochs? Then say axis: epoch and"
            f" steps_per_epoch; {MAY_BE_STEPS} axis: step"
        )
    return "step"


def _step(step: int, axis: str, spec: RunSpec) -> float:
    """Return the number of steps that a point of an axis says."""
    if axis == "step":
        return step
    if axis == "sample":
        return step / spec.global_batch
    assert spec.program is not None
    per_epoch = epoch_steps(spec, spec.program)
    if per_epoch is None:
        raise UnreadError(
            f"axis: {axis} needs the steps of an epoch: say steps_per_epoch, or samples_per_epoch"
        )
    return step * per_epoch / (1000 if axis == "epoch_x1000" else 1)
