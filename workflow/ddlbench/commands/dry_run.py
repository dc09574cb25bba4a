"""What `snakemake -n` prints: what would run and why, in some ten lines. `snakemake -np` lists each
job, as Snakemake does.

A rule has a line of its own if a person asks for it (data, preflight, training, inference) or if it
would run for a reason of its own; what only follows from other jobs is counted in one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.core import kinds
from ddlbench.core.files import printable
from ddlbench.core.formatting import count_of, listed
from ddlbench.core.mllog import recorded_spec
from ddlbench.core.record import MLLOG
from ddlbench.core.spec import RunSpec
from ddlbench.patches.snakemake_lines import Reason
from ddlbench.plan import stale

FIRST = ("prepare", "preflight")
NAMED = 3  # so many jobs of a rule are named, and so many reasons are printed
ABSENT = "not there yet"
MISSING = "no record yet"


@dataclass(frozen=True)
class ToMake:
    """A job that would run: its rule, its name within the rule, why Snakemake makes it."""

    rule: str
    name: str
    reason: Reason


def lines(plan: Any, jobs: Sequence[ToMake]) -> list[str]:
    """Return what would run and why: a line per rule, and one for all that only follows."""
    of_rules: dict[str, list[ToMake]] = {}
    for job in jobs:
        of_rules.setdefault(job.rule, []).append(job)
    own = {rule for rule, group in of_rules.items() if any(not job.reason.follows for job in group)}
    if of_rules.keys() & {
        *FIRST,
        *kinds.rules(),
    }:  # then most of the rest is made of what these leave
        own = {rule for rule in own if any(_changed(job.reason) for job in of_rules[rule])}
    shown = [rule for rule in (*FIRST, *kinds.rules()) if rule in of_rules]
    shown += [rule for rule in of_rules if rule in own and rule not in shown]
    width = max((len(rule) for rule in shown), default=0)
    text = [
        f"{plan.study.name} on {plan.machine.name}, dry run: {count_of(len(jobs), 'job')}, none is"
        " started"
    ]
    for rule in shown:
        group = of_rules[rule]
        why = _of_kind(plan, group) if rule in kinds.rules() else _of_rule(group)
        text.append(f"  {rule:<{width}} {len(group):>5}   {why}")
    follow = {rule: len(group) for rule, group in of_rules.items() if rule not in shown}
    if follow:
        each = ", ".join(f"{rule} {count}" for rule, count in follow.items())
        text.append(f"  {'then':<{width}} {sum(follow.values()):>5}   {each}")
    return [*text, "each job: snakemake -np; time, price and disk: ddlbench plan"]


def _changed(reason: Reason) -> bool:
    """Return whether something else than other jobs makes the job stale: an edited file, changed
    code.
    """
    return not (reason.follows or reason.missing)


def _of_rule(group: Sequence[ToMake]) -> str:
    """Return which jobs of a rule would run, if they are few, and why."""
    names = [job.name for job in group if job.name]
    why = _counted([ABSENT if job.reason.missing else ", ".join(job.reason.words) for job in group])
    return f"{listed(names)}: {why}" if names and len(names) <= NAMED else why


def _of_kind(plan: Any, group: Sequence[ToMake]) -> str:
    """Return why runs, or jobs that ask something of runs, would be made."""
    metadata = stale.metadata_of(job.name for job in group)
    of_all = sum(job.rule == group[0].rule for job in plan.jobs.values())
    return f"of {of_all}: {_counted([_why(plan, job, metadata) for job in group])}"


def _why(plan: Any, job: ToMake, metadata: Mapping[str, stale.JobMetadata]) -> str:
    """Return why a run would be made: the settings that differ from its record, else Snakemake's
    reason.
    """
    planned = plan.jobs.get(job.name)
    words = ", ".join(job.reason.words)
    if planned is None:
        return words
    folder = planned.folder()
    if not planned.outputs()[0].exists():
        state, _ = stale.unfinished(folder)
        return MISSING if state == stale.MISSING else f"{MISSING}: {state}"
    why = ""
    if isinstance(planned.spec, RunSpec):
        try:
            recorded = recorded_spec(folder / MLLOG)
        except Exception:  # whatever stands in the log
            recorded = None
        _, why = stale.state(
            folder, planned.spec, recorded, planned.manifest, metadata.get(job.name), stale.COMMAND
        )
    return why or words


def _counted(reasons: Sequence[str]) -> str:
    """Return the reasons with the number of jobs of each, the most frequent first; no number if
    there is only one.
    """
    found = Counter(map(printable, reasons)).most_common()
    if len(found) == 1:
        return found[0][0]
    text = "; ".join(f"{count} {reason}" for reason, count in found[:NAMED])
    rest = sum(count for _, count in found[NAMED:])
    return f"{text}; {rest} for other reasons" if rest else text
