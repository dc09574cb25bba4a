#!/usr/bin/env python
"""What ddlbench costs beside its rivals, all in one call of at most an hour: `make bench`. Prints
one table.

Each benchmark is a process of its own, one after the other, with sizes that fit the hour; what it
prints is kept in `results/bench/<name>.txt`. Those that take part say their ratios through
`told.py`. One that passes its time limit is ended, and so are its ranks. Ends with exit code 1 if a
limit is broken, or a benchmark did not end well.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from told import FILE, Told

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "results/bench"
END_S = 60.0  # a benchmark that is told to end has so long


class Benchmark(NamedTuple):
    """A benchmark: its file's name, its arguments, and the most that it may take."""

    name: str
    arguments: str
    minutes: float


BENCHMARKS = (
    Benchmark("overhead", "--frameworks ddp horovod deepspeed --starts 3 --epochs 5", 18),
    Benchmark("trainers", "--starts 2 --epochs 4", 12),
    Benchmark("loaders", "--images 1000 --rounds 2 --epochs 3", 14),
    Benchmark("plan", "--pairs 3", 8),
    Benchmark("slurm", "--jobs 10", 8),
)


def main() -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    good, rows = True, []
    with tempfile.TemporaryDirectory() as scratch:
        for benchmark in BENCHMARKS:
            file = Path(scratch, benchmark.name)
            print(f"{benchmark.name} {benchmark.arguments} ...", file=sys.stderr, flush=True)
            began = time.monotonic()
            code = execute(benchmark, os.environ | {FILE: str(file)})
            minutes = (time.monotonic() - began) / 60
            told = (
                [Told(**json.loads(line)) for line in file.read_text().splitlines()]
                if file.exists()
                else []
            )
            rows += [row(benchmark.name, one) for one in told]
            if code or not told:
                ended = "over its time" if code is None else f"exit code {code}"
                rows.append(
                    [
                        benchmark.name,
                        f"{ended} after {minutes:.0f} min",
                        "",
                        "",
                        "",
                        f"{benchmark.name}.txt",
                    ]
                )
            good &= code == 0 and all(one.is_kept for one in told)
    print(table([["benchmark", "what", "beside", "ratio", "limit", "kept"], *rows]))
    print(f"what each printed: {os.path.relpath(KEPT)}/")
    sys.exit(not good)


def execute(benchmark: Benchmark, environment: dict[str, str]) -> int | None:
    """The exit code of a benchmark; None if it was ended because it took too long."""
    argv = [sys.executable, str(HERE / f"{benchmark.name}.py"), *shlex.split(benchmark.arguments)]
    with (KEPT / f"{benchmark.name}.txt").open("w") as output:
        process = subprocess.Popen(
            argv, env=environment, stdout=output, stderr=output, cwd=HERE.parent
        )
        try:
            return process.wait(60 * benchmark.minutes)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End a benchmark, which ends what it started."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def row(name: str, one: Told) -> list[str]:
    """A line of the table."""
    if one.limit is None:
        return [name, one.what, one.baseline, one.interval, "", ""]
    limit = f"at {'most' if one.at_most else 'least'} {one.limit:g}"
    return [name, one.what, one.baseline, one.interval, limit, "yes" if one.is_kept else "NO"]


def table(rows: list[list[str]]) -> str:
    """Rows as a table of Markdown, the first one its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )


if __name__ == "__main__":
    main()
