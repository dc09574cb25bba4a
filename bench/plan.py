#!/usr/bin/env python
"""What planning a study costs: a dry run of ddlbench over one of the simplest Snakefile with as
many training jobs, and over one of the smallest Snakefile whose jobs ask as much of Snakemake.

`python bench/plan.py` prints a table and exits with 1 if a median ratio is above its limit. All plan
from nothing, each in a folder of its own, alternating, with the same flags. ddlbench's folder is a
copy of this repository. What ddlbench takes more than the second Snakefile is its own; what that one
takes more than the first is Snakemake's, for jobs that have functions, parameters and two outputs.
Memory is the peak of the resident set, as the kernel counts it.
"""

import argparse
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from told import tell

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.5  # dry run of ddlbench over that of the bare Snakefile, seconds and memory
OWN_LIMIT = 1.2  # and over that of the Snakefile that asks as much
BARE = """\
RUNS = range({runs})


rule all:
    input:
        expand("runs/{{run}}.log", run=RUNS),


rule train:
    output:
        "runs/{{run}}.log",
    shell:
        "touch {{output}}"
"""
# What rule `train` and what follows it ask of Snakemake on a machine without a queue.
LIKE = """\
RUNS = [f"run{{number}}" for number in range({runs})]
LOGS = expand("runs/{{run}}/run.mllog", run=RUNS)


rule all:
    input:
        LOGS,
        "tables.csv",


rule collect:
    input:
        "records.csv",
    output:
        "tables.csv",
    params:
        runs=RUNS,
    shell:
        "touch {{output}}"


rule records:
    input:
        lambda wildcards: LOGS,
    output:
        "records.csv",
    params:
        runs=lambda wildcards: RUNS,
    shell:
        "touch {{output}}"


rule data:
    output:
        "data/manifest.json",
    shell:
        "touch {{output}}"


rule train:
    input:
        lambda wildcards: "data/manifest.json",
    output:
        log="runs/{{run}}/run.mllog",
        steps="runs/{{run}}/steps.parquet",
    log:
        "runs/{{run}}/train.log",
    priority: lambda wildcards: 1
    threads: lambda wildcards: 1
    resources:
        launch=lambda wildcards: f"train {{wildcards.run}}",
        supervision="--options",
    params:
        spec=lambda wildcards: f"settings of {{wildcards.run}}",
    message:
        "train {{wildcards.run}}: {{resources.launch}}"
    shell:
        "{{resources.launch}} {{resources.supervision}} {{params.spec}}"
"""
# 2 loaders with data and one without, 3 frameworks, 2 worker counts: 18 runs for each batch size
# and repeat. What is missing to a round number is in a second block. Figures of each plot, as a
# real study has.
STUDY = """\
title: Planning
dataset: mnist5k
recipe: demo
models: [lenet]
schedules: [cosine]
epochs: 1
runs:
  product:
    frameworks: [ddp, horovod, deepspeed]
    loaders: [synthetic, native, dali-cpu]
    workers: [1, 2]
    batch_per_worker: [64]
    repeats: {repeats}
  rest:
    frameworks: [ddp]
    loaders: [native]
    workers: [1]
    batch_per_worker: [128]
    repeats: {rest}
figures:
"""


def study(runs: int) -> str:
    """A study with exactly so many runs, and a figure of each plot."""
    repeats, rest = divmod(runs - 1, 18)
    text = STUDY.format(repeats=repeats, rest=rest + 1)
    figures = (ROOT / "workflow/ddlbench/show/figures").glob("[!_]*.py")
    plots = sorted(
        f.stem.replace("_", "-") for f in figures if f.stem != "latency"
    )  # which shows inference
    return text + "".join(f"  {plot}:\n    plot: {plot}\n" for plot in plots)


