#!/usr/bin/env python
"""What planning a study costs: a dry run of ddlbench over one of the simplest Snakefile with as
many training jobs, and over one of the smallest Snakefile whose jobs ask as much of Snakemake.

`python bench/plan.py` prints a table and exits with 1 if a median ratio is above its limit. All plan
from nothing, each in a folder of its own, alternating, with the same flags. ddlbench's folder is a
copy of this repository. What ddlbench takes more than the second Snakefile is its own; what that one
takes more than the first is Snakemake's, for jobs that have functions, parameters and two outputs.
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

from told import tell

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.5  # dry run of ddlbench over that of the bare Snakefile
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


def dry_run(folder: Path, *options: str) -> tuple[float, str]:
    """(seconds, table of jobs) of a dry run in `folder`."""
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
    began = perf_counter()
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    seconds = perf_counter() - began
    if done.returncode:
        sys.exit(f"{argv} in {folder}\n{done.stdout}\n{done.stderr}\nexit code {done.returncode}")
    return seconds, done.stdout + done.stderr


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
        f"{'runs':>6} {'bare':>8} {'as much':>8} {'ddlbench':>9} {'/bare':>16} {'/as much':>16}"
        f"   limits {LIMIT}, {OWN_LIMIT}"
    )
    failed = False
    for runs in a.runs:
        taken = [in_turns(runs) for _ in range(a.pairs)]
        bare, like, ours = (median(side) for side in zip(*taken, strict=True))
        of_bare = [ours_s / bare_s for bare_s, _, ours_s in taken]
        of_like = [ours_s / like_s for _, like_s, ours_s in taken]
        what = f"a dry run of {runs} runs: seconds"
        tell(what, "bare Snakefile", of_bare, LIMIT, at_most=True)
        tell(what, "Snakefile that asks as much", of_like, OWN_LIMIT, at_most=True)
        over = median(of_bare) > LIMIT or median(of_like) > OWN_LIMIT
        failed |= over
        print(
            f"{runs:6} {bare:6.1f} s {like:6.1f} s {ours:7.1f} s {spread(of_bare)} {spread(of_like)}"
            f"   {'OVER THE LIMIT' if over else ''}",
            flush=True,
        )
    sys.exit(failed)


def spread(ratios: list[float]) -> str:
    """Format the median of ratios and their range."""
    return f"{median(ratios):4.2f} ({min(ratios):4.2f}..{max(ratios):4.2f})"


def in_turns(runs: int) -> tuple[float, float, float]:
    """Seconds of a bare dry run, of one that asks as much, and of ddlbench's, each in a new
    folder.
    """
    with (
        tempfile.TemporaryDirectory() as bare,
        tempfile.TemporaryDirectory() as like,
        tempfile.TemporaryDirectory() as ours,
    ):
        (Path(bare) / "Snakefile").write_text(BARE.format(runs=runs))
        (Path(like) / "Snakefile").write_text(LIKE.format(runs=runs))
        copy_repository(Path(ours))
        (Path(ours) / "config/studies/bench.yaml").write_text(study(runs))
        dry_runs = [
            dry_run(Path(bare)),
            dry_run(Path(like)),
            dry_run(Path(ours), "--config", "study=bench", "machine=local"),
        ]
    for _, text in dry_runs:
        if jobs(text) != runs:
            sys.exit(
                f"a dry run counted {jobs(text)} training jobs in place of {runs}:\n{text[-3000:]}"
            )
    bare_s, like_s, ours_s = (seconds for seconds, _ in dry_runs)
    return bare_s, like_s, ours_s


if __name__ == "__main__":
    main()
