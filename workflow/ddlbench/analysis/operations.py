"""Tables `operations` and `messages`, of what DeepSpeed counts: operations of each module by its FLOPS profiler, beside
PyTorch's own counter, and what its ranks sent each other, by operation and size of the message.

Runs with option `flops_profiler` leave `flops-deepspeed.json`, what DeepSpeed counts of the forward pass of one step
(`train/frameworks/_deepspeed_flops.py`), and `flops.json`, what PyTorch's FlopCounterMode counts of the same model for
one picture (`train/models.py`). Published counts of whole models are in `config/references/operations.csv`. Everything
is made one picture's: DeepSpeed counts a batch. All counts here take a multiplication and an addition as two
operations; DeepSpeed and most publications count pairs of them (MACs), which are doubled.

Runs with option `comms_logger` leave `comms.txt`, what rank 0 logged since the run last started. Sizes are those that
DeepSpeed was asked to send, rounded as it writes them, and not bytes on a network: headers are not in them, nor what an
all-reduce sends twice. Its times are left out: DeepSpeed 0.19.6 writes for each message the time of all messages of
that operation so far (its timer is read without a reset), and sums these sums. Bandwidths come of the same times.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddlbench.core.columns import Column, Why
from ddlbench.core.files import read_csv
from ddlbench.core.record import COMMS, FLOPS, FLOPS_COUNTED
from ddlbench.core.spec import RunSpec
from ddlbench.settings.config import CONFIG

PUBLISHED = CONFIG / "references" / "operations.csv"
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
        "Operations of the forward pass over one picture by DeepSpeed's profiler: twice its multiply-adds.",
    ),
    Column("torch_flops_per_image", "float64", "The same by PyTorch's FlopCounterMode."),
    Column("published_flops_per_image", "float64", "The same as published, of whole models at the published size."),
    Column("published_by", "str", "Who published it."),
    Column(
        "forward_s",
        "float64",
        "Time of the module in the profiled forward pass, with its parts, for all pictures of the pass.",
        "s",
    ),
)
MESSAGES = (
    Column("run", "str", "The run."),
    Column("model", "str", "Its model."),
    Column("framework", "str", "Its framework, or a variant of one."),
    Column("workers", "Int64", "Its ranks."),
    Column("operation", "str", "What the message was: `all_reduce`, `broadcast`, ..."),
    Column("message_bytes", "float64", "Size of one message, rounded as DeepSpeed writes it.", "bytes"),
    Column("messages", "Int64", "How many of this size rank 0 sent since the run last started."),
    Column("bytes", "float64", "All of them together.", "bytes"),
)
WHOLE = "(model)"
HEAD = "Comm. Op"
UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
_SIZE = re.compile(r"^\s+([0-9.]+) ?([KMGTP]?B)\s+(\d+)(?:\s+[0-9.e+-]+){4}\s*$")
_OPERATION = re.compile(r"^\w+$")


def rows(profile: Mapping[str, Any], counted: Mapping[str, float], spec: RunSpec) -> list[dict[str, Any]]:
    """One row per module of what DeepSpeed counts, without what was published. `counted` is PyTorch's count by place,
    "" for the model.

    Raises KeyError, TypeError or ValueError for what is no such count.
    """
    about = {"run": spec.id, "model": spec.model, "image_size": spec.recipe.image_size, "framework": spec.framework}
    images = int(profile["images"])
    if images < 1:
        raise ValueError(f"is about {images} images")
    table = []
    for module in profile["modules"]:
        place = str(module["module"])
        counts = {name: float(module[name]) for name in ("parameters", "macs", "forward_s")}
        if not all(0 <= count < math.inf for count in counts.values()):
            raise ValueError(f"has counts of module {place or WHOLE} that cannot be")
        table.append(
            about
            | {"module": place or WHOLE, "kind": str(module["kind"]), "depth": len(place.split(".")) if place else 0}
            | {"parameters": counts["parameters"], "deepspeed_flops_per_image": 2 * counts["macs"] / images}
            # PyTorch's counter names only modules in which it counted something.
            | {"torch_flops_per_image": counted.get(place, 0.0)}
            | {"published_flops_per_image": None, "published_by": None, "forward_s": counts["forward_s"]}
        )
    return table


def of_run(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """The rows of a run with a profile, none of a run without, or the reason why its profile gives none."""
    if not (folder / FLOPS).exists():
        return []
    try:
        counted = json.loads((folder / FLOPS_COUNTED).read_text(encoding="utf-8"))
        return rows(json.loads((folder / FLOPS).read_text(encoding="utf-8")), counted, spec)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        return Why(f"{FLOPS} or {FLOPS_COUNTED} cannot be read: {error!r}")


def read_published() -> dict[tuple[str, int], tuple[float, str]]:
    """(operations of a forward pass, who says so) by model and pixels on a side. Files hold multiply-adds."""
    return {
        (row["model"], int(row["image_size"])): (2 * float(row["multiply_adds"]), row["source"])
        for row in read_csv(PUBLISHED)
    }


def add_published(
    table: Iterable[dict[str, Any]], published: Mapping[tuple[str, int], tuple[float, str]]
) -> list[dict[str, Any]]:
    """The rows, with what was published of whole models."""
    nothing = (None, None)
    both = []
    for row in table:
        flops, by = published.get((row["model"], row["image_size"]), nothing) if row["module"] == WHOLE else nothing
        both.append(row | {"published_flops_per_image": flops, "published_by": by})
    return both


def parse_messages(text: str) -> list[dict[str, Any]]:
    """What `comms.txt` says: one row per operation and size. Raises ValueError for a line that cannot be."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith(HEAD):
        raise ValueError("is no log of messages of DeepSpeed's")
    table: list[dict[str, Any]] = []
    operation = None
    for number, line in enumerate(lines[1:], 2):
        size = _SIZE.match(line)
        if size and operation:
            each, count = float(size[1]) * UNITS[size[2]], int(size[3])
            sent = {"message_bytes": each, "messages": count, "bytes": each * count}
            table.append({"operation": operation} | sent)
        elif _OPERATION.match(line.strip()) and not line.startswith(" "):
            operation = line.strip()
        elif line.strip():
            raise ValueError(f"line {number} is no message: {line.strip()[:60]!r}")
    return table


def messages(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """The rows of a run with a log of messages, none of a run without, or the reason why its log gives none."""
    path = folder / COMMS
    if not path.exists():
        return []
    about = {"run": spec.id, "model": spec.model, "framework": spec.framework, "workers": spec.workers}
    try:
        return [about | row for row in parse_messages(path.read_text(encoding="utf-8", errors="replace"))]
    except ValueError as error:
        return Why(f"{path.name} {error}")
