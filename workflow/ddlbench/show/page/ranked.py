"""Which framework, which loader, which form: sides of the same settings, ranked by their throughput.

Rates are those of the runs, verdicts those of table `comparisons`, which `analysis/statistics.py` decides. Of the
settings under which a study compares, one is the answer: with repeats, the most sides and the most workers. The others
are told one line each.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import pandas as pd

from ddlbench.analysis.comparisons import SHOWN, settings, telling
from ddlbench.analysis.scaling import names
from ddlbench.analysis.statistics import CANNOT_TELL, FASTER, FEWEST, SLOWER, Interval, at_once, difference
from ddlbench.analysis.together import by_repeat
from ddlbench.core.plural import count_of, digits, listed, runs_each
from ddlbench.core.registry import OWN
from ddlbench.show.page.about import PageStudy
from ddlbench.show.page.shown import LOSS, Answer, Point, Standing, ends, ids, learned, loads_nothing, point, spent

FRAMEWORK, LOADER, FORM = "Which framework?", "Which loader?", "Which form of the data?"
QUESTIONS = {"framework": FRAMEWORK, "loader": LOADER, "form": FORM}
BESIDE = {"framework": "loader", "loader": "framework", "form": ""}  # what both sides share, and another answer takes
PLAIN = ("ddp", "native", "torchvision", "raw")  # they come with PyTorch: nothing else is to be installed
MOST = 4  # sides that a sentence names
CEILING, LOSES, OTHER_FORM = "the ceiling", "loses accuracy", "other form"
ROWS = 16  # of the figure
OTHERS = 40  # other settings that are told; the table has all
MANY = 100  # repeats that nobody makes
ALIKE = 0.05  # sides that differ by less than this are alike for all that people do
NEAR = 0.8  # of the fastest side's rate: what comes with PyTorch is not taken below it
RATE = "throughput_images_per_s"
# Columns that are looked at: to cut all two hundred of a table into groups takes seconds.
READ = ("run", *QUESTIONS, "model", "dataset", "repeat", RATE, "final_top1", "run_s")


def sides(
    study: PageStudy, runs: pd.DataFrame, comparisons: pd.DataFrame, workers: str = "", model: str = ""
) -> Iterator[Answer]:
    """The answers for frameworks, loaders and forms, as far as the study compares them; `workers` are those that the
    page takes (`2 GPUs`), `model` is that for which it does. Frameworks and forms are judged with the loader taken,
    where they were run with it."""
    found: dict[str, list[_Cell]] = {}
    runs = runs[[name for name in READ if name in runs]]
    taken = {"": "", "loader": ""}
    for compared in ("loader", "framework", "form"):
        rows = _of_learning(comparisons[comparisons["compared"] == compared])
        # Table `comparisons` has all pairs of a setting, one row each.
        keys = [name for name in ("with", *SHOWN) if name in rows]
        cells = [_Cell(study, runs, compared, group) for _, group in rows.groupby(keys, dropna=False)]
        weight = partial(_Cell.weight, loader=taken["loader"], workers=workers, model=model)
        if cells := sorted((cell for cell in cells if len(cell.points) > 1), key=weight, reverse=True):
            found[compared], taken[compared] = cells, cells[0].taken.name
    for compared, question in QUESTIONS.items():
        if cells := found.get(compared, []):
            rows = _of_learning(comparisons[comparisons["compared"] == compared])
            tell = telling(rows)
            if rows.groupby([*tell, "with", "workers"], dropna=False)["global_batch"].nunique().max() > 1:
                tell.append("global_batch")
            others = [cell.line(tell) for cell in sorted(cells[1:], key=_Cell.alike)[:OTHERS]]
            if more := len(cells) - 1 - len(others):
                others.append(f"{more} more in the table of pairs.")
            answer = cells[0].answer(question, tell, others)
            words = _as_taken(cells, taken.get(BESIDE[compared], ""), workers)
            best = cells[0].ranked[0].name
            also = [cell for cell in cells[1:] if best in {side.name for side in cell.ranked}]
            if also[1:] or (also and not words):
                words.append(_elsewhere(best, also, tell))
            elsewhere = [cell.ranked[0].name for cell in also]
            if answer.standing is Standing.AHEAD and 2 * elsewhere.count(answer.take) < len(elsewhere) > 1:
                answer = replace(answer, standing=Standing.UNCLEAR)
            yield replace(answer, words=(*answer.words, *words))


def _as_taken(cells: Sequence["_Cell"], beside: str, workers: str) -> list[str]:
    """What is said where the page's other answers take another side, or other workers, than those that judge here."""
    first = cells[0]
    wanted = [first.place[0], beside or first.beside, workers or first.workers]
    others = [name for name in wanted if name not in first.place]
    there = next((cell for cell in cells if [*cell.place] == wanted), None)
    if not others or there is None:
        no = f"The other answers take {listed(others)}, with which no {first.compared}s were compared."
        return [no] * bool(others)
    also = ", too" * (there.taken.name == first.taken.name)
    return [f"With {listed(others)}, the page's other answers, it is {there.taken.name}{also} ({there.standing})."]


