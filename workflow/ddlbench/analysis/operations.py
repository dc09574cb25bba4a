"""Tables `operations` and `messages`, of what DeepSpeed logs: its FLOPS profiler's counts, module by module, beside
PyTorch's own counter, and what its ranks sent each other, by operation and size of the message.

Runs with option `flops_profiler` leave `flops.txt`, DeepSpeed's text about the forward pass of one step, and
`flops.json`, what PyTorch's FlopCounterMode counts of the same model for one picture (`train/models.py`). Published
counts of whole models are in `config/references/operations.csv`. Everything is made one picture's: DeepSpeed counts a
batch. All counts here take a multiplication and an addition as two operations; DeepSpeed and most publications count
pairs of them (MACs), which are doubled.

Runs with option `comms_logger` leave `comms.txt`, what rank 0 logged since the run last started. Sizes are those that
DeepSpeed was asked to send, rounded as it writes them, and not bytes on a network: headers are not in them, nor what an
all-reduce sends twice. Its times are left out: DeepSpeed 0.19.6 writes for each message the time of all messages of
that operation so far (its timer is read without a reset), and sums these sums. Bandwidths come of the same times.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
    Column("parameters", "float64", "Its parameters, rounded as DeepSpeed writes them."),
    Column(
        "deepspeed_flops_per_image",
        "float64",
        "Operations of the forward pass over one picture by DeepSpeed's profiler: twice its multiply-adds, rounded "
        "as it writes them.",
    ),
    Column("torch_flops_per_image", "float64", "The same by PyTorch's FlopCounterMode."),
    Column("published_flops_per_image", "float64", "The same as published, of whole models at the published size."),
    Column("published_by", "str", "Who published it."),
    Column(
        "forward_s",
        "float64",
        "Time of the module in the forward pass of the profiled step, with its parts, for a worker's whole batch; null "
        "where DeepSpeed wrote a time that cannot be.",
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
SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6}
_NUMBER = r"([0-9.e+-]+) ?([KMBGTmu]?)"
_COUNTS = re.compile(rf"{_NUMBER} ?= \S+% Params, {_NUMBER}MACs = \S+% MACs, {_NUMBER}s = \S+% latency")
_CHILD = re.compile(r"\((?P<name>[^()\s]+)\): (?:(?P<times>\d+) x )?(?P<kind>\w+)\((?P<rest>.*)$")
_HEADER = re.compile(rf"^(batch size per GPU|fwd latency): +{_NUMBER}s? *$", re.MULTILINE)
HEAD = "Comm. Op"
UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
_SIZE = re.compile(r"^\s+([0-9.]+) ?([KMGTP]?B)\s+(\d+)(?:\s+[0-9.e+-]+){4}\s*$")
_OPERATION = re.compile(r"^\w+$")


@dataclass(frozen=True)
class Module:
    """A module of a profile: its place, its class, and what DeepSpeed says of it, for a worker's batch."""

    path: tuple[str, ...]
    kind: str
    parameters: float
    macs: float
    forward_s: float


@dataclass(frozen=True)
class Profile:
    """`batch` are a worker's pictures in the profiled forward pass, `forward_s` its time; parts follow their parent."""

    batch: int
    forward_s: float
    modules: tuple[Module, ...]


def parse(text: str) -> Profile:
    """What `flops.txt` says. Raises ValueError if it is cut off, or no such text."""
    header = {name: float(number) * SCALES[unit] for name, number, unit in _HEADER.findall(text)}
    _, heading, detail = text.partition("Detailed Profile per GPU")
    if not heading or set(header) != {"batch size per GPU", "fwd latency"}:
        raise ValueError("is no profile of DeepSpeed's")
    modules: list[Module] = []
    open_: list[tuple[str, str]] = []  # modules whose end has not come: their names and classes
    ended = False
    lines = detail.splitlines()
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped == ")" and open_:
            open_.pop()
            ended = not open_
            continue
        child = _CHILD.match(stripped) if open_ else None
        if not open_ and number + 1 < len(lines) and re.fullmatch(r"\w+\(", line) and _COUNTS.search(lines[number + 1]):
            open_.append(("", line[:-1]))
        elif not open_ and re.match(r"\w+\(", line) and _COUNTS.search(line):  # a model that is one module
            modules.append(_module((), line.partition("(")[0], line))
            ended = True
        elif child and child["rest"]:
            modules += [
                _module((*(name for name, _ in open_[1:]), name), child["kind"], child["rest"])
                for name in _names(child["name"], child["times"])
            ]
        elif child:
            open_.append((child["name"], child["kind"]))
        elif open_ and _COUNTS.match(stripped):
            modules.append(_module(tuple(name for name, _ in open_[1:]), open_[-1][1], stripped))
        if ended:
            break
    if not modules or not ended:
        raise ValueError("ends within the list of modules")
    return Profile(int(header["batch size per GPU"]), header["fwd latency"], tuple(modules))


def _names(name: str, times: str | None) -> list[str]:
    """torch writes modules of a ModuleList that look alike in one line: `(0-2): 3 x Identity()`."""
    if times is None:
        return [name]
    first = int(name.partition("-")[0])
    return [str(number) for number in range(first, first + int(times))]


def _module(path: tuple[str, ...], kind: str, text: str) -> Module:
    match = _COUNTS.search(text)
    if match is None:
        raise ValueError(f"says nothing of module {'.'.join(path) or WHOLE}")
    words = match.groups()
    counts = [float(number) * SCALES[unit] for number, unit in zip(words[::2], words[1::2], strict=True)]
    return Module(path, kind, *counts)


def rows(profile: Profile, counted: Mapping[str, float], spec: RunSpec) -> list[dict[str, Any]]:
    """One row per module, without what was published. `counted` is PyTorch's count by place, "" for the model."""
    names = [column.name for column in COLUMNS]
    table = []
    for module in profile.modules:
        place, flops = ".".join(module.path), 2 * module.macs / profile.batch
        about = (spec.id, spec.model, spec.recipe.image_size, spec.framework, place or WHOLE, module.kind)
        # Its counter names only modules in which it counted something.
        ours = counted.get(place, 0.0)
        possible = module.forward_s <= 1.05 * profile.forward_s  # of the model itself DeepSpeed does not see the start
        counts = (len(module.path), module.parameters, flops, ours, None, None, module.forward_s if possible else None)
        table.append(dict(zip(names, (*about, *counts), strict=True)))
    return table


def of_run(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """The rows of a run with a profile, none of a run without, or the reason why its profile gives none."""
    path = folder / FLOPS
    if not path.exists():
        return []
    try:
        counted = json.loads((folder / FLOPS_COUNTED).read_text(encoding="utf-8"))
        return rows(parse(path.read_text(encoding="utf-8", errors="replace")), counted, spec)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return Why(f"{path.name} or {FLOPS_COUNTED} cannot be read: {error}")


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
