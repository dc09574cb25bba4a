"""The batch that a new study of a program begins with: what the program's file or its source says,
else a number to be checked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path

from ddlbench.commands.new.program import USUAL
from ddlbench.core.program import placeholders
from ddlbench.settings.program import ProgramFile

OF_ALL, EACH = "global_batch", "batch_per_worker"  # keys of a study
GUESS = 8
MOST_FILES, MOST_BYTES = 200, 1 << 20  # of a program's source
NAMES = {EACH: USUAL[EACH].split(), OF_ALL: ["global_batch_size", *USUAL[EACH].split()]}
CHECK = "CHECK: "


@dataclass(frozen=True)
class Batch:
    """The key of a study, its value, and where the value comes from; `CHECK: ...` where a person
    has to look.
    """

    key: str
    size: int
    note: str


def of_program(file: ProgramFile, project: Path) -> Batch:
    """Return the batch to begin with; files of the program lie below `project`."""
    if file.samples_per_epoch and file.steps_per_epoch:
        size = ceil(file.samples_per_epoch / file.steps_per_epoch)
        rest = "" if size * file.steps_per_epoch == file.samples_per_epoch else f"{CHECK}about "
        return Batch(OF_ALL, size, f"{rest}samples_per_epoch / steps_per_epoch of {file.path}")
    named = placeholders(file.command)
    options = [*_options(file.command)]
    if not {EACH, OF_ALL} & named:
        return _fixed(options, file)
    key = EACH if EACH in named else OF_ALL
    option = next((name for name, value in options if value == f"{{{key}}}"), None)
    defaults = _defaults(option, file, project) if option else set()
    if len(defaults) == 1:
        (default,) = defaults
        return Batch(key, default, f"the default of {option} in the program's source")
    return Batch(key, GUESS, f"{CHECK}nothing says which batch this program is meant for")


def _fixed(options: list[tuple[str, str]], file: ProgramFile) -> Batch:
    """Return the batch that a command itself names; that of a study then has to be the same."""
    known = [name for name in NAMES[OF_ALL] if name != "batch"]
    for option, value in options:
        if _plain(option) in known and value.isdigit() and int(value):
            other = f"one worker's batch? else {OF_ALL}; better {{{EACH}}} in the command"
            return Batch(EACH, int(value), f"{CHECK}{option} {value} of the command: {other}")
    lacks = f"{file.path}: command has neither {{{EACH}}} nor {{{OF_ALL}}}"
    return Batch(EACH, GUESS, f"{CHECK}must be what the program trains with: {lacks}")


def _options(command: str) -> Iterator[tuple[str, str]]:
    """Yield options of a command with their values: `--name value`, `--name=value`, `name=value`."""
    words = shlex.split(command)
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
        elif word.startswith("-"):
            yield word, following


def _plain(option: str) -> str:
    return option.lstrip("-").replace("-", "_").split(".")[-1].lower()


def _defaults(option: str, file: ProgramFile, project: Path) -> set[int]:
    """Return what the program's source gives an option without a value: argparse's and click's
    `default=`, absl's flags, a module's or a class's own names.
    """
    name = re.escape(_plain(option)).replace("_", "[-_]")
    patterns = (
        rf"""["']-?-?(?:[\w.-]*\.)?{name}["'][^)]*?\bdefault\s*=\s*(\d+)""",
        rf"""DEFINE_integer\(\s*["']{name}["'],\s*(\d+)""",
        rf"^\s*{name}(?:\s*:\s*int)?\s*=\s*(\d+)\b",
    )
    found: set[int] = set()
    for text in _sources(file, project):
        found |= {int(one) for pattern in patterns for one in re.findall(pattern, text, re.M)}
    return found - {0}


def _sources(file: ProgramFile, project: Path) -> Iterator[str]:
    places = [project / name for name in file.files]
    files = [
        one
        for place in places
        for one in (sorted(place.rglob("*.py")) if place.is_dir() else [place])
        if one.suffix == ".py" and one.is_file()
    ]
    for one in files[:MOST_FILES]:
        if one.stat().st_size <= MOST_BYTES:
            yield one.read_text(encoding="utf-8", errors="replace")
