"""Puts the page of a study together: tables, figures, and where each number comes from, in one file.

The page's policy (Content-Security-Policy) allows its own script and style by their digests, pictures within it, and
nothing else: no network, no script from a study. Jinja2 escapes whatever it is given; the only markup that passes is
what `picture.inline` made of shapes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from ddlbench import layout, registry
from ddlbench.analysis.nodes import COLUMNS as NODES
from ddlbench.audit import _findings
from ddlbench.columns import Column
from ddlbench.files import sha256, write_text
from ddlbench.page import answer, picture, rows, spent
from ddlbench.plan import runs as plan_runs
from ddlbench.plan.row import Row
from ddlbench.plan.runs import Plan
from ddlbench.plural import count_of
from ddlbench.preflight.__main__ import summary

HERE = Path(__file__).parent
TABLES = ("runs", "comparisons", "losses", "kernels", "operations", "messages", "failures", "refused")
# The figure beside the answer is the first of these that a study has; else its first.
FIRST = ("efficiency", "speed-up", "throughput")
MEASURED = 20  # lines of what a preflight measured; its file has all


@dataclass(frozen=True)
class Figure:
    """A figure of the study: its file is `layout.figure(study, name)`; `runs` are those that it shows (ids).

    `reference` is the file of published numbers that is drawn beside it.
    `asked` are jobs of inference, of a figure that shows these instead.
    """

    name: str
    title: str
    plot: str
    caption: str
    runs: tuple[str, ...]
    reference: str | None = None
    asked: int = 0


@dataclass(frozen=True)
class Study:
    """What a page is about. `command` makes it again; `planned` is what a plan said beforehand, by run [s]."""

    name: str
    title: str
    machine: str
    device: str
    device_name: str
    command: str
    figures: tuple[Figure, ...]
    bill: tuple[Row, ...]
    planned: Mapping[str, float | None]

    @property
    def unit(self) -> str:
        """What workers are called."""
        return {"cuda": "GPUs", "cpu": "workers"}.get(self.device, "accelerators")

    @property
    def where(self) -> str:
        """Where its runs are from."""
        if self.device in ("cuda", "cpu"):
            return f"on machine {self.machine} ({self.device_name})"
        return f"of records that others made ({self.device})"


def of(plan: Plan, bill: Sequence[Row], planned: Mapping[str, float | None]) -> Study:
    """What the page of a plan's study is about, with the rows of its plan (`plan/bill.py`)."""
    study, machine = plan.study, plan.machine
    device = study.records.kind if study.records else machine.device
    figures = tuple(
        Figure(
            figure.name,
            figure.title or figure.name,
            figure.plot,
            " ".join(registry.docstring("figures", figure.plot).split()),
            tuple(run for run in plan_runs.figure_runs(plan, figure.name) or () if run in plan.runs),
            figure.reference_file,
            len(plan.inferences) if plan_runs.is_of_inference(figure.plot) else 0,
        )
        for figure in study.figures
    )
    command = ["snakemake", "--profile", "profiles/local", "--config", f"study={study.name}", f"machine={machine.name}"]
    again = shlex.join([*command, "--force", "--", layout.page(study.name)])
    return Study(
        study.name, study.title, machine.name, device, machine.device_name, again, figures, tuple(bill), planned
    )


def write(study: Study, out: Path, results: Path = layout.RESULTS) -> None:
    """The page of a study as one file, from what lies in `results`; whole, or not there."""
    write_text(out, html(study, results))


