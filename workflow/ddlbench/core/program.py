"""A user's own training program as a value: its command and how its steps are read.

`settings/program.py` reads it from config/programs, `core/spec.py` holds one per run,
`run/program.py` starts it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from string import Formatter
from typing import Any

Scalar = str | int | float | bool
# Names in braces that every command may use, in addition to the program's own settings.
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
AXES = (
    "step",
    "sample",
    "epoch",
    "epoch_x1000",
)  # what a program may count on the axis of its scalars
HIDDEN = "..."  # stands for a secret in a command
# Names of options and variables that say a secret, and of those that only sound so: tokens of
# language models.
SECRET = re.compile(
    r"(token|secret|password|passwd|passphrase|api[-_]?key|access[-_]?key|credentials?)$"
)
NO_SECRET = re.compile(
    r"(pad|eos|bos|unk|sep|cls|mask|max|min|num|start|stop|end|image|special|next|per)[-_]"
)
WORK = "work"  # in a run's folder: where the program runs, if its file names a folder
EACH, OWN = "each", "own"  # who starts the ranks: ddlbench, or the program itself
# Named groups that a pattern of reading `lines` may have, and what each gives.
GROUPS = {
    "step": "the number of the step, in its epoch or over the whole run",
    "epoch": (
        "the number of the epoch; alone, for one line an epoch or parts of epochs, it needs"
        " steps_per_epoch"
    ),
    "of": "the total behind step, seen or seen_all: how many of them an epoch has",
    "seen": (
        "in place of step: the samples that one rank has seen in its epoch, a multiple of its batch"
    ),
    "seen_all": (
        "in place of step: the samples that all ranks have seen, in the epoch or over the whole run"
    ),
    "percent": (
        "in place of step: how much of the epoch is done, in percent; it needs steps_per_epoch"
    ),
    "loss": "its loss",
    "lr": "its learning rate",
    "samples": "its samples over all ranks",
    "samples_per_s": "a rate of samples, which is compared with the times of the lines",
    "workers": (
        "how many ranks train together: with any other number than the run's, its steps are refused"
    ),
    "top1": "top-1 accuracy of a validation; key top1_in says its unit",
    "eval_loss": "the loss of a validation",
    "pause": (
        "any text: marks a line about something other than training, such as a validation or a"
        " checkpoint"
    ),
}
COUNTS = ("step", "seen", "seen_all", "percent", "epoch")  # groups that say how far training is


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program with one value for each of its settings, as one run starts it.

    `patterns` are those of reading `lines`. `environment` is the folder of a Python environment as
    the file names it, or names of modules. `digest` is SHA-256 over the program's files, `data`
    what else it reads, each with its digest or date. `folder` is where it runs, `stop_after` when
    it is ended: `200 steps`, `5 minutes`.

    Fields of READS only say how the program's output is read: they make no run another one, and
    stand in no JSON.
    """

    name: str
    command: str
    ranks: str = EACH
    settings: tuple[tuple[str, Scalar], ...] = ()
    sample: str = "samples"
    resume: str | None = None
    environment: str | tuple[str, ...] | None = None
    digest: str = ""
    folder: str | None = None
    stop_after: str | None = None
    data: tuple[tuple[str, str], ...] = ()
    reads: str = field(default="lines", compare=False)
    patterns: tuple[str, ...] = field(default=(), compare=False)
    columns: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    file: str | None = field(default=None, compare=False)
    axis: str | None = field(default=None, compare=False)
    steps_per_epoch: int | None = field(default=None, compare=False)
    samples_per_epoch: int | None = field(default=None, compare=False)
    steps_per_line: int | None = field(default=None, compare=False)
    parts_per_step: int | None = field(default=None, compare=False)
    rate_of: str | None = field(default=None, compare=False)
    top1_in: str | None = field(default=None, compare=False)

    @property
    def framework(self) -> str:
        """Return the framework's name in tables: the program's setting of that name, or the
        program's name.
        """
        return str(dict(self.settings).get("framework", self.name))

    @property
    def words(self) -> str | None:
        """Return its settings except the framework, for people and tables; None if it has none."""
        return (
            ", ".join(f"{name}={value}" for name, value in self.settings if name != "framework")
            or None
        )

    def argv(self, values: Mapping[str, Any], resumes: bool = False) -> list[str]:
        """Return the words of its command with `values` of PLACEHOLDERS in it; `resumes` adds those
        of `resume`.

        A value is filled in after the command is cut into words, so that one with a space stays one
        word.
        """
        text = f"{self.command} {self.resume}" if resumes and self.resume else self.command
        return [word.format_map({**dict(self.settings), **values}) for word in shlex.split(text)]

    @property
    def most_steps(self) -> int | None:
        """Return after how many steps it is ended."""
        return self._limit("steps")

    @property
    def most_minutes(self) -> int | None:
        """Return after how many minutes it is ended."""
        return self._limit("minutes")

    def _limit(self, unit: str) -> int | None:
        count, _, said = (self.stop_after or "").partition(" ")
        return int(count) if said == unit else None

    def written(self) -> dict[str, Any]:
        """Return what JSON holds of it: the fields that differ from their defaults, without
        READS.
        """
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.compare and getattr(self, f.name) != f.default
        }

    def how_it_is_read(self) -> dict[str, Any]:
        """Return the fields of READS that differ from their defaults."""
        return {
            name: getattr(self, name) for name in READS if getattr(self, name) != DEFAULTS[name]
        }

    def read_as(self, other: Program) -> Program:
        """Return this program, read in the way of another one."""
        return replace(self, **{name: getattr(other, name) for name in READS})

    @classmethod
    def parse(cls, written: Mapping[str, Any]) -> Program:
        """Return the program that `written` described, also after JSON.

        Raises TypeError, ValueError.
        """
        values: Any = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in written.items()
        }
        for name in ("settings", "columns", "data"):
            values[name] = tuple((str(key), value) for key, value in written.get(name, ()))
        return cls(**values)


