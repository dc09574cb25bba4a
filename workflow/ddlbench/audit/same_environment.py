"""Variables of the environment that ranks were given are listed where runs of one framework and worker count differ.

Threads, network and memory settings change speed. Values that might be secrets are hidden in records and cannot differ.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import COMPARED, differing

SEVERITY = "warning"
NEEDS = ("runs.command", "runs.framework", "runs.workers")
WHAT_TO_DO = "train the deviating runs again with one machine file, or say which figure shows which setting"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs and variable."""
    runs = material.runs
    given = {command: _variables(command) for command in runs["command"].unique()}
    for name in sorted({name for variables in given.values() for name in variables}):
        values = {command: variables.get(name, "unset") for command, variables in given.items()}
        if len(set(values.values())) > 1:
            table = runs.assign(**{name: runs["command"].map(values)})
            yield from differing(table, name, [*COMPARED, "framework", "workers"], f"values of {name}")


def _variables(command: str) -> dict[str, str]:
    """Those that `env` gets at the beginning of a command line."""
    try:
        words = shlex.split(command)
    except ValueError:  # written by others
        return {}
    found: dict[str, str] = {}
    for word in words[1:] if words[:1] == ["env"] else []:
        name, equals, value = word.partition("=")
        if not equals:
            break
        found[name] = value
    return found
