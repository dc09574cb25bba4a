"""One finished study, touched in more than eighty ways: each makes those jobs stale that it can
change, and no others.

Only dry runs, of one finished study whose runs are those of `mini`; each touch is undone before the
next.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Once, copy_or_link
from tests.workflow.conftest import mini_study, snakemake
from tests.workflow.warm import Warm

pytestmark = pytest.mark.more

FIGURES = """
  throughput: {plot: throughput, runs: [ceiling, digits], reference: resnet50-one-gpu}
  accuracy: {plot: accuracy-epochs, runs: [digits]}
  memory: {plot: memory, runs: [ceiling, digits], select: {loader: native}}
  cost: {plot: cost, runs: [ceiling]}
"""
STUDY = mini_study("Touched", FIGURES)
OPTIONS = ("--config", "study=touched", "machine=mini")
STUDY_FILE, MACHINE = "config/studies/touched.yaml", "config/machines/mini.yaml"
RECIPE, REFERENCES = "config/recipes/mini.yaml", "config/references"
CODE = "workflow/ddlbench"
RESULTS = "results/touched/mini"
DIGITS, CEILING = "*native*", "*synthetic*"


class Project:
    """The finished project, and how it was before it was touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before: dict[Path, tuple[bytes, os.stat_result] | None] = {}
        self.aside: list[Path] = []

    def path(self, pattern: str) -> Path:
        """Return the one file of this name, and remember it."""
        (path,) = (
            self.folder.glob(pattern)
            if any(c in pattern for c in "*?")
            else [self.folder / pattern]
        )
        if path not in self.before:
            self.before[path] = (path.read_bytes(), path.stat()) if path.exists() else None
        return path

    def write(self, pattern: str, data: bytes) -> None:
        """Give a file other contents, and the time of now."""
        path = self.path(pattern)
        path.unlink(missing_ok=True)  # it may be a link to one of another copy
        path.write_bytes(data)

    def text(self, pattern: str, old: str, new: str) -> None:
        """Put a text in the place of another one."""
        text = self.path(pattern).read_text()
        assert text.count(old) == 1, (pattern, old)
        self.write(pattern, text.replace(old, new).encode())

    def append(self, pattern: str, text: str) -> None:
        self.write(pattern, self.path(pattern).read_bytes() + text.encode())

    def damage(self, pattern: str) -> None:
        """Change a byte."""
        data = self.path(pattern).read_bytes()
        self.write(pattern, data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])

    def remove(self, pattern: str) -> None:
        self.path(pattern).unlink()

    def age(self, pattern: str) -> None:
        """Give a file the time that it had before it was touched, as a copy does that keeps
        times.
        """
        path = self.path(pattern)
        was = self.before[path]
        assert was is not None
        os.utime(path, ns=(was[1].st_atime_ns, was[1].st_mtime_ns))

    def renew(self, *patterns: str) -> None:
        """Give files the time of now, and leave their contents."""
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                if path.is_file():
                    os.utime(self.path(str(path.relative_to(self.folder))))

    def forget(self) -> None:
        """Take Snakemake's memory away."""
        (self.folder / ".snakemake").rename(self.folder / "remembered")

    def undo(self) -> None:
        if (self.folder / "remembered").exists():
            shutil.rmtree(self.folder / ".snakemake", ignore_errors=True)
            (self.folder / "remembered").rename(self.folder / ".snakemake")
        for path, was in self.before.items():
            path.unlink(missing_ok=True)
            if was is not None:
                path.write_bytes(was[0])
                os.utime(path, ns=(was[1].st_atime_ns, was[1].st_mtime_ns))
        self.before.clear()


Touch = Callable[[Project], object]


class Case(NamedTuple):
    """A touch, and the jobs that it makes stale; target `all`, and the report of other pictures,
    follow.
    """

    name: str
    touch: Touch
    stale: str


def code(file: str, text: str = "\nTOUCHED = 1\n") -> Touch:
    """Return a touch that adds a line to a file of the package."""
    return lambda project: project.append(f"{CODE}/{file}", text)


