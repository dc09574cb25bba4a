"""Puts the page of a study together: tables, figures, and where each number comes from, in one
file.

The page's policy (Content-Security-Policy) allows its own script and style by their digests,
pictures within it, and nothing else: no network, no script from a study. Jinja2 escapes whatever it
is given. A picture is an image, of which a browser runs and loads nothing.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from ddlbench.analysis import failures, refusals, together
from ddlbench.analysis.tables import OF_JOBS
from ddlbench.analysis.together import ended_well, successful
from ddlbench.answers import choose, wording
from ddlbench.audit import finding_rows
from ddlbench.core import layout
from ddlbench.core.files import sha256, write_json, write_text
from ddlbench.core.formatting import between, count_of, listed
from ddlbench.core.registry import OWN
from ddlbench.preflight.__main__ import summary
from ddlbench.preflight.judge import Problem
from ddlbench.show.page import explore, numbers, page_tables, picture, rows, sections, shown, spent
from ddlbench.show.page.about import PageFigure, PageStudy

HERE = Path(__file__).parent
TABLES = ("runs", "comparisons", "losses", "kernels", "failures", "refused")
MOST_UNBROKEN = 20  # letters of a word, or of a part of a longer one, that are never broken
MEASURED = 20  # lines of what a preflight measured; its file has all


def write(study: PageStudy, out: Path, results: Path = layout.RESULTS) -> None:
    """Write the page of a study as one file, from what lies beside it and in `results`;
    `study.json` beside it says the same for programs. Each is whole, or not there. Raises OSError
    for a table or a figure that is missing.
    """
    read, audit = read_tables(study, out.parent)
    runs = [str(run) for run in read["runs"]["run"]]
    folders = {run: Path(layout.run(run, results=results)) for run in runs}

    def step(some: Sequence[str], left_out: refusals.Spoilers[str]) -> tuple[dict[str, Any], str]:
        others = {*runs} - {*some}
        tables = _only(read, some, refusals.spoiler_rows(folders, left_out)) if others else read
        findings = [row for row in audit if others.isdisjoint(row["runs"].split("; "))]
        first = first_screen(study, tables, findings)
        found = numbers.found(study, tables, findings, first)
        json.dumps(found)
        return found, html(study, tables, findings, first, out.parent, results)

    (found, text), spoilers = refusals.sparing(runs, step)
    print(
        *refusals.lines(refusals.spoiler_rows(folders, spoilers)),
        sep="\n",
        end="\n" * bool(spoilers),
    )
    write_json(out.with_name("study.json"), found)
    write_text(out, text)


def first_screen(
    study: PageStudy, tables: Mapping[str, pd.DataFrame], findings: Sequence[Mapping[str, str]]
) -> choose.First:
    """Return the answers of a study, from its tables and its audit's findings."""
    return choose.first(
        tables,
        findings,
        tariff=study.tariff,
        goal=study.goal,
        ours=study.ours,
        sample=study.sample,
        looks=study.looks,
        looked=study.looked,
    )


def _only(
    read: Mapping[str, pd.DataFrame], runs: Sequence[str], refused: Sequence[Mapping[str, Any]]
) -> dict[str, pd.DataFrame]:
    """Return the tables without the rows of other runs; these are in table `refused`, with the rows
    that say why.
    """
    few = {}
    for name, table in read.items():
        if name == "refused":
            few[name] = pd.concat(
                [table, pd.DataFrame([*refused], columns=table.columns)], ignore_index=True
            )
        elif name == "failures" or not {"run", "runs"} & {*table.columns}:
            few[name] = table
        elif "run" in table:
            few[name] = table[table["run"].isin(runs)].reset_index(drop=True)
        else:  # a comparison names all of its runs
            of_these = [{*str(ids).split()} <= {*runs} for ids in table["runs"]]
            few[name] = table[pd.Series(of_these, index=table.index, dtype=bool)].reset_index(
                drop=True
            )
    return few


def read_tables(
    study: PageStudy, home: Path
) -> tuple[dict[str, pd.DataFrame], list[dict[str, str]]]:
    """Read the tables that a page shows, by name, and the audit's findings."""
    folder = home / "tables"
    read = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
    read |= {"frameworks": pd.read_csv(folder / "frameworks.csv")} | sections.read(folder)
    read["reached"] = _reached(study, home)
    for name in OF_JOBS:  # of a study with such jobs
        path = folder / f"{name}.parquet"
        read[name] = pd.read_parquet(path) if path.exists() else pd.DataFrame()
    return read, finding_rows.read(folder / "audit.csv")


