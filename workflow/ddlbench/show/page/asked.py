"""How many workers pay, how large a batch; time, cost and memory; and what a study of one side can say: its rate.

Each answer is of runs that differ in nothing but what is asked. Intervals and verdicts are those of
`analysis/statistics.py` over repeats; what people read together is judged at once.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import settings, telling
from ddlbench.analysis.scaling import compared_s, in_series, interval_of, names, placed, scaling
from ddlbench.analysis.statistics import FASTER, SLOWER, Ratio, at_once, difference, over_repeats, ratio
from ddlbench.analysis.together import SERIES, by_repeat
from ddlbench.core.plural import between, count_of, digits, duration, listed, memory_unit, runs_each, two_digits
from ddlbench.core.registry import OWN
from ddlbench.core.roles import AXIS, EXTENT, SETTING
from ddlbench.show.page.about import PageStudy
from ddlbench.show.page.ranked import MANY, MOST, OTHERS, PLAIN, RATE
from ddlbench.show.page.shown import LOSS, Answer, Point, Standing, ends, ids, learned, learning, point, spent

WORKERS, BATCH = "How many workers pay?", "How large a batch?"
SCHEDULE = "Which schedule?"
TIME, COST, MEMORY = "How long to the target?", "What does it cost?", "How much memory?"
RATES, ACCURACY = "How fast?", "How accurate?"
LATENCY = "Which way to ask a model?"
MORE = 1.1  # times as much memory, or money, as another takes is worth a sentence
ROWS = 8  # of a figure
SAME = together.settings(SETTING, EXTENT, without=("model", "schedule"))
SIDES = together.settings(AXIS)


def workers(
    study: PageStudy, runs: pd.DataFrame, taken: Collection[str], reached: Mapping[str, Point], targets: pd.DataFrame
) -> Iterator[Answer]:
    """How much faster more workers are than the fewest; the first series is that with repeats and the most counts, and
    of these that of the framework and loader that are `taken`. `reached` is the accuracy by batch.
    Others chose a batch for each number of workers: their records go by time to the first of `targets`, if any."""
    table = placed(runs)
    table = table.assign(named=names, compared_s=compared_s(table, "steps"))
    phrases = f"train {{}} as many {study.sample}/s as", f"{study.sample}/s over those of"
    caveat = "This is by throughput only: what larger batches cost in accuracy, these records do not say."
    if not study.ours and len(targets):
        aim, caveat = f"{100 * targets['target'].min():.3g} % top-1", ""
        table = _to_target(runs, targets[targets["target"] == targets["target"].min()])
        phrases = f"reach {aim} {{}} as soon as", f"{aim} reached: times as soon as with"
    groups = [part for _, part in table.groupby(list(SERIES), dropna=False) if part["workers"].nunique() > 1]
    if groups:
        tell = telling(pd.concat(groups))
        groups.sort(key=lambda series: _weight(series, taken), reverse=True)
        apart = [_apart(series) for series in groups]
        judged = iter(at_once([ratio for ratios in apart for ratio in ratios.values()]))  # people read them together
        first, *rest = answers = [
            _grows(study, part, {n: next(judged) for n in ratios}, tell, reached, phrases)
            for part, ratios in zip(groups, apart, strict=True)
        ]
        texts = tuple(answer.words[0] for answer in rest[:OTHERS])
        if study.ours:
            yield replace(first, others=texts)
        else:  # each series is another system
            systems = [_who(part.iloc[0]) for part in groups]
            take = listed([f"{answer.take} of {name}" for name, answer in zip(systems, answers, strict=True)])
            words = (*(word for answer in answers for word in answer.words[:2]), *filter(None, [caveat]))
            points = [replace(point, name=f"{name}, {point.name.split()[0]}")
                      for name, answer in zip(systems, answers, strict=True) for point in answer.points]  # fmt: skip
            measure = f"{phrases[1]} each one's fewest {study.unit}"
            yield replace(first, take=take, words=words, measure=measure, points=tuple(points))


def series(study: PageStudy, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Series over workers for people who explore: each point has its rate and speed-up, with their intervals."""
    table = scaling(runs).assign(named=names)
    tell = telling(table)
    found = []
    for _, rows in table.groupby(list(SERIES), dropna=False, sort=False):
        name = ", ".join([_who(rows.iloc[0]), *settings(rows.iloc[0].to_dict(), tell)])
        points = []
        for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
            measures = {"rate": RATE, "speed": "speed_up"}.items()
            sides = {short: [row[f"{measure}{end}"] for end in ("", "_low", "_high")] for short, measure in measures}
            points.append({"workers": row["workers"], **sides})
        found.append({"name": name, "points": points})
    return found


