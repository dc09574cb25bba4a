"""Table `operations`: what DeepSpeed's FLOPS profiler counts of each module, beside PyTorch's own
counter.

Runs with option `flops_profiler` leave `flops-deepspeed.json`, what DeepSpeed counts of the forward
pass of one step (`train/frameworks/_deepspeed_flops.py`), and `flops.json`, what PyTorch's
FlopCounterMode counts of the same model for one picture (`train/models.py`). Published counts of
whole models are in `config/references/operations.csv`. Everything is made one picture's: DeepSpeed
counts a batch. All counts here take a multiplication and an addition as two operations; DeepSpeed
and most publications count pairs of them (MACs), which are doubled.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddlbench.analysis.published_operations import read_published
from ddlbench.analysis.record import Record
from ddlbench.analysis.sheets import Sheet
from ddlbench.core.columns import Column, Why
from ddlbench.core.files import read_bytes
from ddlbench.core.record import FLOPS, FLOPS_COUNTED
from ddlbench.core.spec import RunSpec

COLUMNS = (
    Column("run", "str", "The run."),
    Column("model", "str", "Its model."),
    Column("image_size", "Int64", "Pixels on a side of its pictures."),
    Column("framework", "str", "Its framework, or a variant of one."),
    Column("module", "str", "Place in the model; `(model)` is the whole of it."),
    Column("kind", "str", "The module's class."),
    Column("depth", "Int64", "How deep it lies: 0 is the whole model."),
    Column("parameters", "float64", "Its parameters, as far as the rank holds them."),
    Column(
        "deepspeed_flops_per_image",
        "float64",
        "Operations of the forward pass over one picture by DeepSpeed's profiler: twice its"
        " multiply-adds.",
    ),
    Column("torch_flops_per_image", "float64", "The same by PyTorch's FlopCounterMode."),
    Column(
        "published_flops_per_image",
        "float64",
        "The same as published, of whole models at the published size.",
    ),
    Column("published_by", "str", "Who published it."),
    Column(
        "forward_s",
        "float64",
        "Time of the module in the profiled forward pass, with its parts, for all pictures of the"
        " pass.",
        "s",
    ),
)
WHOLE = "(model)"


def rows(
    profile: Mapping[str, Any], counted: Mapping[str, float], spec: RunSpec
) -> list[dict[str, Any]]:
    """Return one row per module of what DeepSpeed counts, without published values.

    `counted` is PyTorch's count by place, "" for the model.

    Raises KeyError, TypeError or ValueError for what is no such count.
    """
    about = {
        "run": spec.id,
        "model": spec.model,
        "image_size": spec.recipe.image_size,
        "framework": spec.framework,
    }
    images = int(profile["images"])
    if images < 1:
        raise ValueError(f"is for {images} images; allowed: at least 1")
    table = []
    for module in profile["modules"]:
        place = str(module["module"])
        counts = {name: float(module[name]) for name in ("parameters", "macs", "forward_s")}
        if not all(0 <= count < math.inf for count in counts.values()):
            raise ValueError(f"has counts of module {place or WHOLE} that are impossible")
        table.append(
            about
            | {
                "module": place or WHOLE,
                "kind": str(module["kind"]),
                "depth": len(place.split(".")) if place else 0,
            }
            | {
                "parameters": counts["parameters"],
                "deepspeed_flops_per_image": 2 * counts["macs"] / images,
            }
            # PyTorch's counter names only modules in which it counted something.
            | {"torch_flops_per_image": counted.get(place, 0.0)}
            | {
                "published_flops_per_image": None,
                "published_by": None,
                "forward_s": counts["forward_s"],
            }
        )
    return table


def of_run(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """Return the rows of a run with a profile, none for a run without, or the reason why its
    profile gives none.
    """
    if not (folder / FLOPS).exists():
        return []
    try:
        counted = json.loads(read_bytes(folder / FLOPS_COUNTED))
        return rows(json.loads(read_bytes(folder / FLOPS)), counted, spec)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        return Why(f"{FLOPS} or {FLOPS_COUNTED} cannot be read: {error!r}")


def add_published(
    table: Iterable[dict[str, Any]], published: Mapping[tuple[str, int], tuple[float, str]]
) -> list[dict[str, Any]]:
    """Add the published operations of complete models to the rows."""
    nothing = (None, None)
    both = []
    for row in table:
        flops, by = (
            published.get((row["model"], row["image_size"]), nothing)
            if row["module"] == WHOLE
            else nothing
        )
        both.append(row | {"published_flops_per_image": flops, "published_by": by})
    return both


def _of_record(record: Record) -> list[dict[str, Any]] | Why:
    return of_run(record.folder, record.spec)


SHEET = Sheet(
    "One row per module of each run with DeepSpeed's FLOPS profiler: its counts beside PyTorch's"
    " own counter and, of whole models, published ones (`config/references/operations.csv`).",
    COLUMNS,
    place=75,
    of_record=_of_record,
    of_study=lambda rows, _: add_published(rows, read_published()),
)
