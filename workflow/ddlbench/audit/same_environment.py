"""Variables of the environment that ranks were given are listed where runs of one framework and worker count differ.

Threads, network and memory settings change speed. Values that might be secrets are hidden in records and cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.origin import variables
from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing
from ddlbench.train.frameworks import _common, horovod

SEVERITY = "warning"
NEEDS = ("runs.command", "runs.framework", "runs.workers")
WHAT_TO_DO = "train the deviating runs again with one machine file, or say which figure shows which setting"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"

# How long ranks wait for each other changes no speed.
PATIENCE = {_common.PATIENCE, horovod.PATIENCE}


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs and variable."""
    runs = material.runs
    given = {command: variables(command) for command in runs["command"].unique()}
    for name in sorted({name for values in given.values() for name in values} - PATIENCE):
        values = {command: some.get(name, "unset") for command, some in given.items()}
        if len(set(values.values())) > 1:
            table = runs.assign(**{name: runs["command"].map(values)})
            yield from differing(table, name, [*COMPARED, "framework", "workers"], f"values of {name}")
