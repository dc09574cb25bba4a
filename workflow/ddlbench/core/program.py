"""A user's own training program as a value: its command and how its steps are read.

`settings/program.py` reads it from config/programs, `core/spec.py` holds one per run, `run/program.py` starts it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from string import Formatter
from typing import Any

Scalar = str | int | float | bool
# What every command may name in braces, beside the program's own settings.
PLACEHOLDERS = {
    "workers": "ranks of the run",
    "nodes": "nodes that they fill",
    "workers_per_node": "ranks on each node",
    "batch_per_worker": "samples per step on one rank",
    "global_batch": "samples per step over all ranks",
    "repeat": "the repeat, counted from 1",
    "seed": "the seed, which the repeat moves",
    "device": "cpu or cuda",
    "folder": "an empty folder for what the program writes",
}
IMAGES = "images"  # what our own trainings count
EACH, OWN = "each", "own"  # who starts the ranks: ddlbench, or the program itself
# Named groups that a pattern of reading `lines` may have, and what each gives.
GROUPS = {
    "step": "the number of the step",
    "seen": "in place of step: the samples that one rank has seen in its epoch, a multiple of its batch",
    "loss": "its loss",
    "lr": "its learning rate",
    "samples": "its samples over all ranks",
    "samples_per_s": "a rate, which is compared with the clock",
    "workers": "how many ranks train together: with any other number than the run's, its steps are refused",
    "top1": "top-1 accuracy of a validation, a fraction or in percent",
    "eval_loss": "the loss of a validation",
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with one value for each of its settings, as one run starts it.

    `patterns` are those of reading `lines`. `environment` is the folder of a Python environment as the file names it,
    or names of modules. `digest` is SHA-256 over the program's files.
    """

    name: str
    command: str
    ranks: str = EACH
    settings: tuple[tuple[str, Scalar], ...] = ()
    sample: str = "samples"
    reads: str = "lines"
    patterns: tuple[str, ...] = ()
    resume: str | None = None
    environment: str | tuple[str, ...] | None = None
    digest: str = ""

    @property
    def framework(self) -> str:
        """What tables call its framework: its setting of that name, or the program's name."""
        return str(dict(self.settings).get("framework", self.name))

    @property
    def words(self) -> str | None:
        """Its settings but the framework, for people and tables; None if it has none."""
        return ", ".join(f"{name}={value}" for name, value in self.settings if name != "framework") or None

    def argv(self, values: Mapping[str, Any], resumes: bool = False) -> list[str]:
        """The words of its command with `values` of PLACEHOLDERS in it; `resumes` adds those of `resume`.

        A value is filled in after the command is cut into words, so that one with a space stays one word.
        """
        text = f"{self.command} {self.resume}" if resumes and self.resume else self.command
        return [word.format_map({**dict(self.settings), **values}) for word in shlex.split(text)]

    def written(self) -> dict[str, Any]:
        """What JSON holds of it: the fields that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def parse(cls, written: Mapping[str, Any]) -> Program:
        """The program that `written` gave, also after JSON. Raises TypeError, ValueError."""
        values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in written.items()}
        return cls(**values | {"settings": tuple((str(name), value) for name, value in written.get("settings", ()))})


def placeholders(text: str) -> set[str]:
    """The names in braces. Raises ValueError where braces do not match or hold more than a name."""
    found = set()
    for _, name, form, conversion in Formatter().parse(text):
        if name is None:
            continue
        if form or conversion or not name.isidentifier():
            raise ValueError(f"{{{name}}} is no name in braces")
        found.add(name)
    return found