def html(
    study: PageStudy,
    read: Mapping[str, pd.DataFrame],
    audit: list[dict[str, str]],
    first: choose.First,
    home: Path,
    results: Path = layout.RESULTS,
) -> str:
    """Render the page of what was read of the folder `home`."""
    runs = read["runs"]
    ids = set(rows.first_rows(runs)["run"])  # those that have a row to lead to
    about = choose.rules_by_run(audit, "warning")
    style, script = (
        (HERE / f"page.{suffix}").read_text(encoding="utf-8") for suffix in ("css", "js")
    )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.globals["anchor"] = rows.anchor
    environment.filters |= {"code": _code, "breakable": breakable}
    environment.tests["drawn"] = shown.drawn
    figures = [_figure(figure, runs, ids, home) for figure in study.figures]
    nouns = study.nouns
    page = page_tables.every(study, read, audit, ids, about, results)
    sources, others, given = list[rows.PageTable](), page, sections.Given(study, read, ids, results)
    for section in sections.every():
        if section.first:
            taken, others = section.first(given, others)
            sources += taken
    return environment.get_template("page.html.jinja").render(
        study=study,
        policy=(
            f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src"
            f" {_digest(script)}; base-uri 'none'; form-action 'none'"
        ),
        style=Markup(style),
        script=Markup(script),
        first=first,
        answers=shown.answers(first, nouns),
        judged=wording.judged(first, nouns),
        not_asked=wording.not_asked(first, nouns),
        tiles=spent.tiles(study.bill, study.unit, study.planned) if study.bill else [],
        figures=figures,
        sources=sources,
        series=(series := explore.series(runs)),
        wide=any(len(line["points"]) > 4 for line in series),
        tables=others,
        ended=bool(ended_well(runs).any()),
        lost=_lost(read),
        lost_in=_lost_in(read),
        what=_what(runs),
        measured=_measured(runs),
        hardware=_hardware(runs),
        preflight=_preflight(study, results),
        files=_files(study, home),
    )


def _reached(study: PageStudy, home: Path) -> pd.DataFrame:
    """Return the times to the accuracies that the study's figures name, with this accuracy: column
    `target`.
    """
    named = [
        figure for figure in study.figures if figure.plot == "time-to-accuracy" and figure.target
    ]
    read = [
        pd.read_csv(home / f"figures/{figure.name}.csv").assign(target=figure.target)
        for figure in named
    ]
    return pd.concat(read) if read else pd.DataFrame()


def _code(words: str) -> Markup:
    """Format words as HTML, with what stands between backticks as code."""
    parts = words.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(parts)
    )


def breakable(text: str) -> Markup:
    """Format text as HTML in which long words may break: after a comma and the like, and those of
    which a part is longer than MOST_UNBROKEN, anywhere.
    """
    return Markup("").join(map(_with_breaks, re.split(r"(\s+)", text)))


def _with_breaks(word: str) -> Markup:
    if len(word) <= MOST_UNBROKEN:
        return escape(word)
    parts = re.split(r"(?<=[,_;=:/-])(?=.)|(?<=\.)(?=[A-Za-z])", word)
    pieces = (re.findall(rf".{{1,{MOST_UNBROKEN}}}", part, re.S) for part in parts)
    return Markup("<wbr>").join(piece for some in pieces for piece in some)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _figure(figure: PageFigure, runs: pd.DataFrame, ids: set[str], home: Path) -> dict[str, Any]:
    """Return what the template shows of a figure; its runs in `ids` are named."""
    paths = {suffix: home / f"figures/{figure.name}.{suffix}" for suffix in ("pdf", "svg", "csv")}
    text, names = f"{figure.jobs}.", list[str]()
    if not figure.jobs:
        # For records of others, no plan determines which of them a figure shows.
        of_figure = successful(runs[runs["run"].isin(figure.runs) | (not figure.runs)])
        missing = len(figure.runs) - len(of_figure)
        lacks = f", {missing} more are missing or failed" if missing > 0 else ""
        text = (
            f"{len(of_figure)} runs{lacks}, up to"
            f" {count_of(of_figure['repeat'].nunique(), 'repeat')}."
        )
        linked = {*of_figure["run"]} & ids
        names = [run for run in figure.runs or of_figure["run"] if run in linked]
    # Its own words, which begin with what it shows, or else those of its kind.
    caption, _, how_to_read = (picture.caption(paths["svg"]) or figure.caption).partition("\n")
    return {
        "title": figure.title,
        "image": picture.image(
            paths["svg"], " ".join(filter(None, [f"{figure.title}.", caption, how_to_read]))
        ),
        "picture": paths["svg"].name,
        "downloads": [
            (suffix.upper(), paths[suffix].name, picture.download(paths[suffix], home))
            for suffix in ("pdf", "csv")
        ],
        "caption": caption,
        "how_to_read": how_to_read,
        "made": text,
        "runs": names[: rows.NAMED],
        "more_runs": len(names[rows.NAMED :]),
        "all_runs": f"figures/{figure.name}.runs.csv",
    }


