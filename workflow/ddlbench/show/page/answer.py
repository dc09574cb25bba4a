"""The first screen: which framework and loader, how many workers, how large a batch; then schedule, time, cost, memory.

`ranked.py` answers what compares sides, `asked.py` what grows along an axis. Each answer says what to take, how sure
that is, and which further runs would decide; the figure beside it shows the same quantity. Here they are put
together, with what the study does not ask, and with what the audit says of their runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ddlbench.analysis import comparisons, together
from ddlbench.audit import SEVERITIES, _findings
from ddlbench.core import kinds
from ddlbench.core.registry import OWN
from ddlbench.show.page import asked, ranked
from ddlbench.show.page.about import PageStudy
from ddlbench.show.page.shown import Answer, learning

Errors = tuple[tuple[str, tuple[Mapping[str, str], ...]], ...]
# The four questions, and what a study lists to ask them.
ASKED = {
    ranked.FRAMEWORK: "`frameworks: [ddp, horovod]`",
    ranked.LOADER: "`loaders: [native, dali-cpu]`",
    asked.WORKERS: "`workers: [1, 2]`",
    asked.BATCH: "`global_batch: [32, 256]` with epochs enough to learn",
}
OF_PROGRAMS = {  # which have no loaders, and frameworks of their own
    ranked.FRAMEWORK: "`settings: {framework: [ddp, fsdp]}` in the program's file",
    asked.WORKERS: ASKED[asked.WORKERS],
    asked.BATCH: "`global_batch: [32, 256]`",
}
MOVED = (
    "The machine's speed moved while these runs were made (audit, rule drift): comparisons are of pairs, but an "
    "interval of one side may be too wide, or miss."
)


@dataclass(frozen=True)
class First:
    """What the first screen says: answers, how surely they are told, what the study does not ask, and findings of the
    audit by rule."""

    answers: tuple[Answer, ...]
    judged: str
    not_asked: tuple[str, ...]
    errors: Errors


def first(study: PageStudy, tables: Mapping[str, pd.DataFrame], audit: Sequence[Mapping[str, str]]) -> First:
    """The answers of a study, from its tables and its audit's findings."""
    runs, targets = together.usable(tables["runs"]), tables["reached"]
    if not study.ours:
        runs, targets = _by_submitter(runs, targets)
    # What learns nothing is in no answer, unless a study asks of nothing else: then only speed and memory are told.
    ours = learning(runs)
    ours = ours if len(ours) else runs
    sized = [*asked.batches(study, runs)]
    reached = {point.name.removeprefix("batch "): point for answer in sized for point in answer.points}
    sides, grows = [*ranked.sides(study, runs, tables["comparisons"])], list[Answer]()
    for _ in range(2):  # workers are judged with the sides taken, and sides on the workers taken
        grows = [*asked.workers(study, ours, {answer.take for answer in sides}, reached, targets)]
        workers = "".join(point.name for answer in grows for point in answer.points if point.taken)
        models = "".join({*runs["model"][runs["run"].isin([run for answer in grows for run in answer.runs])]})
        sides = [*ranked.sides(study, runs, tables["comparisons"], workers, models)]
    answers = [
        *sides,
        *grows,
        *sized,
        *asked.schedules(runs, *(int(answer.take.replace(",", "")) for answer in sized)),
        *asked.times(study, runs, targets),
        *asked.costs(study, runs),
        *asked.memory(study, ours),
        *(answer for kind in kinds.beside() for answer in asked.latencies(tables.get(kind.TABLE, pd.DataFrame()))),
    ]
    named = OF_PROGRAMS if len(runs) and (runs["loader"] == OWN).all() else ASKED
    asks = {question.replace("workers", study.unit): key for question, key in named.items()}
    if not any(answer.question in asks for answer in answers):
        answers += asked.rates(study, ours)
    broken = rules_by_run(audit, SEVERITIES[0])
    unfair = [tuple(sorted({rule for run in answer.runs for rule in broken.get(run, ())})) for answer in answers]
    moved = {run for row in audit if row["rule"] == "drift" for run in row["runs"].split("; ")}
    drifts = [MOVED] * any(moved & {*answer.runs} for answer in answers)
    questions = {answer.question for answer in answers}
    return First(
        tuple(replace(answer, unfair=rules) for answer, rules in zip(answers, unfair, strict=True)),
        " ".join([comparisons.in_words(tables["comparisons"]), *drifts]),
        tuple(f"{question} {key}" for question, key in asks.items() if question not in questions) if len(runs) else (),
        _errors(audit),
    )


def _by_submitter(runs: pd.DataFrame, targets: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Records of others, machine `NVIDIA dgxa100_mxnet` called NVIDIA where it is the only one of NVIDIA's."""
    machines = sorted({*runs["machine"]})
    whose = [machine.split(" ")[0] for machine in machines]
    named = {machine: by for machine, by in zip(machines, whose, strict=True) if whose.count(by) == 1}
    for table in (runs, targets):
        yield table.assign(machine=table["machine"].replace(named)) if len(table) else table


def _errors(audit: Sequence[Mapping[str, str]]) -> Errors:
    errors: dict[str, list[Mapping[str, str]]] = {}
    for row in _findings.worst(audit, SEVERITIES[0]):
        errors.setdefault(row["rule"], []).append(row)
    return tuple((rule, tuple(rows)) for rule, rows in errors.items())


def rules_by_run(audit: Sequence[Mapping[str, str]], severity: str) -> dict[str, list[str]]:
    """Rules with a finding of this severity or a worse one, by run (id), each once."""
    rules: dict[str, list[str]] = {}
    for row in _findings.worst(audit, severity):
        for run in filter(None, row["runs"].split("; ")):
            if row["rule"] not in rules.setdefault(run, []):
                rules[run].append(row["rule"])
    return rules
