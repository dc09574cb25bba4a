"""What a reading gets and what it gives: lines and files of a program, steps and validations of a
run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ddlbench.core.program import WORK
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import StepRow
from ddlbench.run.readings._proof import Proof
from ddlbench.run.trained_together import Told


class UnreadError(ValueError):
    """The error that no steps could be read from the program's output. The message states what was
    looked for and what was there.
    """


class NotFiniteError(UnreadError):
    """The error that a loss in the program's output is not finite: the training diverged, and the
    run failed.
    """

    def __init__(self, loss: float, step: float) -> None:
        super().__init__(f"loss is not finite: {loss} at step {step:g}")
        self.step = int(step)


class Line(NamedTuple):
    """A line that a rank of the program printed, and when it was read [s since 1970]; rank 0 if the
    rank is unknown.
    """

    time_s: float
    text: str
    rank: int = 0


class StepEnd(NamedTuple):
    """The end of a step, from the program's output.

    Steps are counted in the program's own way; None where it does not print the count.
    """

    time_s: float  # [s since 1970]
    step: float
    loss: float | None = None
    lr: float | None = None
    samples: float | None = None  # of the step, over all ranks
    epoch: float | None = None  # by its own count
    total: float | None = None  # steps of its epoch, as it prints them beside the step
    step_s: float | None = None  # how long a step took by what the same line prints, in any unit


class Evaluation(NamedTuple):
    """A validation, from the program's output. `time_s` [s since 1970]; `top1` is a fraction."""

    time_s: float
    top1: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Output:
    """The output that a reading may look at: the run, the program's own folder, that of the record,
    and what it printed.

    `lines` are those that the reading wants; `last` are the last ones that it printed, whatever
    they say. `again_s` are the times when an interrupted run was restarted [s since 1970].
    """

    spec: RunSpec
    folder: Path
    partial: Path
    lines: Sequence[Line]
    last: Sequence[str] = ()
    again_s: Sequence[float] = ()

    def files(self, pattern: str) -> list[Path]:
        """Return the files of this name that the run wrote: below the program's folder, and where
        it ran. There links are of files that were there before.
        """
        ran_in = self.folder.with_name(WORK)
        own = [path for path in self.folder.rglob(pattern) if path.is_file()]
        return own + [
            path for path in ran_in.rglob(pattern) if path.is_file() and not path.is_symlink()
        ]

    def newest(self, pattern: str) -> Path:
        """Return the file of this name that was written last. Raises UnreadError without one."""
        there = self.files(pattern)
        if not there:
            raise UnreadError(
                f"no {pattern} in its folder: does the command write its output to {{folder}}?"
            )
        return max(there, key=lambda path: path.stat().st_mtime)


@dataclass
class Reading:
    """Steps of a run. `began_s` is when the first one began [s since 1970]; `rows` holds each
    rank's row of each step.

    `not_known` gives reasons by column of `steps.parquet`; such a column is NaN, but that the whole
    of a step stands in `forward_s` where its parts are not known. `remarks` go into the record, and
    `ranks`: columns of each rank's memory. `proof` says what else agrees with the steps. `told` is
    what each rank told of its steps, of one `one_clock` or of each host's; `says` is how many ranks
    train together by the program's own word.
    """

    began_s: float
    rows: list[StepRow]
    evaluations: list[Evaluation] = field(default_factory=list)
    not_known: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, object] = field(default_factory=dict)
    ranks: dict[int, dict[str, int]] = field(default_factory=dict)
    proof: Proof = field(default_factory=Proof)
    told: dict[int, list[Told]] = field(default_factory=dict)
    one_clock: bool = True
    says: int | None = None


class ReadingMember(Protocol):
    """The contract of a file of this room. Importing it imports no package that only some have."""

    def wanted(self, spec: RunSpec) -> list[re.Pattern[str]]:
        """Return patterns of the lines that it looks at."""

    def read(self, source: Output) -> Reading:
        """Return the steps. Raises UnreadError if there are none; its message is for people."""