def comment(file: str) -> Touch:
    return code(file, "\n\n# Touched.\n")


def says(file: str, old: str, new: str) -> Touch:
    """Return a touch that writes something else into a file."""
    return lambda project: project.text(file, old, new)


def more(file: str, text: str) -> Touch:
    """Return a touch that adds a text to a file."""
    return lambda project: project.append(file, text)


def other_reference(project: Project) -> None:
    project.write(
        f"{REFERENCES}/mine.csv", project.path(f"{REFERENCES}/resnet50-one-gpu.csv").read_bytes()
    )
    project.text(STUDY_FILE, "resnet50-one-gpu", "mine")


def gone(*files: str) -> Touch:
    return lambda project: [project.remove(file) for file in files]


def renewed(*patterns: str) -> Touch:
    return lambda project: project.renew(*patterns)


def kept_its_time(file: str, text: str) -> Touch:
    """Return a touch that changes a file whose time stays."""

    def touch(project: Project) -> None:
        project.append(file, text)
        project.age(file)

    return touch


TABLES = "collect verdicts audit page"
EVERY_FIGURE = "data throughput, data accuracy, data memory, data cost, "
EVERY_FIGURE += "figure throughput, figure accuracy, figure memory, figure cost"
OF_DIGITS = (
    "data throughput, data accuracy, data memory, figure throughput, figure accuracy, figure memory"
)
ALL_DRAWN = "figure throughput, figure accuracy, figure memory, figure cost"
NEW = "  new: {plot: throughput, runs: [ceiling, digits]}\n"
CHOSEN = "  new: {plot: throughput, runs: [ceiling, digits], select: {loader: synthetic}}\n"
CASES = [
    # Of the study.
    Case(
        "a figure's title",
        says(STUDY_FILE, "runs: [digits]}", "runs: [digits], title: Other}"),
        "figure accuracy, page",
    ),
    Case("the study's title", says(STUDY_FILE, '"Touched"', '"Other"'), "page"),
    Case(
        "the order of figures",
        says(STUDY_FILE, "figures:", "figures:\n  first: {plot: memory, runs: [digits]}"),
        "data first, figure first, page",
    ),
    Case(
        "a figure's runs",
        says(STUDY_FILE, "runs: [digits]}", "runs: [ceiling, digits]}"),
        "data accuracy, figure accuracy, page",
    ),
    Case(
        "a figure's plot",
        says(STUDY_FILE, "plot: accuracy-epochs", "plot: loss-samples"),
        "data accuracy, figure accuracy, page",
    ),
    Case(
        "another selection",
        says(STUDY_FILE, "loader: native", "loader: synthetic"),
        "data memory, figure memory, page",
    ),
    Case(
        "no selection",
        says(STUDY_FILE, ", select: {loader: native}", ""),
        "data memory, figure memory, page",
    ),
    Case(
        "a selection that selects all",
        says(STUDY_FILE, "runs: [digits]}", "runs: [digits], select: {workers: 1}}"),
        "page",
    ),
    Case(
        "a selection of some",
        says(STUDY_FILE, "reference: resnet50-one-gpu", "select: {model: lenet}"),
        "data throughput, figure throughput, page",
    ),
    Case("a new figure", more(STUDY_FILE, NEW), "data new, figure new, page"),
    Case("a new figure of some runs", more(STUDY_FILE, CHOSEN), "data new, figure new, page"),
    Case(
        "a figure without",
        says(
            STUDY_FILE,
            "  memory: {plot: memory, runs: [ceiling, digits], select: {loader: native}}\n",
            "",
        ),
        "page, report",
    ),
    Case(
        "a figure's name", says(STUDY_FILE, "  memory:", "  held:"), "data held, figure held, page"
    ),
    Case("another reference", other_reference, "figure throughput, page"),
    Case(
        "no reference",
        says(STUDY_FILE, ", reference: resnet50-one-gpu", ""),
        "figure throughput, page",
    ),
    Case(
        "a block's name",
        lambda project: [
            project.write(
                STUDY_FILE, project.path(STUDY_FILE).read_bytes().replace(b"ceiling", b"top")
            )
        ],
        "page",
    ),
    Case(
        "a block of the same runs",
        says(
            STUDY_FILE,
            "figures:",
            """  again:
    loaders: [synthetic]
    workers: [1]
    batch_per_worker: [64]
figures:""",
        ),
        "page",
    ),
    Case(
        "one more run",
        says(STUDY_FILE, "  digits:", "    repeats: 2\n  digits:"),
        f"train ceiling, records, {TABLES}, data throughput, figure throughput, data cost, figure"
        " cost",
    ),
    # Of the machine and the configuration.
    Case(
        "the price",
        more(MACHINE, "\nprice_per_gpu_hour: 2\ncurrency: EUR\n"),
        f"{TABLES}, data cost, figure cost",
    ),
    Case(
        "interruptions",
        more(MACHINE, "\nnode_hours_between_interruptions: 900\ninterruptions_source: a guess\n"),
        f"{TABLES}, data cost, figure cost",
    ),
    Case("the peak", more(MACHINE, "\npeak_tflops_per_worker: {fp32: 3}\n"), TABLES),
    Case("the PUE", more(MACHINE, "\npue: 1.2\n"), TABLES),
    Case("the device's name", says(MACHINE, "CPU core", "core"), f"{ALL_DRAWN}, page"),
    Case("a guess of rates", more(MACHINE, "\nimages_per_s: {lenet: 9}\n"), "page"),
    Case(
        "threads of loaders",
        more(MACHINE, "\nloader_threads: 3\n"),
        f"train digits, records, {TABLES}, {OF_DIGITS}",
    ),
    # Of the recipe.
    Case(
        "a key of all",
        says(RECIPE, "momentum: 0.9", "momentum: 0.8"),
        f"train digits, train ceiling, records, records, {TABLES}, {EVERY_FIGURE}",
    ),
    Case(
        "a key of the schedule",
        more(RECIPE, "\nlr_min: 0.0001\n"),
        f"train digits, train ceiling, records, records, {TABLES}, {EVERY_FIGURE}",
    ),
    Case("a new preflight", more("results/machines/mini/preflight-touched.json", "\n"), "page"),
    # Of what was published.
    Case(
        "a reference's file",
        more(f"{REFERENCES}/resnet50-one-gpu.csv", "\n"),
        "figure throughput, page",
    ),
    Case(
        "a reference's file that kept its time",
        kept_its_time(f"{REFERENCES}/resnet50-one-gpu.csv", "\n"),
        "figure throughput, page",
    ),
    Case("claims", more(f"{REFERENCES}/claims.csv", "\n"), "verdicts, page"),
    Case("tables of sources", more(f"{REFERENCES}/tables.yaml", "\n"), "page"),
    Case("published operations", more(f"{REFERENCES}/operations.csv", "\n"), TABLES),
    Case("what convergence is", more(f"{REFERENCES}/mlperf-rcp-resnet50.csv", "\n"), "audit, page"),
    # Of records.
    Case(
        "a record gone",
        gone(f"results/runs/{DIGITS}/run.mllog"),
        f"train digits, records, {TABLES}, {OF_DIGITS}",
    ),
    Case(
        "a log changed",
        lambda project: project.damage(f"results/runs/{DIGITS}/run.mllog"),
        f"records, {TABLES}, {OF_DIGITS}",
    ),
    Case(
        "steps changed",
        lambda project: project.damage(f"results/runs/{DIGITS}/steps.parquet"),
        f"records, {TABLES}, {OF_DIGITS}",
    ),
    Case(
        "steps of the other run changed",
        lambda project: project.damage(f"results/runs/{CEILING}/steps.parquet"),
        f"records, {TABLES}, data throughput, figure throughput, data cost, figure cost",
    ),
    Case(
        "steps gone",
        gone(f"results/runs/{DIGITS}/steps.parquet"),
        f"train digits, records, {TABLES}, {OF_DIGITS}",
    ),
    # Of code.
    Case(
        "a figure's code",
        code("show/figures/throughput.py"),
        "data throughput, figure throughput, page",
    ),
    Case(
        "a figure's caption",
        says(f"{CODE}/show/figures/memory.py", '"""Memory', '"""Touched: memory'),
        "data memory, figure memory, page",
    ),
    Case(
        "what some figures share",
        code("show/figures/_scaling.py"),
        "data throughput, figure throughput, page",
    ),
    Case("what all figures share", code("show/figures/_style.py"), f"{EVERY_FIGURE}, page"),
    Case("verdicts' code", code("analysis/claim_verdicts.py"), "verdicts, page"),
    Case("code of comparisons", code("analysis/comparisons.py"), TABLES),
    Case("code of kernels", code("analysis/kernels.py"), TABLES),
    Case("code of prices", code("analysis/price.py"), f"{TABLES}, data cost, figure cost"),
    Case("code of statistics", code("analysis/intervals.py"), f"{TABLES}, {EVERY_FIGURE}"),
    Case(
        "code of the table of costs",
        code("analysis/sheets/costs.py"),
        f"{TABLES}, data cost, figure cost",
    ),
    Case("code of the table of messages", code("analysis/sheets/messages.py"), TABLES),
    Case("code of records", code("records/_sound.py"), f"{TABLES}, {EVERY_FIGURE}"),
    Case("code of a recipe's keys", code("core/recipe.py"), f"{TABLES}, {EVERY_FIGURE}"),
    Case("code of the audit", code("audit/rules/clocks.py"), "audit, page"),
    Case("code of a section", code("show/page/sections/__init__.py"), "page"),
    Case("the page's style", more(f"{CODE}/show/page/page.css", "\n"), "page"),
    Case(
        "code that kept its time",
        kept_its_time(f"{CODE}/show/figures/throughput.py", "\nTOUCHED = 1\n"),
        "data throughput, figure throughput, page",
    ),
    Case("a script", more("workflow/scripts/figure.py", "\nTOUCHED = 1\n"), f"{ALL_DRAWN}, page"),
    Case("the script of the page", more("workflow/scripts/page.py", "\nTOUCHED = 1\n"), "page"),
    # Of outputs.
    Case("a picture gone", gone(f"{RESULTS}/figures/memory.png"), "figure memory, page"),
    Case(
        "a figure's data gone",
        gone(f"{RESULTS}/figures/memory.csv"),
        "data memory, figure memory, page",
    ),
    Case("a table gone", gone(f"{RESULTS}/tables/epochs.csv"), TABLES),
    Case("the page gone", gone(f"{RESULTS}/index.html"), "page"),
    Case("verdicts gone", gone(f"{RESULTS}/tables/verdicts.csv"), "verdicts, page"),
]
# Touches after which nothing is to be done. Those of a group are made together: if nothing follows
# from all of them, nothing follows from one.
NOTHING: dict[str, list[Touch]] = {
    "no touch": [],
    "comments": [
        comment("analysis/claims.py"),
        comment("analysis/intervals.py"),
        comment("show/figures/_style.py"),
        comment("show/figures/memory.py"),
        comment("records/ours.py"),
        comment("show/page/shown.py"),
        comment("core/recipe.py"),
        code("analysis/summary.py", "\n\n\n"),
        more("workflow/scripts/collect.py", "\n# Touched.\n"),
        more(STUDY_FILE, "\n# Touched.\n"),
        more(MACHINE, "\n# Touched.\n"),
        more(RECIPE, "\n# Touched.\n"),
        says(STUDY_FILE, "models: [lenet]\n", "models:\n  - lenet\n\n"),
    ],
    "keys that these runs do not use": [
        more(
            RECIPE, "\nstep_factor: 0.5\nbeta1: 0.5\nbeta2: 0.5\npower: 3\ntrust_coefficient: 0.1\n"
        ),
        says(RECIPE, "step_epochs: [4, 6]", "step_epochs: [1]"),
        says(RECIPE, "gamma: 0.8", "gamma: 0.5"),
        more("config/recipes/demo.yaml", "\nlr_min: 0.0001\n"),
    ],
    "other code": [
        code("records/mlperf.py"),
        code("train/loop.py"),
        code("run/watch.py"),
        code("commands/main.py"),
        code("outlook/predictions.py"),
        code("preflight/judge.py"),
        code("slurm/sbatch.py"),
        code("show/figures/latency.py"),
        code("core/layout.py"),
    ],
    "other files": [
        more(f"{REFERENCES}/throughput-series.csv", "\n"),
        more("config/models/nets/other.py", "\nTOUCHED = 1\n"),
        more("config/studies/demo.yaml", "\n  more: {plot: memory}\n"),
        lambda project: project.write(
            "config/studies/other.yaml", STUDY.replace("Touched", "Other").encode()
        ),
        more("config/machines/local.yaml", "\nprice_per_gpu_hour: 2\ncurrency: EUR\n"),
        gone(f"results/runs/{DIGITS}/train.log", f"results/runs/{DIGITS}/summary.jsonl"),
    ],
    "a fresh clone": [
        renewed("*", "workflow/**/*", "config/**/*", "profiles/**/*", "recorder/**/*")
    ],
    "results copied without their times": [
        renewed("results/runs/**/*", f"{RESULTS}/tables/*"),
        renewed(f"{RESULTS}/*/*"),
    ],
    "results whose inputs were copied last": [
        renewed(f"{RESULTS}/*/*"),
        renewed("results/runs/**/*"),
    ],
    "no memory": [Project.forget],
}


