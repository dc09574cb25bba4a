#!/usr/bin/env python
"""How far the rate of training is off that is read of lines on a busy machine: `python
bench/pauses.py`.

Made-up logs, of which it is known what was training: each interval between two lines has
log-normal noise and is at times two to four times as long. Some trainings stop, too. One row for
each kind: the bias of the rate, and how many readings are off by more than 5 % and say nothing of
it.
"""

import argparse
import contextlib
import io
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddlbench.core.program import Program
from ddlbench.core.spec import of_program
from ddlbench.run.readings import Line, Output, UnreadError, lines

BATCH, SLOW, FAR = 8, 0.03, 0.05
KINDS = ("", "prints its rate", "validates", "validates once", "says that it validates")


def log(draw: random.Random, noise: float, count: int, kind: str) -> tuple[list[Line], float]:
    """Return lines of a run, and its rate of training [samples/s]."""
    every, step_s, now, train_s = draw.choice([1, 10]), draw.uniform(0.05, 0.5), 1000.0, 0.0
    between = max(count // draw.choice([2, 4, 8]), 2)
    stops_s = draw.uniform(4, 30) * every * step_s
    rate = f" {BATCH / step_s:.4g} img/s" if kind == "prints its rate" else ""
    printed = [Line(now, f"step 0{rate}")]
    for n in range(1, count + 1):
        took_s = every * step_s * draw.lognormvariate(0, noise)
        took_s *= draw.uniform(2, 4) if draw.random() < SLOW else 1
        now, train_s = now + took_s, train_s + took_s
        rate = f" {BATCH * every / took_s:.4g} img/s" if kind == "prints its rate" else ""
        printed.append(Line(now, f"step {n * every}{rate}"))
        if "validates" in kind and (
            n == count // 2 if "once" in kind else n % between == 0 and n < count
        ):
            if "says" in kind:
                printed.append(Line(now + stops_s, "Validation done"))
            now += stops_s
    return printed, BATCH * every * count / train_s


def read(printed: Sequence[Line], kind: str) -> tuple[float, bool] | None:
    """Return the rate that is read, and whether it is marked as doubtful; None where it is
    refused.
    """
    rate = r" (?P<samples_per_s>\S+) img" if kind == "prints its rate" else ""
    program = Program(name="m", command="x", patterns=(rf"step (?P<step>\d+){rate}",))
    at = {"machine": "local", "device": "cpu", "workers": 1, "workers_per_node": 1}
    spec = of_program(program, global_batch=BATCH, **at)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            made = lines.read(Output(spec, Path(), Path(), printed))
    except UnreadError:
        return None
    took_s = sum(row.took_s for row in made.rows)
    return sum(row.images for row in made.rows) / took_s, "gaps" in made.remarks


def rows(tries: int) -> Iterator[str]:
    heads = ["lines", "noise", "a training that", "median", "5 % .. 95 %", "furthest"]
    heads += ["off and silent", "marked", "refused"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{len(heads) * '---|'}"
    for kind in KINDS:
        for count in (10, 30, 100, 300):
            for noise in (0.1, 0.2, 0.3):
                draw = random.Random(f"{kind} {count} {noise}")
                off, marked, refused, silent = [], 0, 0, 0
                for _ in range(tries):
                    printed, true = log(draw, noise, count, kind)
                    found = read(printed, kind)
                    if found is None:
                        refused += 1
                        continue
                    off.append(found[0] / true - 1)
                    marked += found[1]
                    silent += abs(off[-1]) > FAR and not found[1]
                off.sort()
                low, high = off[len(off) // 20], off[-1 - len(off) // 20]
                furthest = max(off, key=abs)
                cells = [f"{count}", f"{noise:.0%}", kind or "does nothing else"]
                cells += [f"{statistics.median(off):+.1%}", f"{low:+.1%} .. {high:+.1%}"]
                cells += [f"{furthest:+.1%}"]
                cells += [f"{one / tries:.0%}" for one in (silent, marked, refused)]
                yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    asks = argparse.ArgumentParser(description=__doc__)
    asks.add_argument("--tries", type=int, default=200)
    print("\n".join(rows(asks.parse_args().tries)))
