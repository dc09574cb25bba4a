"""The words of the first screen and of the page, as made-up studies get them.

Tests ask for values; the wording is in one place, `wording.txt`. Whoever rewords a template reads
what changed, and accepts it: `python -m tests.wording > tests/wording.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from ddlbench.analysis.price import Tariff
from ddlbench.answers import wording
from ddlbench.answers.choose import First

from tests.builders.results import STUDIES, first, ran, ran_program, reached, whole_steps
from tests.unit.pages import make

KEPT = Path(__file__).with_suffix(".txt")
ACCEPT = "python -m tests.wording > tests/wording.txt"
NOUNS = wording.Nouns("GPU")
# Elements of a page with words of its templates; what stands in a table are values.
OF_WORDS = {
    "title",
    "h1",
    "h2",
    "h3",
    "p",
    "summary",
    "button",
    "label",
    "legend",
    "li",
    "a",
    "dt",
    "caption",
}
NO_WORDS = {"style", "script", "tbody", "thead", "dl", "pre", "svg"}


def text() -> str:
    """Return all of it, a line for each part of an answer and each element of the page."""
    lines = [
        line for name, screen in screens().items() for line in (f"# {name}", *of_screen(screen), "")
    ]
    return "\n".join([*lines, "# page", *of_page(), ""])


def screens() -> dict[str, First]:
    """Return first screens that ask each question."""
    tariff = Tariff(2.5, "EUR", 4)
    made = {name: first(rows, tariff=tariff) for name, rows in STUDIES.items()}
    few = [
        one
        for name, rate in (("ddp", 100.0), ("fsdp", 105.0))
        for one in ran(rate, (0.0,), framework=name)
    ]
    forms = (("raw", 100.0), ("webdataset", 80.0))
    ways = (("plain", 0.002), ("int8", 0.001))
    asked = [
        {"model": "lenet", "batch": b, "member": way, "workers": 1, "latency_p50_s": s * b}
        for way, s in ways
        for b in (1, 64)
    ]
    trained = [
        one
        for n, s in ((4, 7200.0), (8, 5400.0), (16, 5200.0))
        for one in ran(100.0 * n, workers=n, full_train_s=s)
    ]
    made["forms"] = first(
        [one for form, rate in forms for one in ran(rate, loader="native", form=form)]
    )
    made["one run each"] = first(few, tariff=tariff)
    alone = [one for n in (1, 2) for one in ran_program(100.0 * n**0.5, workers=n)]
    made["a program"] = first(alone, sample="tokens", losses=whole_steps(alone))
    made["one side"] = first(ran(100.0))
    made["models that are asked"] = first([], inference=pd.DataFrame(asked))
    times = {4: [90.0, 91.0, 89.0], 8: [36.0, 37.0]}
    made["a target"] = first(trained, goal="target", reached=reached(trained, times))
    made["a target that is not reached"] = first(trained, goal="target")
    made["nothing"] = first([])
    return made


def of_screen(screen: First) -> Iterator[str]:
    """Give the words of a first screen."""
    for answer in screen.answers:
        told = wording.told(answer, NOUNS)
        for part in (*wording.PARTS, "certainty"):
            yield f"{answer.question}.{part}: {getattr(told, part)}"
        yield from (f"{answer.question}.other: {other}" for other in told.others)
        yield from (
            f"{answer.question}.row: {row.name} | {row.note} | {row.value}" for row in told.rows
        )
    yield f"judged: {wording.judged(screen, NOUNS)}"
    yield from (f"not asked: {words}" for words in wording.not_asked(screen, NOUNS))


def of_page() -> Iterator[str]:
    """Give the words of a page, each once, without those of tables, scripts and styles."""
    with TemporaryDirectory() as folder:
        page = make(Path(folder)).read_text(encoding="utf-8")
    yield from dict.fromkeys(_Words(page).lines)


class _Words(HTMLParser):
    """The text of elements that have words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []
        self._said = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in OF_WORDS or tag in NO_WORDS:
            self._end()
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._end()
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and not NO_WORDS & {*self._open}:
            self._said += data

    def _end(self) -> None:
        words = " ".join(self._said.split())
        self._said = ""
        if re.search(r"[A-Za-z]{2}", words):
            self.lines.append(f"{self._open[-1]}: {words}")


if __name__ == "__main__":
    print(text(), end="")