@pytest.fixture(scope="module")
def touched(once: Once, finished_once: Path) -> Iterator[tuple[Project, Warm]]:
    """The finished project with a finished study of the same runs. None is trained, and nothing
    drawn: which jobs are stale does not depend on what pictures show.
    """

    def make(folder: Path) -> None:
        folder.rmdir()
        shutil.copytree(finished_once, folder, symlinks=True, copy_function=copy_or_link)
        (folder / STUDY_FILE).write_text(STUDY)
        shutil.copytree(
            folder / "results/mini/mini", folder / RESULTS, ignore=shutil.ignore_patterns("records")
        )
        for path in folder.glob(f"{RESULTS}/figures/throughput.*"):
            for name in ("memory", "cost"):
                shutil.copy(path, path.with_name(path.name.replace("throughput", name)))
        for preflight in folder.glob("results/machines/mini/preflight-mini.json"):
            shutil.copy(preflight, preflight.with_name("preflight-touched.json"))
        # Snakemake takes these files for its own: it notes of each what it would have been made
        # from.
        marked = ("--touch", "--forcerun", "preflight", "frameworks", "data_table")
        for options in (("--until", "records"), marked):
            done = snakemake(folder, *options, *OPTIONS)
            assert done.returncode == 0, done.stdout

    folder = once("touched", make)
    warm = Warm(folder)
    yield Project(folder), warm
    warm.end()