def _elsewhere(best: str, others: Sequence["_Cell"], tell: list[str]) -> str:
    """How often the fastest side is fastest under its other settings, too; or which one is, and how often surely."""
    ((most, count),) = Counter(cell.ranked[0].name for cell in others).most_common(1)
    surely = sum(cell.ranked[0].name == most and not cell.level for cell in others)
    if len(others) == 1:
        words = f"{others[0].where(tell)} {most} is the fastest{', too' * (most == best)}"
        return f"{words}{', not surely' * (not surely)}."
    kept = sum(cell.ranked[0].name == best for cell in others)
    words = f"{best} is the fastest in {kept} of {count_of(len(others), 'other setting')}"
    words += f", {most} in {count}" * (count > kept)
    return f"{words}, {f'surely in {surely}' if surely else 'never surely'}."


class _Cell:
    """Sides with the same settings, and the pairs of them."""

    def __init__(self, study: PageStudy, runs: pd.DataFrame, compared: str, pairs: pd.DataFrame) -> None:
        self.study, self.compared = study, compared
        self.pairs = [{str(name): value for name, value in row.items()} for row in pairs.to_dict("records")]
        ours = runs[runs["run"].isin({run for row in self.pairs for run in row["runs"].split()})]
        self.runs = ours
        side = names(runs).loc[ours.index] if compared == "loader" else ours[compared]
        points = [point(str(name), part[RATE].tolist()) for name, part in ours.groupby(side)]
        self.top1 = {str(name): by_repeat(part, "top1") for name, part in learned(ours).groupby(side)}
        self.points = sorted(points, key=lambda point: -point.interval.middle)
        self.ceiling = {
            str(name)
            for name, loader in zip(side, ours["loader"], strict=True)
            if compared == "loader" and loads_nothing(loader)
        }
        self.ranked = [point for point in self.points if point.name not in self.ceiling] or self.points

        first = self.pairs[0]
        self.beside, self.workers = str(first["with"]), count_of(int(first["workers"]), study.worker)
        self.place = (str(first["model"]), self.beside, self.workers)

    def weight(self, loader: str, workers: str, model: str) -> tuple[int, ...]:
        """What makes it the answer: repeats, `loader`, `workers` and `model` that the page takes, sides, workers."""
        least, most = min(row["n"] for row in self.pairs), int(self.pairs[0]["workers"])
        beside = self.beside == loader or self.beside.endswith(f" and {_loader(loader)}")
        fits = beside + (self.workers == workers) + (self.place[0] == model)
        return min(least, 2), fits, len(self.ranked), most, least, len(self.runs)

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of the best side and each of the others, by their rank, turned so that the best is on the left.

        Loaders that read different forms, of which one reads the other's form too, are no pair.
        """
        best = self.fit[0].name
        rows = {row["right"]: row for pair in self.pairs for row in (pair, _turned(pair)) if row["left"] == best}
        return {side.name: rows[side.name] for side in self.fit if side.name in rows}

    def alike(self) -> bool:
        """Whether none of its sides is told from another."""
        return all(row["verdict"] not in (FASTER, SLOWER) for row in self.pairs)

    @property
    def level(self) -> list[Point]:
        """The sides that are not told from the best."""
        return [side for side in self.fit if side.name in self.rows and self.rows[side.name]["verdict"] != FASTER]

    @property
    def taken(self) -> Point:
        """The best, or of those that are not told from it one that comes with PyTorch and is nearly as fast."""
        best = self.fit[0]
        near = [side for side in (best, *self.level) if side.interval.middle >= NEAR * best.interval.middle]
        return next((side for name in PLAIN for side in near if side.name == name), best)

    @property
    def alone(self) -> list[str]:
        """The sides that read other forms, and so are not judged beside the best."""
        return [side.name for side in self.fit[1:] if side.name not in self.rows]

    @property
    def standing(self) -> Standing:
        """How surely the side taken is told."""
        if not self.level:
            return Standing.OPEN if self.alone else Standing.SURE
        if self._tie(self.rival):
            return Standing.TIE
        return Standing.AHEAD if self.taken is self.fit[0] else Standing.DEFAULT

    @property
    def rival(self) -> Point:
        """Of the sides that are not told from the best, the one that matters to the answer."""
        return self.level[0] if self.taken is self.fit[0] else self.taken

    def _tie(self, rival: Point) -> bool:
        row = self.rows[rival.name]
        return bool(row["n"] > 1 and row["low"] > 1 - ALIKE and row["high"] < 1 + ALIKE)

    @cached_property
    def fit(self) -> list[Point]:
        """The sides that lose no accuracy, the best first: the fastest."""
        return [side for side in self.ranked if not self.accuracy.get(side.name, "").startswith("-")]

    @cached_property
    def accuracy(self) -> dict[str, str]:
        """By side, points of top-1 beside the side that comes with PyTorch, or the slowest: `-9.1 (2 runs each)`. Those
        of more than a point that are told apart, or further from it than the runs of a side from each other."""
        judged = [side.name for side in self.ranked if side.name in self.top1]
        base = next((name for name in (*PLAIN, *judged[::-1]) if name in judged), "")
        others = [name for name in judged if name != base]
        apart = at_once([difference(self.top1[name], self.top1[base]) for name in others], same=0.0)
        found = {}
        for name, points in zip(others, apart, strict=True):
            ours, theirs = (sorted(self.top1[side].values()) for side in (name, base))
            beyond = max(ours[0] - theirs[-1], theirs[0] - ours[-1]) > max(ours[-1] - ours[0], theirs[-1] - theirs[0])
            certain = points.verdict != CANNOT_TELL
            if abs(points.middle) > LOSS and (certain or beyond):
                how = f"{points.low:+.1f} to {points.high:+.1f}" if certain else f"{count_of(points.n, 'run')} each"
                found[name] = f"{points.middle:+.1f} ({how}) beside {base}"
        return found

    def _accuracy(self) -> list[str]:
        """What loses accuracy is not taken; what gains some is said."""
        found = [f"{name} {points}" for name, points in self.accuracy.items()]
        words = f"Mind the accuracy, in points of top-1: {listed(found)}."
        return [words + " What loses is not taken." * (len(self.fit) < len(self.ranked))] * bool(found)

    def answer(self, question: str, tell: list[str], others: list[str]) -> Answer:
        """What to take, what is told from it, and what is not."""
        best = self.fit[0]
        text = [f"{self.where(tell)} {self._rates()}.", *self._surely(), *self._further(), *self._accuracy()]
        if other := [name for name in self.alone if _loader(name) != _loader(best.name)]:
            others = [f"{listed(other)} read another form: not judged beside {best.name}.", *others]
        if self.alone != other:
            others = [f"Forms of {_loader(best.name)} are judged in the next answer.", *others]
        measure = f"{self.study.sample}/s o{self.where(tell)[1:-1]}"
        shown = tuple(self._shown(side) for n, side in enumerate(self.points) if n < ROWS or side is self.taken)
        measure += f", {len(shown)} of {len(self.points)} sides" * (len(shown) < len(self.points))
        standing = self.standing
        return Answer(question, self.taken.name, standing, tuple(text), measure, shown, ids(self.runs), tuple(others))

    def line(self, tell: list[str]) -> str:
        """What is said of it where another setting is the answer."""
        return " ".join([f"{self.where(tell)} {self._rates()}.", *self._surely(), *self._accuracy()])

    def where(self, tell: list[str]) -> str:
        """`On 2 GPUs with native (lenet):` with which loader or framework, under which settings that differ."""
        beside = f" with {self.beside}" if self.beside and self.beside != OWN else ""
        under = ", ".join(text for text in settings(self.pairs[0], tell) if text != self.beside)
        return f"On {self.workers}{beside}{f' ({under})' * bool(under)},"

    def _shown(self, side: Point) -> Point:
        """Its row of the figure, with a note if it is no candidate."""
        note = OTHER_FORM * (side.name in self.alone) or LOSES * (side not in self.fit)
        note = CEILING if side.name in self.ceiling else note
        return replace(side, taken=side is self.taken, note=note, candidate=not note)

    def _rates(self) -> str:
        """`DeepSpeed reaches 1,277 images/s, Horovod 979 and DDP 869`."""
        first, *rest = self.ranked
        named = [f"{side.name} {digits(side.interval.middle)}" for side in rest]
        if len(named) > MOST:
            named = [*named[: MOST - 1], f"{len(named) - MOST + 1} more at least {digits(rest[-1].interval.middle)}"]
        words = f"{first.name} reaches {listed([f'{digits(first.interval.middle)} {self.study.sample}/s', *named])}"
        repeats = [len(side.runs) for side in self.ranked]
        aside = [runs_each(repeats)] * (max(repeats) > 1)
        for side in self.points:
            if side.name in self.ceiling and side not in self.ranked:
                share = f"{100 * first.interval.middle / side.interval.middle:.0f} %"
                aside.append(f"{first.name} at {share} of {side.name}, which loads nothing")
        return words + f" ({'; '.join(aside)})" * bool(aside)

    def _surely(self) -> list[str]:
        """What the best is surely faster than, and by how much."""
        best, rows = self.fit[0], self.rows
        slower = [name for name, row in rows.items() if row["verdict"] == FASTER]
        if not slower:
            repeats = max((row["n"] for row in rows.values()), default=0)
            why = f": {repeats} runs each are too few to say so, even of bars that lie apart" * (repeats < FEWEST)
            return [f"None is surely slower than {best.name}{why}."] * (len(rows) > 1 < repeats)
        whom = "all others" if len(slower) == len(rows) > 1 and not self.alone else listed(slower)
        of_whom = f" {slower[0]}" if len(slower) > 1 else ""
        return [f"{best.name} is surely faster than {whom} ({_times(rows[slower[0]])}{of_whom})."]

    def _further(self) -> list[str]:
        """Where it is not sure: by how much, and the cheapest runs that would decide, with what they take."""
        if not self.level:
            return []
        best, rival = self.fit[0], self.rival
        row, few = self.rows[rival.name], min(best, rival, key=lambda side: len(side.runs))
        uneven = row["n"] < 2 and len(best.runs) != len(rival.runs)
        once_s = self._once(few) if uneven else self._once(best, rival)
        more = 2 if row["n"] < 2 else row["more_repeats"]
        took = "" if pd.isna(more) else spent(more * once_s, more * once_s * int(row["workers"]), self.study.worker)
        if row["n"] < 2:
            plain = f"{rival.name} comes with PyTorch. " * (rival is self.taken)
            cure = f"2 more runs of {few.name}" if uneven else "`repeats: 3`"
            each = "One pair of runs" if uneven else "One run each"
            return [f"{plain}{each} shows nothing surely. To settle it: {cure} {took}."]
        plain = "which comes with PyTorch, " * (rival is self.taken)
        beside = f"Beside {rival.name}, {plain}{best.name} is {_times(row)} as fast"
        if self._tie(rival):
            return [f"{beside}: take either."]
        if not took or more > MANY:
            return [f"{beside}: not even {MANY} more repeats would tell."]
        return [f"{beside}. To settle it: about {count_of(int(more), 'more repeat')} of each {took}."]

    def _once(self, *sides: Point) -> float:
        """Seconds that one run of each of these sides takes, one after the other."""
        names_ = {side.name for side in sides}
        side = self.runs["loader" if self.compared == "loader" else self.compared].astype(str)
        ours = self.runs[side.isin({_loader(name) for name in names_})]
        return float(ours.groupby(side)["run_s"].median().sum())


def _loader(name: str) -> str:
    """A loader without its form; a framework as it is."""
    return name.split(" (")[0]


def _of_learning(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons of sides that share a loader which reads something; all, where there are none."""
    kept = rows[~rows["with"].map(lambda beside: loads_nothing(_loader(str(beside)))).astype(bool)]
    return kept if len(kept) else rows


def _turned(row: dict[str, Any]) -> dict[str, Any]:
    middle, low, high = (None if pd.isna(row[end]) else 1 / row[end] for end in ("ratio", "high", "low"))
    verdict = {FASTER: SLOWER, SLOWER: FASTER}.get(row["verdict"], row["verdict"])
    turned = {"ratio": middle, "low": low, "high": high, "verdict": verdict}
    return row | turned | {"left": row["right"], "right": row["left"]}


def _times(row: Mapping[str, Any]) -> str:
    interval = Interval(1.0, float(row["low"]), float(row["high"]), 2)
    if Point("", interval, ()).noisy:
        return f"about {digits(row['ratio'])} times, too noisy to say,"
    return f"{ends(interval)} times"