READS = tuple(f.name for f in fields(Program) if not f.compare)
DEFAULTS = {f.name: f.default for f in fields(Program)}


def hide(text: str, names: Iterable[str] = ()) -> str:
    """Replace secrets in a command by HIDDEN: values of options, and of variables before the
    command, whose names are those of secrets or among `names` (`token`, `--token`). Where there is
    none the text stays as it was.

    The command stands in records, logs and Snakemake's memory; `reveal` restores it for the process
    that becomes the program. A value with a placeholder is no secret: settings are shown.
    """
    named, hidden, words = {name.lstrip("-").lower() for name in names}, False, shlex.split(text)

    def is_secret(name: str) -> bool:
        plain = name.lstrip("-").lower()
        return plain in named or bool(SECRET.search(plain) and not NO_SECRET.match(plain))

    def may_be(value: str) -> bool:
        return bool(value) and "{" not in value and not value.isdigit()

    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        before = words[place - 1] if place else ""
        if equals and is_secret(name) and may_be(value):
            words[place], hidden = f"{name}={HIDDEN}", True
        elif (
            before.startswith("-")
            and "=" not in before
            and is_secret(before)
            and may_be(word)
            and word[0] != "-"
        ):
            words[place], hidden = HIDDEN, True
    return shlex.join(words) if hidden else text


def secrets(text: str, names: Iterable[str] = ()) -> list[str]:
    """List the secrets that `hide` would replace in a command."""
    shown = shlex.split(hide(text, names))
    pairs = zip(shlex.split(text), shown, strict=True)
    return [
        word.removeprefix(hidden.removesuffix(HIDDEN)) for word, hidden in pairs if word != hidden
    ]


def placeholders(text: str) -> set[str]:
    """Return the names of the placeholders in a command: names in braces.

    Raises ValueError where braces do not match or hold more than a name.
    """
    found = set()
    for _, name, form, conversion in Formatter().parse(text):
        if name is None:
            continue
        if form or conversion or not name.isidentifier():
            shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise ValueError(f"{{{shown}}} is not a placeholder, which is only a name in braces")
        found.add(name)
    return found
