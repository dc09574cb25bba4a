"""Series of records to compute from: ours along one batch per worker, those of others with the batch that they had."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import settings, telling
from ddlbench.analysis.prediction import Measured, _series
from ddlbench.core.roles import AXIS, SETTING

# What series share but for a change.
NAMED = (*together.settings(AXIS, SETTING, without=["of_epochs"]), "precision")


@dataclass(frozen=True)
class Series:
    """Points of training alike in all but the number of workers. `of` has the values of NAMED, None where unknown.

    `points` are rows of `analysis/scaling.py`; `images` of an epoch, `epochs` of the whole training; `gradients_bytes`
    and `backward_share` (of the computing of a step) are of its runs, None where no record says it. `apart` are the
    settings that its name says, because the series beside it differ in them.
    """

    of: dict[str, Any]
    measured: Measured
    points: tuple[dict[str, Any], ...]
    images: float
    epochs: int
    gradients_bytes: float | None
    backward_share: float | None
    apart: tuple[str, ...] = ()

    @property
    def batches(self) -> dict[int, float]:
        """Images per step of one worker, by measured worker count."""
        return dict(zip(self.measured.workers, self.measured.batch_per_worker, strict=True))

    @property
    def batch(self) -> float:
        """Images per step of one worker at the largest measured count, which larger counts are computed for."""
        return self.measured.batch_per_worker[-1]

    @property
    def name(self) -> str:
        """In a few words."""
        keys = ("model", "framework", "loader", "precision")
        words = [*dict.fromkeys(self.of[key] for key in keys if self.of[key]), *self.apart]
        if not self.of["loader"]:  # of others' records the machine tells series apart
            words.append(str(self.of["machine"]))
        batches = sorted(set(self.measured.batch_per_worker))
        span = " to ".join(f"{batch:g}" for batch in dict.fromkeys((batches[0], batches[-1])))
        return f"{', '.join(map(str, words))}, batch {span} per worker"


def series(runs: pd.DataFrame, workers_per_node: int | None) -> list[Series]:
    """All series of weak scaling in `runs`, the table of `collect`; of others' records all, each with its batches.

    `workers_per_node` is the machine's; others' records say theirs. Of many, first those with the largest count.
    """
    found = list(_series.lines(runs))
    differ = [name for name in telling(pd.concat([line.points for line in found])) if name != "model"] if found else []
    made = [one for line in found if (one := _one(line, differ, workers_per_node))]
    return sorted(made, key=lambda one: (-one.measured.workers[-1], -len(one.measured.workers), one.name))


def _one(line: _series.Line, differ: Sequence[str], workers_per_node: int | None) -> Series | None:
    """None of strong scaling, where the batch of a worker shrinks, and of others' records without their batch."""
    batches = line.batches
    if pd.notna(line.first["global_batch"]) or batches is None:
        return None
    own = "records" not in line.runs or line.runs["records"].fillna("ours").eq("ours").all()
    computing, backward = _median(line.runs, "compute_s"), _median(line.runs, "backward_s")
    return Series(
        of={key: _known(line.runs, key) for key in NAMED} | {"loader": _known(line.points, "named")},
        measured=line.measured(line.node(workers_per_node), batches),
        points=tuple({str(key): value for key, value in row.items()} for row in line.points.to_dict("records")),
        images=line.images,
        epochs=int(_median(line.runs, "of_epochs") or 1),
        gradients_bytes=_median(line.runs, "gradients_bytes"),
        backward_share=backward / computing if backward and computing else None,
        apart=tuple(settings(line.first.to_dict(), differ)) if own else (),
    )


def _known(rows: pd.DataFrame, key: str) -> Any:
    """What all of the rows have in a column, None where that is null or the column is missing."""
    return None if key not in rows or pd.isna(rows[key].iloc[0]) else rows[key].iloc[0]


def _median(runs: pd.DataFrame, column: str) -> float | None:
    value = pd.to_numeric(runs[column], errors="coerce").median() if column in runs else float("nan")
    return None if pd.isna(value) else float(value)