def copy_repository(to: Path) -> None:
    """The files that git has or would take."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    compileall.compile_dir(to / "workflow", quiet=1)  # as a first call leaves it


class DryRun(NamedTuple):
    """What a dry run took, and what it printed."""

    seconds: float
    peak_mb: float
    text: str


def dry_run(folder: Path, *options: str) -> DryRun:
    """Make a dry run in `folder`."""
    argv = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        "Snakefile",
        "-n",
        "--cores",
        "2",
        "--quiet",
        "rules",
        *options,
    ]
    with tempfile.TemporaryFile() as output:
        began = perf_counter()
        process = subprocess.Popen(argv, cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)  # the memory of this one process
        seconds = perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if process.returncode:
        sys.exit(f"{argv} in {folder}\n{text}\nexit code {process.returncode}")
    return DryRun(seconds, used.ru_maxrss / 1e3, text)


def jobs(text: str) -> int:
    """How many training jobs a dry run counted."""
    return next(
        int(words[1]) for words in map(str.split, text.splitlines()) if words[:1] == ["train"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", nargs="+", type=int, default=[100, 1000, 5000], help="each at least 19"
    )
    parser.add_argument("--pairs", type=int, default=3)
    a = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(
        f"{'runs':>6} {'':>7} {'bare':>8} {'as much':>8} {'ddlbench':>9} {'/bare':>16}"
        f" {'/as much':>16}   limits {LIMIT}, {OWN_LIMIT}"
    )
    good = True
    for runs in a.runs:
        taken = [in_turns(runs) for _ in range(a.pairs)]
        good &= line(runs, "seconds", "s", [[one.seconds for one in side] for side in taken])
        good &= line(runs, "peak MB", "MB", [[one.peak_mb for one in side] for side in taken])
    sys.exit(not good)


def line(runs: int, what: str, unit: str, taken: list[list[float]]) -> bool:
    """Print a line of the table; False if it is over a limit. `taken`: of bare, as much, ours."""
    bare, like, ours = (median(side) for side in zip(*taken, strict=True))
    of_bare = [mine / bare_ for bare_, _, mine in taken]
    of_like = [mine / like_ for _, like_, mine in taken]
    told = f"a dry run of {runs} runs: {what}"
    tell(told, "bare Snakefile", of_bare, LIMIT, at_most=True)
    tell(told, "Snakefile that asks as much", of_like, OWN_LIMIT, at_most=True)
    over = median(of_bare) > LIMIT or median(of_like) > OWN_LIMIT
    print(
        f"{runs:6} {unit:>7} {bare:8.1f} {like:8.1f} {ours:9.1f} {spread(of_bare)} {spread(of_like)}"
        f"   {'OVER THE LIMIT' if over else ''}",
        flush=True,
    )
    return not over


def spread(ratios: list[float]) -> str:
    """Format the median of ratios and their range."""
    return f"{median(ratios):4.2f} ({min(ratios):4.2f}..{max(ratios):4.2f})"


def in_turns(runs: int) -> tuple[DryRun, DryRun, DryRun]:
    """Make a bare dry run, one that asks as much, and ddlbench's, each in a new folder."""
    with (
        tempfile.TemporaryDirectory() as bare,
        tempfile.TemporaryDirectory() as like,
        tempfile.TemporaryDirectory() as ours,
    ):
        (Path(bare) / "Snakefile").write_text(BARE.format(runs=runs))
        (Path(like) / "Snakefile").write_text(LIKE.format(runs=runs))
        copy_repository(Path(ours))
        (Path(ours) / "config/studies/bench.yaml").write_text(study(runs))
        made = (
            dry_run(Path(bare)),
            dry_run(Path(like)),
            dry_run(Path(ours), "--config", "study=bench", "machine=local"),
        )
    for one in made:
        if jobs(one.text) != runs:
            counted = f"a dry run counted {jobs(one.text)} training jobs in place of {runs}"
            sys.exit(f"{counted}:\n{one.text[-3000:]}")
    return made


if __name__ == "__main__":
    main()
