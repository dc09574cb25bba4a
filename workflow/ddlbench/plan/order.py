"""In which order a study's runs are made: mixed at random, so that a machine that drifts favours no side.

All first repeats come before all second ones, each repeat's runs in an order of their own. Repeats with one number are
compared as pairs (`analysis/statistics.py`), so a drift moves both of a pair about alike. The order is made of the
study's name and the runs' ids: it is the same each time, and a run more moves no other.

Untimed runs, which may share the machine, come after the timed ones. On a cluster the queue has the last word.
Sources: Box, Hunter & Hunter 2005, Statistics for Experimenters, chapter 3 (blocks, and chance within them); Hoefler &
Belli, SC'15, section 4.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from ddlbench.core.spec import CONTROLS, RunSpec
from ddlbench.settings.config import complain
from ddlbench.settings.study import Study

BLOCK = "control runs"  # of a plan; no block of a study can have a blank in its name


def mixed(study: str, specs: Iterable[RunSpec]) -> list[RunSpec]:
    """The runs in the order in which they are to be made."""

    def place(spec: RunSpec) -> tuple[bool, int, str]:
        return not spec.timed, spec.repeat, sha256(f"{study}/{spec.id}".encode()).hexdigest()

    return sorted(specs, key=place)


def with_controls(study: Study, order: Sequence[RunSpec], block: Iterable[RunSpec]) -> list[RunSpec]:
    """The order with control runs in it: one first, one after every so many timed runs, one after the last of them.

    `block` are the runs of the block that the study names for them. Raises ConfigError if they are not one timed run,
    whatever its repeats.
    """
    control = study.control
    if control is None:
        return list(order)
    cells = {replace(spec, repeat=1) for spec in block}
    if len(cells) != 1 or not all(spec.timed for spec in cells):
        untimed = "" if all(spec.timed for spec in cells) else ", not timed"
        allowed = f"allowed: a block of one timed run; this one has {len(cells)}{untimed}"
        raise complain(study.path, "control.runs", control.runs, allowed)
    cell = cells.pop()
    made: list[RunSpec] = []
    controls = 0

    def one_more() -> None:
        nonlocal controls
        controls += 1
        made.append(replace(cell, repeat=CONTROLS + controls))

    timed = [spec for spec in order if spec.timed]
    for place, spec in enumerate(timed):
        if place % control.every == 0:
            one_more()
        made.append(spec)
    one_more()
    return made + [spec for spec in order if not spec.timed]