def html(study: Study, results: Path = layout.RESULTS) -> str:
    """The page. Raises OSError for a table or a figure that is missing."""
    folder = results / study.name / "tables"
    tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in TABLES}
    tables |= {name: pd.read_csv(folder / f"{name}.csv") for name in ("verdicts", "frameworks")}
    audit = _findings.read(folder / "audit.csv")
    runs = tables["runs"]
    known = set(runs["run"].head(rows.MOST_ROWS))  # those that have a row to lead to
    about = _rules(audit)
    style, script = ((HERE / f"page.{suffix}").read_text(encoding="utf-8") for suffix in ("css", "js"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.globals["anchor"] = rows.anchor
    figures = [_figure(study, figure, number, runs, known, results) for number, figure in enumerate(study.figures, 1)]
    plots = [figure.plot for figure in study.figures]
    first = next((plots.index(plot) for plot in FIRST if plot in plots), 0)
    return environment.get_template("page.html.jinja").render(
        study=study,
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        answer=answer.answer(tables, audit, study.unit),
        tiles=spent.tiles(study.bill, study.unit, study.planned) if study.bill else [],
        first=figures[first] if figures else None,
        figures=figures,
        tables=_tables(study, tables, audit, known, about, results),
        ended=bool((runs["status"] == "success").any()),
        measured=_measured(runs),
        hardware=_hardware(runs),
        preflight=_preflight(study, results),
        files=_files(study, results),
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _rules(audit: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Rules with an error or a warning, by run."""
    about: dict[str, list[str]] = {}
    for row in _findings.worst(audit, "warning"):
        for run in filter(None, row["runs"].split("; ")):
            if row["rule"] not in about.setdefault(run, []):
                about[run].append(row["rule"])
    return about


def _figure(
    study: Study, figure: Figure, number: int, runs: pd.DataFrame, known: set[str], results: Path
) -> dict[str, Any]:
    """What the template shows of a figure; its runs that are `known` are named."""
    file = results / study.name / "figures" / figure.name
    paths = {suffix: file.with_name(f"{file.name}.{suffix}") for suffix in ("pdf", "svg", "csv")}
    # Of records of others no plan says which a figure shows.
    shown = runs[(runs["run"].isin(figure.runs) | (not figure.runs)) & (runs["status"] == "success")]
    repeats = shown["repeat"].nunique()
    missing = max(0, len(figure.runs) - len(shown))
    if figure.asked:
        return _pictured(figure, number, paths) | {"made": f"{figure.asked} jobs of inference.", "runs": []}
    names = {*shown["run"]} & known
    made = f"{len(shown)} runs" + (f", {missing} more are missing or failed" if missing else "")
    return _pictured(figure, number, paths) | {
        "made": f"{made}, up to {count_of(repeats, 'repeat')}. {_hardware(shown)}",
        "runs": [run for run in figure.runs or shown["run"] if run in names],
    }


def _pictured(figure: Figure, number: int, paths: Mapping[str, Path]) -> dict[str, Any]:
    """The picture with its files and its words."""
    return {
        "id": f"figure-{number}",
        "title": figure.title,
        "svg": picture.inline(paths["svg"], f"f{number}", f"{figure.title}. {figure.caption.split('. ')[0]}."),
        "downloads": [(suffix.upper(), path.name, picture.data_url(path)) for suffix, path in paths.items()],
        "caption": figure.caption,
    }


def _values(runs: pd.DataFrame, *columns: str) -> list[str]:
    """Each combination of these columns' values, in words."""
    known = runs[[name for name in columns if name in runs]].drop_duplicates()
    said = [" ".join(str(value) for value in row if not pd.isna(value)) for row in known.itertuples(index=False)]
    return sorted({one for one in said if one})


def _hardware(runs: pd.DataFrame) -> str:
    """Processors, GPUs and versions, in one sentence."""
    devices = ", ".join([*_values(runs, "cpu"), *_values(runs, "gpu")]) or "unknown hardware"
    versions = "; ".join(f"{of} {version}" for of, version in _versions(runs))
    return f"Hardware: {devices}. Versions: {versions or 'unknown'}."


def _versions(runs: pd.DataFrame) -> list[tuple[str, str]]:
    said = [("Python", version) for version in _values(runs, "python_version")]
    said += [("torch", version) for version in _values(runs, "torch_version")]
    said += [("framework", version) for version in _values(runs, "framework", "framework_version")]
    return said + [("loader", version) for version in _values(runs, "loader", "loader_version")]


def _measured(runs: pd.DataFrame) -> str:
    """When, in UTC."""
    began = runs["started_s"].dropna()
    if began.empty:
        return "no run says when it began"
    return f"runs began {rows.day(float(began.min()))} to {rows.day(float(began.max()))}"


def _tables(
    study: Study,
    tables: Mapping[str, pd.DataFrame],
    audit: Sequence[Mapping[str, str]],
    known: set[str],
    about: Mapping[str, Sequence[str]],
    results: Path,
) -> list[rows.Table]:
    """The page's tables, in its order; those without rows are left out, but that of runs."""
    from ddlbench.analysis import comparisons, failures, frameworks, kernels, losses, messages, operations, refusals

    def of(columns: Sequence[Column], *without: str) -> dict[str, str]:
        return {
            one.name: f"{one.means}{f' [{one.unit}]' if one.unit else ''}" for one in columns if one.name not in without
        }

    findings = pd.DataFrame([row for row in audit if row["severity"] != _findings.NOT_CHECKED])
    claims = {
        "verdict": "What these runs say to it.",
        "claim": "What the source says.",
        "source": "Who says it.",
        "place": "Where in the source.",
        "published": "The number that it gives.",
        "measured": "Ours.",
        "low": "Lower end of our 95 % interval.",
        "high": "Upper end.",
        "n": "Repeats.",
        "why": "Why it cannot be tested here, or what the verdict rests on.",
        "runs": "The runs.",
    }
    planned = {
        "run": "The run.",
        "workers": "Its ranks.",
        "nodes": "Its computers.",
        "planned_s": "Wall time by the machine's images_per_s [s].",
        "took_s": "Wall time by its record [s].",
        "ratio": "Took over planned.",
        "planned_node_hours": "Planned wall time of all its nodes [h].",
        "took_node_hours": "Recorded wall time of all its nodes [h].",
    }
    made = [
        rows.runs(tables["runs"], results, about),
        rows.plain("comparisons", "Comparisons", "One row per pair of frameworks, or loaders, with the same settings.",
                   tables["comparisons"], of(comparisons.COLUMNS), known, "tables/comparisons.csv"),
        rows.plain("losses", "Where the time went", "One row per timed run; the parts add up to the total.",
                   tables["losses"], of(losses.COLUMNS), known, "tables/losses.csv"),
        rows.plain("kernels", "What kernels spend their time on", "One row per profiled run. Published shares are "
                   "beside those that mean the same: of CUDA kernels, not of a CPU's time.",
                   _beside(study, tables["kernels"]), of(kernels.BESIDE), known, "tables/kernels.csv"),
        rows.plain("operations", "Operations by module", "One row per module of runs with DeepSpeed's FLOPS profiler: "
                   "its counts of a forward pass over one picture beside PyTorch's own counter and published ones.",
                   tables["operations"], of(operations.COLUMNS), known, "tables/operations.csv"),
        rows.plain("messages", "Messages", "One row per operation and size of message of runs with DeepSpeed's log.",
                   tables["messages"], of(messages.COLUMNS), known, "tables/messages.csv"),
        rows.plain("verdicts", "What sources claim", "Verdicts of these runs on claims of papers and documents.",
                   tables["verdicts"], claims, known, "tables/verdicts.csv"),
        rows.plain("frameworks", "Frameworks", "What each can do. The versions are those installed where this page was "
                   "made; what the runs used is told at its end.",
                   tables["frameworks"], of(frameworks.COLUMNS), known, "tables/frameworks.csv"),
        rows.plain("audit", "Findings of the audit", "What makes comparisons unfair; docs/audit.md explains the rules.",
                   findings, of(_findings.COLUMNS), known, "tables/audit.csv"),
        rows.plain("planned", "Plan and record", "What a plan said before there was any record, beside what it took.",
                   pd.DataFrame(spent.took(study.bill, study.planned)),
                   planned, known),
        rows.plain("failures", "Failed runs", "Runs that left no record, and why.", tables["failures"],
                   of(failures.COLUMNS), known, "tables/failures.csv"),
        rows.plain("refused", "Refused records", "Records that cannot be true, or cannot be read.", tables["refused"],
                   of(refusals.COLUMNS), known, "tables/refused.csv"),
    ]  # fmt: skip
    nodes = results / "machines" / study.machine / "nodes.csv"
    if nodes.exists():
        made.append(
            rows.plain("nodes", "Hosts", f"Each host of {study.machine} beside the others, by all its records.",
                       pd.read_csv(nodes), of(NODES), known, f"../machines/{study.machine}/nodes.csv")
        )  # fmt: skip
    return [table for table in made if table.rows or table.id == "runs"]


def _beside(study: Study, shares: pd.DataFrame) -> pd.DataFrame:
    """Shares of kernel time with what was published of them, if a figure of the study has such a file."""
    from ddlbench.analysis import kernels

    files = [figure.reference for figure in study.figures if figure.plot == "kernel-shares" and figure.reference]
    nothing = pd.DataFrame(columns=["model", "loader", "workers"])
    beside = kernels.beside(shares, pd.read_csv(files[0]) if files else nothing)
    return beside.dropna(axis="columns", how="all")


def _preflight(study: Study, results: Path) -> dict[str, Any] | None:
    """What the last preflight found and measured, if there was one."""
    path = results / "machines" / study.machine / f"preflight-{study.name}.json"
    try:
        preflight = json.loads(path.read_text(encoding="utf-8"))
        lines = summary(preflight["ranks"])
        return {
            "when": rows.day(float(preflight["time"])),
            "problems": [str(problem) for problem in preflight["problems"]],
            "measured": lines[:MEASURED],
            "left": max(0, len(lines) - MEASURED),
            "file": f"../machines/{study.machine}/{path.name}",
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _files(study: Study, results: Path) -> list[tuple[str, str, str]]:
    """(file, its address from the page, its SHA-256): what the page is made of."""
    home = results / study.name
    paths = [home / "tables" / f"{name}.parquet" for name in TABLES]
    paths += [home / "tables" / f"{name}.csv" for name in ("verdicts", "audit", "frameworks")]
    paths += [home / "figures" / f"{figure.name}.csv" for figure in study.figures]
    return [(path.name, path.relative_to(home).as_posix(), sha256(path)) for path in paths]
