"""Nodes on which jobs fail before they begin: by a prolog, a node that does not boot, a log that cannot be opened.

SLURM queues such a job again under its number, and the next try hides the one that failed: only `sacct --duplicates`
has all. A job of many nodes says little of each. So a node is named by how often jobs fail with it and without it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ddlbench.slurm import queue

STATES = ("BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "RECONFIG_FAIL")
AT_ONCE_S = 60  # a job that is queued again so soon did not begin; later it may have given way to another
ASKED = ("sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", "--starttime=now-30days")
FORMAT = "--format=JobName,State,ExitCode,ElapsedRaw,NodeList"
CHANCE = 0.05  # that any node is named where all are alike


class Try(NamedTuple):
    """One try of a job: on which nodes, and whether it failed before it began."""

    nodes: frozenset[str]
    failed: bool


def tries() -> list[Try]:
    """All tries of this user's ddlbench jobs in 30 days; none if SLURM keeps no accounts or does not answer."""
    found = []
    for line in queue.printed(*ASKED, FORMAT).splitlines():
        name, state, code, elapsed, nodes = line.split("|", 4)
        if name.startswith("ddlbench") and nodes not in ("", "None assigned") and not state.startswith("RUNNING"):
            word = state.partition(" ")[0]
            requeued = word == "REQUEUED" and int(elapsed) < AT_ONCE_S
            names = frozenset(queue.printed("scontrol", "show", "hostnames", nodes).split())
            found.append(Try(names, word in STATES or requeued or code == queue.BLIND))
    return found


def lines(of: Sequence[Try]) -> list[str]:
    """For people: each node with which more tries fail than chance explains; nothing if none failed."""
    from scipy.stats import fisher_exact

    failed, names = sum(one.failed for one in of), sorted({name for one in of for name in one.nodes})
    said = []
    for name in names:
        here = [one.failed for one in of if name in one.nodes]
        bad, others = sum(here), len(of) - len(here)
        table = [[bad, len(here) - bad], [failed - bad, others - (failed - bad)]]
        if fisher_exact(table, alternative="greater").pvalue * len(names) < CHANCE:
            said.append(
                f"{name}: {bad} of {len(here)} tries with it failed before the job began, {failed - bad} of {others} "
                f"without it; exclude_nodes: [{name}] keeps jobs off it"
            )
    if failed and not said:
        said = [f"{failed} of {len(of)} tries failed before the job began; no node stands out"]
    return said
