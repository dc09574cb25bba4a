"""The answer in words. Each sentence is made of a verdict or an interval, and says of which runs it is made.

What rests on one run has no interval; such numbers are counted here, and are in the page's tables. Verdicts come from
table `comparisons` (`analysis/statistics.py` decides), intervals of efficiency from `analysis/scaling.py`. What took
efficiency away is accounting (`analysis/losses.py`), told only where the loss itself is sure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.claims import CONTRADICTED, SUPPORTED, UNDECIDED
from ddlbench.analysis.comparisons import SHOWN, settings, telling
from ddlbench.analysis.losses import PARTS, waterfall
from ddlbench.analysis.scaling import names, placed, scaling
from ddlbench.analysis.statistics import CANNOT_TELL, FASTER
from ddlbench.analysis.together import SERIES
from ddlbench.audit import SEVERITIES, _findings
from ddlbench.core.plural import count_of, percents, rounded
from ddlbench.show.page import asked
from ddlbench.show.page.words import Sentence

MOST = 6  # sentences of a kind on the first screen; the tables have all
CLAIMS = "Sources' claims"
MANY = 100  # repeats that nobody makes
WIDE = 3.0  # an efficiency whose interval's ends are further apart than this factor answers nothing
WORDS = {
    "input_s": "waiting for images",
    "waiting_s": "waiting for the slowest rank",
    "transfer_s": "transfer",
    "compute_s": "slower computation",
    "together_s": "waiting, transfer and computation, which the framework cannot tell apart",
    "epochs_s": "start and end of epochs",
    "validation_s": "validation",
    "checkpoint_s": "checkpoints",
    "unexplained_s": "unexplained",
}
assert WORDS.keys() == PARTS.keys()


@dataclass(frozen=True)
class Answer:
    """What the first screen says: sentences, what is left to tell, and findings of the audit that matter."""

    said: tuple[Sentence, ...]  # those that answer the same question stand together
    open: tuple[str, ...]
    findings: tuple[tuple[str, tuple[Mapping[str, str], ...]], ...]  # by rule, errors first
    audit: str

    @property
    def questions(self) -> dict[str, list[Sentence]]:
        """The sentences by the question that they answer."""
        by_question: dict[str, list[Sentence]] = {}
        for sentence in self.said:
            by_question.setdefault(sentence.question, []).append(sentence)
        return by_question


def answer(tables: Mapping[str, pd.DataFrame], audit: Sequence[Mapping[str, str]], unit: str) -> Answer:
    """The answer of a study, from its tables `runs`, `comparisons`, `losses`, `costs`, `verdicts`, and its audit's
    findings.

    `unit` is what workers are called: `workers` or `GPUs`.
    """
    shown: list[Sentence] = []
    not_shown: list[str] = []
    runs = together.usable(tables["runs"])
    for question, things, sentences in (
        ("Frameworks", "comparisons of frameworks", [*_comparisons(tables["comparisons"], "framework", unit)]),
        ("Loaders", "comparisons of loaders", [*_comparisons(tables["comparisons"], "loader", unit)]),
        ("Forms", "comparisons of forms", [*_comparisons(tables["comparisons"], "form", unit)]),
        (unit.capitalize() if unit.islower() else unit, f"series over {unit}",
         [*_scaling(tables["runs"], tables["losses"], unit)]),
        ("Batch size", "models' batches", [*asked.batches(runs)]),
        ("Schedules", "models' schedules", [*asked.schedules(runs)]),
        ("Memory", "models' memory", [*asked.memory(runs, unit)]),
        ("Cost", "models' costs", [*asked.cost(runs, unit, asked.price(tables["costs"]))]),
    ):  # fmt: skip
        full = [replace(sentence, question=question) for sentence in sentences if isinstance(sentence, Sentence)]
        shown += full[:MOST]
        not_shown += [text for text in sentences if isinstance(text, str)]
        if more := max(0, len(full) - MOST):
            not_shown.append(f"{more} of {len(full)} {things} with repeats are told in the tables below only.")
    shown += _claims(tables["verdicts"])
    broken = rules_by_run(audit, "error")
    rules_of = [sorted({rule for run in sentence.runs for rule in broken.get(run, ())}) for sentence in shown]
    marked = tuple(replace(sentence, unfair=tuple(rules)) for sentence, rules in zip(shown, rules_of, strict=True))
    findings: dict[str, list[Mapping[str, str]]] = {}
    for severity in SEVERITIES[:2]:
        for row in audit:
            if row["severity"] == severity:
                findings.setdefault(row["rule"], []).append(row)
    by_rule = tuple((rule, tuple(rows)) for rule, rows in findings.items())
    return Answer(marked, tuple(not_shown), by_rule, _findings.summary(audit))


def rules_by_run(audit: Sequence[Mapping[str, str]], severity: str) -> dict[str, list[str]]:
    """Rules with a finding of this severity or a worse one, by run (id), each once."""
    rules: dict[str, list[str]] = {}
    for row in _findings.worst(audit, severity):
        for run in filter(None, row["runs"].split("; ")):
            if row["rule"] not in rules.setdefault(run, []):
                rules[run].append(row["rule"])
    return rules


def _comparisons(table: pd.DataFrame, compared: str, unit: str) -> Iterator[Sentence | str]:
    """Says of each two sides what is known on the most workers that both ran on; those told apart come first."""
    rows = table[table["compared"] == compared]
    if rows.empty:
        return
    same = [*[name for name in SHOWN if name not in ("workers", "global_batch")], "with", "left", "right"]
    most = rows.sort_values(["workers", "global_batch"], kind="stable").groupby(same, dropna=False, sort=True).tail(1)
    repeated = most[most["n"] > 1]
    order = repeated.assign(open=repeated["verdict"] == CANNOT_TELL).sort_values(
        ["open", "workers"], ascending=[True, False]
    )
    for row in _records(order):
        yield _compared(row, unit, telling(most))
    alone = int((rows["n"] < 2).sum())
    if alone:
        yield (
            f"{alone} of {len(rows)} comparisons of {compared}s rest on one pair of runs. One repeat gives no "
            "interval; add repeats."
        )


def _compared(row: Mapping[str, Any], unit: str, differ: Sequence[str]) -> Sentence:
    """`differ` are the settings in which comparisons differ, and which are named for that."""
    where = f"{row['with']} on {count_of(row['workers'], unit.removesuffix('s'))}"
    named = settings(row, differ)
    begins = f"{', '.join(named)}: with {where}" if named else f"With {where}"
    left, right, low, high = row["left"], row["right"], float(row["low"]), float(row["high"])
    times = f"{rounded(low, 2)} to {rounded(high, 2)} times"
    if row["verdict"] == CANNOT_TELL:
        words = f"{begins}, {left} and {right} cannot be told apart: {left} is {times} as fast as {right}."
        if not pd.isna(row["more_repeats"]):
            more = int(row["more_repeats"])
            hours = f"about {rounded(float(row['more_worker_hours']), 2)} hours of {unit}"
            repeats = f"{more} more repeat{'s' if more != 1 else ''} would probably tell, {hours}"
            words += f" {repeats}." if more <= MANY else f" Not even {MANY} more repeats would tell."
    elif row["verdict"] == FASTER:
        how = f"{percents(low - 1, high - 1)} faster than" if high < 3 else f"{times} as fast as"
        words = f"{begins}, {left} is {how} {right}."
    else:
        words = f"{begins}, {left} is {percents(1 - high, 1 - low)} slower than {right}."
    return Sentence(words, f"95 % interval, {row['n']} pairs of runs", tuple(str(row["runs"]).split()))


def _scaling(runs: pd.DataFrame, losses: pd.DataFrame, unit: str) -> Iterator[Sentence | str]:
    """Says of each series what efficiency is left on its most workers, and where most of the rest went."""
    table = scaling(runs, "run").assign(named=names)
    last = table[table["workers"] > table["ref_workers"]].groupby(list(SERIES), dropna=False).tail(1)
    counted = placed(runs, "run")
    lost = waterfall(runs, losses) if len(losses) else pd.DataFrame(columns=[*SERIES, "workers"])
    repeated = last[last["efficiency_low"].notna()].sort_values("workers", ascending=False, kind="stable")
    vague = []
    for row in _records(repeated):
        ours = " with ".join(str(row[name]) for name in ("framework", "named") if not _null(row[name]))
        ours = ", ".join([ours, *settings(row, telling(last))])
        low, high = float(row["efficiency_low"]), float(row["efficiency_high"])
        if low <= 1 <= high and high > WIDE * low:
            vague.append(f"{ours} ({rounded(100 * low, 2)} to {rounded(100 * high, 2)} %)")
            continue
        words = (
            f"{ours} keeps {rounded(100 * low, 2)} to {rounded(100 * high, 2)} % of its efficiency, "
            f"over the whole training, from {row['ref_workers']} to {count_of(row['workers'], unit.removesuffix('s'))}."
        )
        if high < 1:
            words += _why(lost, row)
        sure = f"95 % interval, {row['repeats']} runs each"
        yield Sentence(words, sure, tuple(_runs_of(counted, row)))
    if vague:
        yield (
            f"{len(vague)} of {len(last)} series over {unit} have intervals of efficiency too wide for an answer: "
            f"{', '.join(vague)}. More repeats would narrow them."
        )
    alone = len(last) - len(repeated)
    if alone:
        yield (
            f"{alone} of {len(last)} series over {unit} have one run on the most {unit}: no interval, so no sentence "
            "about them here."
        )


def _null(value: Any) -> bool:
    return value in (None, "None") or bool(pd.isna(value))


def _why(lost: pd.DataFrame, row: Mapping[str, Any]) -> str:
    """Names the part where most of a sure loss went."""
    ours = together.alike(lost, row, [*SERIES, "workers"])
    if len(ours) != 1:
        return ""
    parts = {name: float(ours[name].iloc[0]) for name in PARTS}
    worst = max(parts, key=lambda name: parts[name])
    whole = 1 - float(ours["efficiency"].iloc[0])
    if not parts[worst] > 0 or whole <= 0:
        return ""
    share = rounded(100 * min(1.0, parts[worst] / whole), 2)
    return f" The largest part of the loss: {WORDS[worst]} ({share} % of it)."


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _runs_of(counted: pd.DataFrame, row: Mapping[str, Any]) -> list[str]:
    """The runs that an efficiency is made of: those of its series on its own and on the fewest workers."""
    ours = together.alike(counted, row, SERIES)
    ours = ours[ours["workers"].isin([row["workers"], row["ref_workers"]])]
    return [str(run) for run in ours["run"]]


def _claims(verdicts: pd.DataFrame) -> Iterator[Sentence]:
    """How many claims of sources these runs can judge, what they say to them, and the first of these."""
    judged = verdicts[verdicts["verdict"].isin([SUPPORTED, CONTRADICTED, UNDECIDED])]
    if judged.empty:
        return
    counts = judged["verdict"].value_counts()
    words = (
        f"{len(judged)} of {len(verdicts)} claims that sources make can be judged by these runs, which meet their "
        f"conditions: {counts.get(SUPPORTED, 0)} supported, {counts.get(CONTRADICTED, 0)} contradicted, "
        f"{counts.get(UNDECIDED, 0)} undecided."
    )
    judges = tuple(sorted({run for runs in judged["runs"].dropna() for run in str(runs).split()}))
    yield Sentence(words, "verdicts at 96 %", judges, question=CLAIMS)
    decided = judged[judged["verdict"] != UNDECIDED]
    for row in _records(decided.sort_values("verdict", kind="stable").head(MOST)):
        sure = f"{row['source']}, {row['place']}; here: {row['hardware']}"
        yield Sentence(f"{str(row['verdict']).capitalize()}: {row['claim']}", sure, question=CLAIMS)