def _to_target(runs: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:
    """Runs that reached the target, in series, compared by the time [s] that took. One without a rate may be among
    them."""
    table = in_series(together.usable(runs))
    table = table.assign(named=names)
    parts = [table[:0].assign(compared_s=0.0)]
    for row in targets.to_dict("records"):
        times_s = dict(zip(json.loads(row["runs"]), json.loads(row["each"]), strict=True))
        here = together.alike(table, row, [*SERIES, "workers"])
        here = here.assign(compared_s=here["run"].map(times_s).astype("float64"))
        parts.append(here[here["compared_s"].notna()])
    return pd.concat(parts)


def _apart(series: pd.DataFrame) -> dict[int, Ratio]:
    """How many times as fast as the fewest workers each number of them is."""
    base, *more = ((int(str(n)), by_repeat(part, "compared_s")) for n, part in series.groupby("workers"))
    return {n: ratio(base[1], times) for n, times in more}


def _weight(series: pd.DataFrame, taken: Collection[str]) -> tuple[Any, ...]:
    counts = series.groupby("workers")["repeat"].nunique()
    sides = [series[name].iloc[0] for name in ("framework", "loader", "named")]
    rank = (sum(side in wanted for side in sides) for wanted in (taken, PLAIN))
    return min(counts.iloc[-1], 2), len(counts), counts.index[-1], *rank, len(series)


def _grows(
    study: PageStudy,
    series: pd.DataFrame,
    apart: dict[int, Ratio],
    tell: list[str],
    reached: Mapping[str, Point],
    phrases: tuple[str, str],
) -> Answer:
    by_count = {int(str(n)): by_repeat(part, "compared_s") for n, part in series.groupby("workers")}
    fewest, *more = by_count
    base, who, most = by_count[fewest], _who(series.iloc[0]), more[-1]
    faster = [n for n in more if apart[n].verdict == FASTER]
    # One per cent less time is worth one per cent more money (Eager, Zahorjan and Lazowska 1989).
    taken = max([fewest, *faster], key=lambda n: apart[n].middle ** 2 / n if n != fewest else 1 / fewest)
    name = {n: count_of(n, study.worker) for n in by_count}
    points = [Point(name[fewest], over_repeats([1.0]), (), fewest == taken, "the base")]
    for n in more:
        pairs = [base[repeat] / by_count[n][repeat] for repeat in base.keys() & by_count[n].keys()] or [apart[n].middle]
        points.append(Point(name[n], apart[n], tuple(pairs), n == taken, f"ideal {digits(n / fewest)}"))
    under = ", ".join(text for text in settings(series.iloc[0].to_dict(), tell) if text != who)  # a program's is itself
    times = _as_fast(apart[most], points[-1])
    text = f"With {who}{f' ({under})' * bool(under)}, {name[most]} {phrases[0].format(times)} {fewest}"
    why = _further(study, apart[most], series, (fewest, most))
    if most in faster:
        shares = [100 * (end or 0) * fewest / most for end in (apart[most].low, apart[most].high)]
        text += f", {between(*shares)} % of the ideal {digits(most / fewest)}"
        best = max(taken, faster[0])
        hours = digits(best / fewest / apart[best].middle)
        why = f"At the median {best} {phrases[0].format(f'{digits(apart[best].middle)} times')} {fewest}, "
        why += f"for {hours} times the {study.worker} hours."
    slower = apart[most].verdict == SLOWER
    text += "." if most in faster else ": slower." if slower else ": not shown to pay."
    each = series.iloc[0]["batch_per_worker"]  # of weak scaling
    head, words = name[taken], [text, *[why] * (not slower)]
    if taken > fewest and pd.notna(each):
        batch = {n: f"{each * n:,}" for n in by_count}
        batches = f"On {name[taken]} the batch is {batch[taken]}, not {batch[fewest]}"
        top1 = {n: reached[batch[n]] for n in by_count if batch[n] in reached}
        if {fewest, taken} <= top1.keys():
            size = next(int(batch.replace(",", "")) for batch, row in reached.items() if row.taken)
            keep = max([fewest, *(n for n in by_count if n <= taken and each * n <= size)])
            words.append(f"{batches}: {top1[taken].words} % top-1 in place of {top1[fewest].words}.")
            if _loses(top1[taken], top1[fewest]):
                head = f"{name[keep]} at full accuracy, {taken} for speed alone"
                points = [replace(point, taken=point.name == name[keep]) for point in points]
        else:
            words.append(f"{batches}: this study does not say its accuracy.")
    measure = f"{phrases[1]} {name[fewest]}, with {who}"
    question = WORKERS.replace("workers", study.unit)
    faster_taken = most in faster and taken > fewest  # more may be faster, and cost more than they save
    standing = Standing.FASTER if faster_taken else Standing.SURE if slower else Standing.OPEN
    return Answer(question, head, standing, tuple(words), measure, tuple(points), ids(series))


def _loses(top1: Point, base: Point) -> bool:
    """Whether it is surely more than a point below."""
    high, low = top1.interval.high, base.interval.low
    return high is not None and low is not None and high < low - LOSS


def _as_fast(apart: Ratio, shown: Point) -> str:
    if shown.noisy:
        return f"{digits(apart.middle)} times (too noisy to say: {count_of(apart.n, 'repeat')})"
    return f"{ends(apart)} times" if apart.low is not None else f"{digits(apart.middle)} times (one run each)"


def _further(study: PageStudy, apart: Ratio, runs: pd.DataFrame, counts: Sequence[int]) -> str:
    """What more repeats of these numbers of workers would take to decide."""
    more = 2 if apart.n < 2 else apart.more or MANY + 1
    if more > MANY:
        return f"Not even {MANY} more repeats would tell."
    once_s = runs[runs["workers"].isin(counts)].groupby("workers")["run_s"].median()
    took = spent(more * once_s.sum(), more * (once_s * once_s.index).sum(), study.worker)
    again = "`repeats: 3`" if apart.n < 2 else f"about {count_of(more, 'more repeat')} of each"
    return f"To settle it: {again} {took}."


def batches(study: PageStudy, runs: pd.DataFrame) -> Iterator[Answer]:
    """What accuracy each batch reaches, and the largest that surely costs no more than a point."""
    judged = learned(runs)
    series = [part for same in _with_most(judged, "global_batch") for _, part in same.groupby("schedule")]
    answers = [_reaches(study, part) for part in series if part["global_batch"].nunique() > 1]
    yield from _told(sorted(answers, key=lambda answer: (-len(answer.points), -answer.points[0].interval.middle)))


def schedules(runs: pd.DataFrame, batch: int | None = None) -> Iterator[Answer]:
    """Which schedule reaches the best accuracy, where nothing else differs; with the `batch` that the page takes, if
    several were tried with it."""
    answers, judged, also = [], learned(runs), ("workers", "global_batch")
    taken = _with_most(judged[judged["global_batch"] == batch], "schedule", also)
    for same in taken or _with_most(judged, "schedule", also):
        top1 = {str(name): by_repeat(part, "top1") for name, part in same.groupby("schedule")}
        rows = [point(name, [*values.values()], 100.0) for name, values in top1.items()]
        best, *rest = rows = sorted(rows, key=lambda row: -row.interval.middle)
        apart = at_once([difference(top1[row.name], top1[best.name]) for row in rest], same=0.0)
        level = [row.name for row, judged in zip(rest, apart, strict=True) if judged.verdict != SLOWER]
        reached = listed([f"{digits(row.interval.middle)} % with {row.name}" for row in rows])
        first, each = same.iloc[0], runs_each([*map(len, top1.values())])
        under = f"({first['model']}, batch {first['global_batch']:,}, {each})"
        words = f"With {_who(first)}, top-1 is {reached} {under}."
        answer = _first(SCHEDULE, rows, words, "top-1 after the last epoch [%]", ids(same))
        doubt = (f"{listed([best.name, *level])}: none is surely better. Take either, or repeat.",) * bool(level)
        answers.append(replace(answer, standing=Standing.AHEAD if level else Standing.SURE, words=(words, *doubt)))
    yield from _told(answers)


def _told(answers: Sequence[Answer]) -> Iterator[Answer]:
    """The first answer, if there is one, with the words of the others folded."""
    if answers:
        yield replace(answers[0], others=tuple(" ".join(answer.words) for answer in answers[1:]))


def _reaches(study: PageStudy, series: pd.DataFrame) -> Answer:
    by_batch = {int(str(size)): by_repeat(part, "top1") for size, part in series.groupby("global_batch")}
    least, *larger = by_batch
    judged = at_once([difference(by_batch[size], by_batch[least]) for size in larger], same=0.0)
    change = dict(zip(larger, judged, strict=True))
    counts = [*map(len, by_batch.values())]
    # Of one run each nothing is sure: then the values themselves say what to take.
    lost = [size for size, points in change.items() if (points.middle if points.high is None else points.high) < -LOSS]
    kept = [size for size, points in change.items() if (points.middle if points.low is None else points.low) > -LOSS]
    taken = max([least, *(size for size in kept if size < min(lost, default=size + 1))])
    unsaid = [f"{size:,}" for size in larger if size > taken and size not in lost]
    rows = [point(f"batch {size:,}", [*values.values()], 100.0) for size, values in by_batch.items()]
    sizes = {least, taken, min(lost, default=taken), larger[-1]} if len(by_batch) > MOST else {*by_batch}
    reached = [
        f"{digits(row.interval.middle)} % with {size:,}"
        for size, row in zip(by_batch, rows, strict=True)
        if size in sizes
    ]
    reached[0] = reached[0].replace("with", "with batch")
    first, each = series.iloc[0], runs_each(counts)
    under = "" if first["schedule"] == OWN else f", schedule {first['schedule']}"
    text = [f"Top-1 is {listed(reached)} ({first['model']}{under}, {each})."]
    single = "as far as one run says, " * (min(counts) == 1)
    loses = " loses" if lost[:1] == larger[-1:] else " and larger lose"
    because = f": {single}{min(lost):,}{loses} more than a point of top-1" if lost else ""
    kept_all = f": {single}it loses no more than a point of top-1" * (taken == max(by_batch))
    text.append(f"Take {taken:,}{because or kept_all}.")
    if unsaid or single:
        once_s = series.groupby(["global_batch", "workers"])["run_s"].median()
        took = spent(3 * once_s.sum(), 3 * (once_s * once_s.index.get_level_values(1)).sum(), study.worker)
        of_which = f" about {listed(unsaid)}" if unsaid else ""
        text.append(f"3 more repeats (`repeats: {max(counts) + 3}`) would tell more{of_which} {took}.")
    shown = tuple(replace(row, taken=size == taken) for size, row in zip(by_batch, rows, strict=True))
    measure = "top-1 after the last epoch [%], by images per step of all workers"
    standing = Standing.OPEN if unsaid or single else Standing.SURE
    return Answer(BATCH, f"{taken:,}", standing, tuple(text), measure, shown, ids(series))


def _first(question: str, rows: Sequence[Point], words: str, measure: str, runs: tuple[str, ...] = ()) -> Answer:
    """An answer that takes the first of its rows, which is sure if its interval ends before those of others begin."""
    best, *others = rows
    level = [row.name for row in others if not (best.sure and row.sure and best.interval.high < row.interval.low)]  # type: ignore[operator]
    doubt = f"Not surely behind: {'; '.join(level[:MOST])}." if level else ""
    if best.interval.low is None:
        doubt = "One run has no interval; `repeats: 3` gives one."
    shown, text = (replace(best, taken=True), *others[: ROWS - 1]), tuple(filter(None, (words, doubt)))
    standing = Standing.SURE if best.sure and not level else Standing.AHEAD
    return Answer(question, best.name, standing, text, measure, shown, runs)


def times(study: PageStudy, runs: pd.DataFrame, reached: pd.DataFrame) -> Iterator[Answer]:
    """Which settings reach the accuracy that the study names soonest, with energy where it was measured."""
    for target in sorted({*reached["target"]} if len(reached) else ()):
        rows = reached[reached["target"] == target].sort_values("reached_s").head(ROWS)
        points = []
        for row in rows.to_dict("records"):
            name = ", ".join([_who(row), count_of(int(row["workers"]), study.worker), *settings(row, telling(rows))])
            points.append(Point(name, interval_of(row, "reached_s"), (row["reached_s"],)))
        best = together.alike(in_series(together.usable(runs)), rows.iloc[0], [*SERIES, "workers"])
        spent = rows["workers"] * rows["reached_s"] / 3600
        after = duration(points[0].interval.middle)
        words = f"{points[0].name} reaches {100 * target:.3g} % top-1 soonest, after {after}"
        energy_kwh = study.tariff.energy_kwh(float(best["full_energy_j"].median()))
        if energy_kwh is not None and not math.isnan(energy_kwh):
            words += f", with {digits(energy_kwh)} kWh"
        if points[1:]:
            later = digits(points[1].interval.middle / points[0].interval.middle)
            words += f"; the next, {points[1].name}, takes {later} times as long"
        if rows["workers"].nunique() > 1:
            least = int(spent.argmin())
            words += f". {points[least].name} takes the fewest {study.worker} hours, {digits(float(spent.iloc[least]))}"
        yield _first(TIME, points, f"{words}.", f"seconds to {100 * target:.3g} % top-1, less is better", ids(best))


def costs(study: PageStudy, runs: pd.DataFrame) -> Iterator[Answer]:
    """The cheapest and the fastest whole training, where a price or energy is known; of what learns."""
    runs = learning(runs)
    timed = runs[runs["full_train_s"].notna() & runs["timed"].astype(bool)]
    spent, unit = timed["full_energy_j"].astype("float64").map(study.tariff.energy_kwh) * 3600, "kJ"
    if study.tariff.currency is not None:
        spent, unit = pd.Series(_price(study, timed), timed.index, "float64"), study.tariff.currency
    timed = timed.assign(spent=spent)[spent > 0]  # counters that stand still measured nothing
    # A program ends when it likes: only its runs on as many samples cost alike.
    timed = timed.assign(trained=timed["images"].where(together.of_programs(timed)))
    best = max((same for _, same in timed.groupby(["model", *SAME, "trained"], dropna=False)), key=len, default=timed)
    rows = _rows(study, best, "spent")
    if len(rows) > 1 and rows[-1][0].interval.middle > MORE * rows[0][0].interval.middle:
        fast = _rows(study, best, "full_train_s")[0]
        cheap, quick = (duration(part["full_train_s"].median(), two_digits) for part in (rows[0][1], fast[1]))
        epochs = count_of(int(best["of_epochs"].fillna(best["epochs"]).iloc[0]), "epoch")
        if together.of_programs(best).all():
            epochs = f"{best['trained'].iloc[0]:,.0f} {study.sample}"
        words = f"The cheapest training ({best['model'].iloc[0]}, {epochs}) was {rows[0][0].name}: {rows[0][0].words}"
        words += f" {unit} in {cheap}" + f"; the fastest was {fast[0].name}, in {quick}" * (fast[0] != rows[0][0]) + "."
        measure = f"{unit} of a training, less is better"
        yield _first(COST, [row for row, _ in rows], words, measure, ids(rows[0][1]))


def _price(study: PageStudy, timed: pd.DataFrame) -> list[float | None]:
    """Return what each whole training costs. Runs of others were made on no node of ours: their workers count."""
    prices = []
    for run in timed.to_dict("records"):
        nodes = int(run["nodes"]) if study.ours else 0
        blocked = study.tariff.workers_blocked(int(run["workers"]), nodes)
        prices.append(study.tariff.price(run["full_train_s"] / 3600, blocked))
    return prices


def memory(study: PageStudy, runs: pd.DataFrame) -> Iterator[Answer]:
    """Which side takes the least memory of a worker, where another surely takes a tenth more."""
    peak = runs["peak_device_memory_bytes"].fillna(runs["peak_resident_bytes"]).astype("float64")
    unit, size = memory_unit(peak.max())  # as figure `memory` has it
    taken = runs.assign(peak=peak / size)[peak.notna()]
    axis = "framework" if taken["framework"].nunique() > 1 else "loader"
    where = "GPU memory" if taken["peak_device_memory_bytes"].notna().any() else "memory"
    for same in _with_most(taken, axis, ("workers", "global_batch", "schedule"))[:1]:
        held = {str(name): by_repeat(part, "peak") for name, part in same.groupby(axis)}
        rows = sorted((point(name, [*held[name].values()]) for name in held), key=lambda row: row.interval.middle)
        apart = {row.name: ratio(held[row.name], held[rows[0].name], one_of=len(rows) - 1) for row in rows[1:]}
        more = [name for name, pair in apart.items() if pair.low and pair.low > MORE]
        if more:
            on = count_of(int(same["workers"].iloc[0]), study.worker)
            words = f"On {on} a worker of {same['model'].iloc[0]} takes the least {where} with {rows[0].name}, "
            times = [f"{name} {ends(pair) if pair.low else digits(pair.middle)} times" for name, pair in apart.items()
                     if name in more]  # fmt: skip
            words += f"{rows[0].words} {unit}; {listed(times)} that."
            shown = tuple(replace(row, taken=row.name not in more) for row in rows)
            good = [row.name for row in shown if row.taken]  # what is not surely a tenth more is as good
            take = f"any but {listed(more)}" if len(good) > MOST else " or ".join(good)
            measure = f"{unit} of a worker's {where} on {on}, less is better"
            yield Answer(MEMORY, take, Standing.SURE, (words,), measure, shown, ids(same))


def latencies(table: pd.DataFrame) -> Iterator[Answer]:
    """Which way to ask a trained model answers soonest, with the smallest request."""
    answers = []
    for model, ours in table.dropna(subset=["latency_p50_s", "member"]).groupby("model") if len(table) else ():
        ours = ours[ours["batch"] == ours["batch"].min()]
        ways = [point(str(way), (1e3 * part["latency_p50_s"]).tolist()) for way, part in ours.groupby("member")]
        ways.sort(key=lambda way: way.interval.middle)
        asked = count_of(int(ours["batch"].iloc[0]), "picture")
        taken = listed([f"{digits(way.interval.middle)} ms by {way.name}" for way in ways])
        words = f"{model} answers half of all requests of {asked} in {taken}."
        answers.append(_first(LATENCY, ways, words, f"ms for {asked} to {model}, less is better"))
    if answers:
        yield replace(answers[0], others=tuple(answer.words[0] for answer in answers[1:]))


def rates(study: PageStudy, runs: pd.DataFrame) -> Iterator[Answer]:
    """What a study says that compares nothing: its rates, or of runs without one their accuracy."""
    question, unit, measure = RATES, f"{study.sample}/s", RATE
    if runs[RATE].isna().all():
        question, unit, measure, runs = ACCURACY, "% top-1", "top1", learned(runs)
    rows = [row for row, _ in _rows(study, runs[runs[measure].notna()], measure, ("model", "settings", "options"))]
    if rows:
        best = replace(rows.pop(), taken=True)
        take, words = f"{digits(best.interval.middle)} {unit}", f"{best.name}: {best.words} {unit}."
        standing = Standing.SURE if best.sure else Standing.OPEN
        yield Answer(question, take, standing, (words,), unit, (best, *rows[::-1][: ROWS - 1]), ids(runs))


def _who(row: Any) -> str:
    """`ddp and native`; of a program its name; of records of others, submitter and system, as figures name them."""
    if pd.isna(row["loader"]):
        return str(row["machine"])
    named = row.get("named", row["loader"])
    return str(row["framework"]) if named in (OWN, row.get("model")) else f"{row['framework']} and {named}"


def _rows(
    study: PageStudy, runs: pd.DataFrame, measure: str, named: Sequence[str] = ()
) -> list[tuple[Point, pd.DataFrame]]:
    """A row for each setting with its runs, the least first; `named` are settings that are said where they differ."""
    settings, alike = (*named, "schedule", "global_batch"), runs.groupby("workers")
    tell = [name for name in settings if len(runs) and alike[name].nunique().max() > 1]
    parts = [part for _, part in runs.groupby([*SIDES, "model", "workers", "global_batch", "schedule"], dropna=False)]
    parts.sort(key=lambda part: part[measure].median())
    rows, most = [], 100.0 if measure == "top1" else math.inf
    for part in parts:
        first = part.iloc[0]
        words = [_who(first), *(together.title(name, first[name]) for name in tell)]
        name = ", ".join([*words, count_of(int(first["workers"]), study.worker)])
        rows.append((point(name, part[measure].tolist(), most), part))
    return rows


def _with_most(runs: pd.DataFrame, axis: str, also: Sequence[str] = ()) -> list[pd.DataFrame]:
    """Of each model the runs of one setting: that with the most values of an axis, if these are several. The model with
    the most runs comes first.

    Numbers of workers follow batches. So a batch is asked of where several were trained on as many workers, or three.
    """
    found = []
    setting = [name for name in (*SIDES, *also) if name not in together.differing_with(axis)]
    for _, same in runs.groupby(["model", *SAME], dropna=False):
        groups = [part for _, part in same.groupby(setting, dropna=False)] if setting else [same]
        if axis == "global_batch":  # where a batch was trained on several numbers of workers, each alone
            mixed = [part["workers"].groupby(part[axis]).nunique().max() > 1 for part in groups]
            groups = [group for part, many in zip(groups, mixed, strict=True)
                      for group in ([ours for _, ours in part.groupby("workers")] if many else [part])]  # fmt: skip
            groups = [part for part in groups if part["workers"].nunique() == 1 or part[axis].nunique() > 2]
        most = max(groups, key=lambda part: (part[axis].nunique(), part["workers"].max(), len(part)), default=None)
        if most is not None and most[axis].nunique() > 1:
            found.append(most)
    return sorted(found, key=len, reverse=True)
