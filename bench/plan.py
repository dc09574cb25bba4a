#!/usr/bin/env python
"""What planning a study costs: a dry run of ddlbench over one of the simplest Snakefile with as
many training jobs.

`python bench/plan.py` prints a table and exits with 1 if a median ratio is above the limit. Both
plan from nothing, each in a folder of its own, alternating, with the same flags. ddlbench's folder
is a copy of this repository.
"""

import argparse
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
    print(f"{'runs':>6} {'bare':>8} {'ddlbench':>9} {'ratio':>6} {'min..max':>10}   limit {LIMIT}")
    failed = False
    for runs in a.runs:
        pairs = [pair(runs) for _ in range(a.pairs)]
        ratios = [ours / bare for bare, ours in pairs]
        bare, ours = (median(side) for side in zip(*pairs, strict=True))
        over = median(ratios) > LIMIT
        tell(f"a dry run of {runs} runs: seconds", "bare Snakefile", ratios, LIMIT, at_most=True)
        failed |= over
        spread = f"{min(ratios):4.2f}..{max(ratios):4.2f}"
        verdict = "OVER THE LIMIT" if over else ""
        print(
            f"{runs:6} {bare:6.1f} s {ours:7.1f} s {median(ratios):6.2f} {spread:>10}   {verdict}",
            flush=True,
        )
    sys.exit(failed)


def pair(runs: int) -> tuple[float, float]:
    """Seconds of a bare dry run and of ddlbench's, each in a new folder."""
    with tempfile.TemporaryDirectory() as bare, tempfile.TemporaryDirectory() as ours:
        (Path(bare) / "Snakefile").write_text(BARE.format(runs=runs))
        copy_repository(Path(ours))
        (Path(ours) / "config/studies/bench.yaml").write_text(study(runs))
        bare_s, bare_text = dry_run(Path(bare))
        ours_s, ours_text = dry_run(Path(ours), "--config", "study=bench", "machine=local")
    for text in (bare_text, ours_text):
        if jobs(text) != runs:
            sys.exit(
                f"a dry run counted {jobs(text)} training jobs in place of {runs}:\n{text[-3000:]}"
            )
    return bare_s, ours_s


if __name__ == "__main__":
    main()
