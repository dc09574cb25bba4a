"""What checkpoints of a run take on the disk while it trains, for the plan (`bill.py`). Without torch.

`train/checkpoint.py` writes them: what all ranks hold alike once, its own for each rank. The newest is kept, so two
are there while the next is written. They go when the run has ended well; one that was stopped or failed keeps its last.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from ddlbench.core import registry
from ddlbench.core.files import read_csv
from ddlbench.core.recipe import numbers_kept
from ddlbench.core.spec import RunSpec
from ddlbench.plan.estimate import RecordedTime
from ddlbench.settings.config import CONFIG

AT_ONCE = 2
NUMBER_BYTES = 4  # weights, buffers and the optimizer's state are float32, in every precision
# A file has some 300 bytes around each tensor. A rank's own: random states, the loader's place, losses of an epoch of
# 1252 steps (24 KB in all), and what is around a hundred of batch norm's tensors. Rank 0: around all others.
RANK_BYTES, FIRST_RANK_BYTES = 60_000, 200_000
SIZES = CONFIG / "references" / "model-sizes.csv"


class Size(NamedTuple):
    """Numbers in a model: those that are trained, and others, such as batch norm's means, which ranks have each."""

    parameters: float
    buffers: float


class Room(NamedTuple):
    """The most that checkpoints of a run take at a time."""

    bytes: float
    inodes: int


def room(spec: RunSpec, records: Iterable[RecordedTime] = ()) -> Room | None:
    """Room for a run's checkpoints; None if nobody knows how large the model is: neither SIZES nor a record."""
    size = _size(spec, records)
    if size is None:
        return None
    states = numbers_kept(spec.recipe.optimizer, spec.recipe.momentum)
    beside: float = registry.member("frameworks", spec.adapter).saved_beside(spec)
    copies = 1 + states + beside
    rank_bytes = size.buffers * NUMBER_BYTES + RANK_BYTES
    whole = copies * size.parameters * NUMBER_BYTES + FIRST_RANK_BYTES + spec.workers * rank_bytes
    return Room(AT_ONCE * whole, AT_ONCE * (spec.workers + 2))  # a part per rank, the summary, the folder


def _size(spec: RunSpec, records: Iterable[RecordedTime]) -> Size | None:
    published = sizes()
    size = published.get((spec.model, spec.recipe.image_size)) or published.get((spec.model, None))
    if size is not None:
        return size
    # A rank that has all of the model holds more than one that has a shard.
    held = [r.held_bytes for r in records if _same(r, spec)]
    most = max((bytes_ for bytes_ in held if bytes_), default=None)
    return None if most is None else Size(most / NUMBER_BYTES, 0.0)


def _same(record: RecordedTime, spec: RunSpec) -> bool:
    recipe = record.spec.get("recipe") or {}
    return (record.spec.get("model"), recipe.get("image_size")) == (spec.model, spec.recipe.image_size)


@cache
def sizes() -> dict[tuple[str, int | None], Size]:
    """Sizes by model and image size, None where any image size gives the same; with 1000 classes, so not too small."""
    return {
        (row["model"], int(row["image_size"] or 0) or None): Size(float(row["parameters"]), float(row["buffers"]))
        for row in read_csv(SIZES)
    }