def _hardware(runs: pd.DataFrame) -> str:
    """Describe processors, GPUs and versions, in one sentence."""
    devices = (
        ", ".join([*numbers.named(runs, "cpu"), *numbers.named(runs, "gpu")]) or "unknown hardware"
    )
    versions = [f"Python {version}" for version in numbers.named(runs, "python_version")]
    versions += [f"torch {version}" for version in numbers.named(runs, "torch_version")]
    for member in ("framework", "loader"):
        versions += [
            f"{member} {version}" for version in numbers.named(runs, member, f"{member}_version")
        ]
    return f"Hardware: {devices}. Versions: {'; '.join(versions) or 'unknown'}."


def _measured(runs: pd.DataFrame) -> str:
    """Describe when runs were measured, in UTC."""
    began = runs["started_s"].dropna()
    if began.empty:
        return ""
    days = dict.fromkeys(rows.day(float(when)).split()[0] for when in (began.min(), began.max()))
    return f"begun {' to '.join(days)}"


def _what(runs: pd.DataFrame) -> str:
    """Describe how many runs of what: `48 runs of lenet on mnist5k, up to 3 repeats`."""
    usable = together.usable(runs)
    models, data = (sorted({*usable[name].dropna().astype(str)}) for name in ("model", "dataset"))
    if len(models) not in range(1, 4):
        return ""
    on = f" on {listed(data)}" if len(data) in range(1, 4) and data not in (models, [OWN]) else ""
    repeats = count_of(usable["repeat"].nunique(), "repeat")
    cables = {*usable["bandwidth_mbit"].dropna()}
    over = f" over {between(min(cables), max(cables))} Mbit/s" if cables else ""
    return f"{count_of(len(usable), 'run')} of {listed(models)}{on}{over}, up to {repeats}"


def _lost(read: Mapping[str, pd.DataFrame]) -> str:
    """Describe what no answer knows of: `3 failed runs (out of memory) and 1 refused record`."""
    failed, refused = failures.of_runs(read["failures"]), len(read["refused"])
    causes = ", ".join(sorted({*failed["cause"].fillna("no report")}))
    words = [f"{count_of(len(failed), 'failed run')} ({causes})"] * bool(len(failed))
    return listed([*words, *[count_of(refused, "refused record")] * bool(refused)])


def _lost_in(read: Mapping[str, pd.DataFrame]) -> str:
    """Return the section of the page that lists what no answer knows of."""
    return "failures" if len(failures.of_runs(read["failures"])) else "refused"


def _preflight(study: PageStudy, results: Path) -> dict[str, Any] | None:
    """Return what the last preflight found and measured, if there was one."""
    path = results / "machines" / study.machine / f"preflight-{study.name}.json"
    try:
        preflight = json.loads(path.read_text(encoding="utf-8"))
        lines = summary(preflight["ranks"])
        return {
            "when": rows.day(float(preflight["time"])),
            "problems": [Problem(**problem) for problem in preflight["problems"]],
            "measured": lines[:MEASURED],
            "left": max(0, len(lines) - MEASURED),
            "file": f"{study.up}machines/{study.machine}/{path.name}",
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _files(study: PageStudy, home: Path) -> list[tuple[str, str, str]]:
    """Return (file, its address from the page, its SHA-256): what the page is made of."""
    names = dict.fromkeys([f"{name}.parquet" for name in TABLES] + [*sections.files()])
    paths = [home / "tables" / name for name in (*names, "audit.csv", "frameworks.csv")]
    paths += [home / "figures" / f"{figure.name}.csv" for figure in study.figures]
    return [(path.name, path.relative_to(home).as_posix(), sha256(path)) for path in paths]