def plan(warm: Warm, project: Project) -> list[str]:
    """Return the jobs that a dry run plans; a run is named by its block."""
    names = {
        path.name: block
        for block, pattern in (("digits", DIGITS), ("ceiling", CEILING))
        for path in project.folder.glob(f"results/runs/{pattern}")
    }
    jobs = warm.planned(*OPTIONS)
    if jobs:
        jobs.remove("all")
    if any(job.startswith("figure ") for job in jobs):
        jobs.remove("report")
    return sorted(
        (
            f"train {names.get(job.removeprefix('train '), 'ceiling')}"
            if job.startswith("train ")
            else job
        )
        for job in jobs
    )


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_a_touch_makes_stale(touched: tuple[Project, Warm], case: Case) -> None:
    project, warm = touched
    expected = sorted(
        job
        for part in case.stale.replace(TABLES, ", ".join(TABLES.split())).split(", ")
        for job in [part]
    )
    try:
        case.touch(project)
        assert plan(warm, project) == expected
    finally:
        project.undo()


@pytest.mark.parametrize("group", NOTHING)
def test_what_makes_nothing_stale(touched: tuple[Project, Warm], group: str) -> None:
    project, warm = touched
    try:
        for touch in NOTHING[group]:
            touch(project)
        assert plan(warm, project) == []
    finally:
        project.undo()
