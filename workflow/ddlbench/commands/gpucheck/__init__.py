"""`make gpu-check`: what one GPU can tell about ddlbench; one file per part of the check.

`__main__.py` runs the parts one after the other and judges. `_bench.py` starts what they start: the tests of the tiers
that need a GPU, and runs on the run path of every study (`plan/launch.py`, `ddlbench.run`). What the tests can say, no
part says again: parts measure. Every part also runs on a CPU, with small sizes.

It is a room of its own, behind all others, because it uses them all and none of them needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ddlbench.commands.gpucheck._bench import Bench

PASS, FAIL = "PASS", "FAIL"
SKIPPED = "SKIPPED"  # could not be tried here; `compared` says why
MEASURED = "MEASURED"  # there is nothing to compare it to
VERDICTS = (PASS, FAIL, SKIPPED, MEASURED)
# In the order in which they run: what the others rest on first. A test holds this to the files.
PARTS = ("machine", "throughput", "tests")


@dataclass(frozen=True)
class Outcome:
    """One line of the table. `compared` says to what `value` was compared, or why there is none."""

    what: str
    verdict: str
    compared: str
    value: float | None = None
    unit: str = ""


class Check(Protocol):
    """One file of this room. Its docstring says what it is for."""

    LIMIT_S: int  # on a GPU; what the part started is ended then, and has failed

    def check(self, bench: Bench) -> Iterator[Outcome]:
        """The part's rows, each as soon as it is known. What it raises is a row that failed."""


def judged(good: bool) -> str:
    """PASS or FAIL."""
    return PASS if good else FAIL
