"""One page of all studies in a folder of results: `results/index.html`, with a line of answers for
each.

It is made of the `study.json` that lies beside each study's page, also of what was kept under a
name. It is made again whenever a page is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from ddlbench.core import layout
from ddlbench.core.files import write_text

HERE = Path(__file__).parent
RATE = "throughput_images_per_s"
NAMED = ("model", "framework", "loader", "workers", "global_batch")  # what is said of a setting
WIDTH, HEIGHT = 120.0, 24.0  # of a sparkline [pixels]


@dataclass(frozen=True)
class Entry:
    """The contents of one `study.json`; `problem` is why nothing can be read of it.

    `kept` is the name under which it was kept, "" for the study's present state. `rates`: samples
    per second, by the settings as JSON.
    """

    study: str
    machine: str
    kept: str
    page: str
    title: str = ""
    until: str = ""
    answers: tuple[tuple[str, str, str], ...] = ()  # question, what to take, how sure that is
    rates: Mapping[str, float] | None = None
    problem: str = ""


@dataclass(frozen=True)
class Line:
    """A study on a machine: its present state (or its newest kept one), and the states that were
    kept before.
    """

    entry: Entry
    kept: tuple[Entry, ...]
    setting: str = ""  # whose rate the sparkline shows
    rates: tuple[tuple[str, float], ...] = ()  # until when, samples per second

    @property
    def spark(self) -> str:
        """Return the points of a polyline through the rates, from 0 on; "" for fewer than two."""
        if len(self.rates) < 2:
            return ""
        most = max(rate for _, rate in self.rates)
        step = WIDTH / (len(self.rates) - 1)
        return " ".join(
            f"{n * step:.1f},{HEIGHT * (1 - rate / most):.1f}"
            for n, (_, rate) in enumerate(self.rates)
        )


def write(results: Path = layout.RESULTS) -> None:
    """Write `index.html` of a folder of results. The file is replaced completely or not at all."""
    out = results / "index.html"
    style = (HERE / "page" / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    write_text(
        out,
        environment.get_template("overview.html.jinja").render(
            lines=lines(entries(results)), style=Markup(style), digest=digest, size=(WIDTH, HEIGHT)
        ),
    )


def entries(results: Path) -> list[Entry]:
    """Read all studies in a folder of results, in the order of their paths."""
    found = []
    for path in sorted(results.glob("*/*/study.json")):
        found.append(_entry(results, path, "", *path.parts[-3:-1]))
    for path in sorted(results.glob("kept/*/*/*/study.json")):
        found.append(_entry(results, path, *path.parts[-4:-1]))
    return found


def lines(entries: Sequence[Entry]) -> list[Line]:
    """Return a line for each study and machine, in their order."""
    by_place: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        by_place.setdefault((entry.study, entry.machine), []).append(entry)
    return [_line(of_one) for _, of_one in sorted(by_place.items())]


def _line(of_one: Sequence[Entry]) -> Line:
    """Return the line of one study on one machine. The sparkline is of the fastest setting that all
    its dates have.
    """
    in_time = sorted(of_one, key=lambda entry: (entry.kept == "", entry.until, entry.kept))
    newest, *before = reversed(in_time)
    dated = [entry for entry in in_time if entry.rates]
    common = (
        set.intersection(*({*entry.rates} for entry in dated if entry.rates))
        if len(dated) > 1
        else set()
    )
    if not common:
        return Line(newest, tuple(before))
    last = dated[-1].rates or {}
    setting = max(sorted(common), key=lambda name: last[name])
    rates = tuple((entry.until, entry.rates[setting]) for entry in dated if entry.rates)
    settings = json.loads(setting)
    return Line(
        newest, tuple(before), ", ".join(f"{name} {settings.get(name)}" for name in NAMED), rates
    )


def _entry(results: Path, path: Path, kept: str, study: str, machine: str) -> Entry:
    page = quote(str(path.with_name("index.html").relative_to(results)))
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        answers = tuple(
            (str(a["question"]), str(a["take"]), str(a["certainty"])) for a in said["answers"]
        )
        rates = dict(_rates(said["points"]))
        return Entry(
            study, machine, kept, page, str(said["title"]), str(said["to"] or ""), answers, rates
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Entry(
            study,
            machine,
            kept,
            page,
            problem=f"{path.name} cannot be read: {type(error).__name__}",
        )


def _rates(points: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield each setting that has a rate, as JSON, with the median of its runs."""
    for point in points:
        rate = point["quantities"].get(RATE, {}).get("median")
        if rate:
            yield json.dumps(point["settings"], sort_keys=True), float(rate)
