"""Table `operations`: what DeepSpeed's FLOPS profiler counted, module by module, beside PyTorch's own counter.

Runs with option `flops_profiler` leave `flops.txt`, DeepSpeed's text about the forward pass of one step, and
`flops.json`, what PyTorch's FlopCounterMode counts of the same model for one picture (`train/models.py`). Published
counts of whole models are in `config/references/operations.csv`. Everything is made one picture's: DeepSpeed counts a
batch. All counts here take a multiplication and an addition as two operations; DeepSpeed and most publications count
pairs of them (MACs), which are doubled.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core.columns import Column, Why
from ddlbench.core.record import FLOPS, FLOPS_COUNTED
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
    Column("torch_flops_per_image", "float64", "The same by PyTorch's FlopCounterMode; null in older records."),
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
WHOLE = "(model)"
SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6}
_NUMBER = r"([0-9.e+-]+) ?([KMBGTmu]?)"
_COUNTS = re.compile(rf"{_NUMBER} ?= \S+% Params, {_NUMBER}MACs = \S+% MACs, {_NUMBER}s = \S+% latency")
_CHILD = re.compile(r"\((?P<name>[^()\s]+)\): (?:(?P<times>\d+) x )?(?P<kind>\w+)\((?P<rest>.*)$")
_HEADER = re.compile(rf"^(batch size per GPU|fwd latency): +{_NUMBER}s? *$", re.MULTILINE)


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
    said = match.groups()
    counts = [float(number) * SCALES[unit] for number, unit in zip(said[::2], said[1::2], strict=True)]
    return Module(path, kind, *counts)


def rows(profile: Profile, counted: Mapping[str, float], spec: RunSpec) -> list[dict[str, Any]]:
    """One row per module, without what was published. `counted` is PyTorch's count by place, "" for the model."""
    made = []
    for module in profile.modules:
        place = ".".join(module.path)
        possible = module.forward_s <= 1.05 * profile.forward_s  # of the model itself DeepSpeed does not see the start
        made.append(
            {
                "run": spec.id,
                "model": spec.model,
                "image_size": spec.recipe.image_size,
                "framework": spec.framework,
                "module": place or WHOLE,
                "kind": module.kind,
                "depth": len(module.path),
                "parameters": module.parameters,
                "deepspeed_flops_per_image": 2 * module.macs / profile.batch,
                # Its counter names only modules in which it counted something.
                "torch_flops_per_image": counted.get(place, 0.0) if counted else None,
                "published_flops_per_image": None,
                "published_by": None,
                "forward_s": module.forward_s if possible else None,
            }
        )
    return made


def of_run(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """The rows of a run with a profile, none of a run without, or the reason why its profile gives none."""
    path = folder / FLOPS
    if not path.exists():
        return []
    try:
        counted = json.loads((folder / FLOPS_COUNTED).read_text()) if (folder / FLOPS_COUNTED).exists() else {}
        return rows(parse(path.read_text(encoding="utf-8", errors="replace")), counted, spec)
    except (ValueError, AttributeError, TypeError) as error:
        return Why(f"{path.name} or {FLOPS_COUNTED} cannot be read: {error}")


def read_published(path: Path = PUBLISHED) -> dict[tuple[str, int], tuple[float, str]]:
    """(operations of a forward pass, who says so) by model and pixels on a side. Files hold multiply-adds."""
    with path.open(encoding="utf-8", newline="") as lines:
        return {
            (row["model"], int(row["image_size"])): (2 * float(row["multiply_adds"]), row["source"])
            for row in csv.DictReader(lines)
        }


def add_published(
    table: Iterable[dict[str, Any]], published: Mapping[tuple[str, int], tuple[float, str]]
) -> list[dict[str, Any]]:
    """The rows, with what was published of whole models."""
    nothing = (None, None)
    made = []
    for row in table:
        flops, by = published.get((row["model"], row["image_size"]), nothing) if row["module"] == WHOLE else nothing
        made.append(row | {"published_flops_per_image": flops, "published_by": by})
    return made
