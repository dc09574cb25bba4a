"""What 16 to 1024 ranks cost beside training, without GPUs: `python bench/scale.py`; docs/scale.md has the table.

Four ranks per node. One node's ranks are really started (without torch): they leave their notes and beat. (The loader's
list, and the guard, which needs torch, are not in it.) The supervisor's ears are really started beside notes and beats
of all ranks. strace counts their system calls on files of the run's folder for a minute; closing is not counted. What
one node does is multiplied by the number of nodes. Rows of 90 epochs, 20 480 per epoch as of ImageNet with 64 images
per rank and step, are written and joined.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddlbench import beats, notes
from ddlbench.files import write_json
from ddlbench.record import ROWS, STEP_COLUMNS, STEPS, RankLog, join_steps, step_type
from ddlbench.run.listen import Ears, Probe

PER_NODE, RANKS, EPOCHS, ROWS_PER_EPOCH, SECONDS = 4, (16, 64, 256, 1024), 90, 20_480, 60
CALL = re.compile(r"^\d+ +([\d.]+) (\w+)\(")
NOT_COUNTED = {"close", "lseek", "ioctl", "fcntl"}  # reach no file system server


def rank(folder: Path, number: int, nodes: int, seconds: float) -> None:
    """A stand-in rank."""
    notes.introduce(folder, number, number % PER_NODE)
    beats.keep_beating(folder, number, number % PER_NODE, nodes)
    time.sleep(seconds)
    beats.end(folder, number)


def supervisor(folder: Path, nodes: int, seconds: float) -> None:
    """The part of the supervisor that looks at files."""
    probe = Probe(folder, beats.poll_s(nodes))
    probe.start()
    ears, ends = Ears(folder, probe, beats.SILENT_S, nodes), time.monotonic() + seconds
    while time.monotonic() < ends:
        ears.listen()
        time.sleep(beats.poll_s(nodes))


def calls(log: Path, folder: Path, first_s: float) -> tuple[int, int]:
    """Counted calls that touch the folder: in the first seconds, and in a minute after them."""
    found = [
        (float(m[1]), line)
        for line in log.open(errors="replace")
        if (m := CALL.match(line)) and m[2] not in NOT_COUNTED
    ]
    times = [at for at, line in found if str(folder) in line]
    began = min(times, default=0.0)
    return sum(at < began + first_s for at in times), sum(first_s <= at - began < first_s + SECONDS for at in times)


def traced(folder: Path, log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """This script as another process, under strace."""
    strace = ["strace", "-f", "-y", "-ttt", "-e", "trace=%file,%desc", "-o", str(log)]
    return subprocess.Popen([*strace, sys.executable, __file__, *map(str, arguments), "--folder", str(folder)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["all"])
    parser.add_argument("--folder", type=Path)
    a = parser.parse_args()
    if a.what[0] == "rank":
        rank(a.folder, int(a.what[1]), int(a.what[2]), float(a.what[3]))
    elif a.what[0] == "supervisor":
        supervisor(a.folder, int(a.what[1]), float(a.what[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            measure(Path(scratch))
            joined(Path(scratch))


def measure(scratch: Path) -> None:
    """The table of file operations per second. All sizes at once: they only wait."""
    started, skip_s = [], 15.0  # of starting: interpreters, notes
    for ranks in RANKS:
        nodes = ranks // PER_NODE
        one, all_ = scratch / f"node-{ranks}", scratch / f"all-{ranks}"
        one.mkdir()
        all_.mkdir()
        for number in range(ranks):
            who = {"host": "node", "pid": 0, "started": 0.0, "local_rank": number % PER_NODE}
            write_json(all_ / f"rank-{number}.json", who)
            if number % PER_NODE == 0:
                beats.write_beat(all_ / f"beat-{number}", 1)
        for number in range(PER_NODE):
            log = scratch / f"rank-{ranks}-{number}.log"
            started.append(traced(one, log, "rank", number, nodes, SECONDS + skip_s + 10))
        started.append(traced(all_, scratch / f"supervisor-{ranks}.log", "supervisor", nodes, SECONDS + skip_s + 10))
    for process in started:
        process.wait()
    print(
        "| ranks | nodes | supervisor, once | nodes, once | supervisor [1/s] | nodes [1/s] | all [1/s] | a node [1/s] |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for ranks in RANKS:
        nodes = ranks // PER_NODE
        logs = [scratch / f"rank-{ranks}-{number}.log" for number in range(PER_NODE)]
        found = [calls(log, scratch / f"node-{ranks}", skip_s) for log in logs]
        begin, later = (nodes * sum(one[n] for one in found) for n in (0, 1))
        own, own_later = calls(scratch / f"supervisor-{ranks}.log", scratch / f"all-{ranks}", skip_s)
        rates = [calls_ / SECONDS for calls_ in (own_later, later, own_later + later)]
        said = " | ".join(f"{rate:.1f}" for rate in rates)
        print(f"| {ranks} | {nodes} | {own} | {begin} | {said} | {rates[2] / nodes:.2f} |")


def joined(scratch: Path) -> None:
    """Rows of all epochs, written and made a table, by number of ranks."""
    import numpy as np

    print("\n| ranks | rows | files | written [MB] | steps.parquet [MB] | writing an epoch [s] | joining [s] |")
    print("|---|---|---|---|---|---|---|")
    for ranks in RANKS:
        folder, rng, took = scratch / f"rows-{ranks}", np.random.default_rng(1), 0.0
        folder.mkdir()
        log, steps = RankLog(folder, 0), ROWS_PER_EPOCH // ranks
        for epoch in range(EPOCHS):
            rows = np.zeros(ranks * steps, dtype=step_type())
            for name, mean in zip(STEP_COLUMNS, (0, 0, 0, 0, 0, 2, 1e-4, 0.05, 0.1, 0.01, 0.002, 1e3), strict=True):
                rows[name] = mean * np.exp(0.2 * rng.standard_normal(len(rows)))
            rows["rank"], rows["epoch"], rows["images"] = np.repeat(np.arange(ranks), steps), epoch, 64
            rows["step"] = epoch * steps + np.tile(np.arange(steps), ranks)
            rows["lr"] = 0.1 * (1 + np.cos(rows["step"] / (EPOCHS * steps)))
            before = time.perf_counter()
            log.write_steps(rows)
            took += time.perf_counter() - before
        files = len(list(folder.glob("steps*")))
        before = time.perf_counter()
        join_steps(folder, ranks)
        join_s, sizes = time.perf_counter() - before, [(folder / name).stat().st_size / 1e6 for name in (ROWS, STEPS)]
        count = ranks * steps * EPOCHS
        print(f"| {ranks} | {count} | {files} | {sizes[0]:.0f} | {sizes[1]:.0f} | {took / EPOCHS:.3f} | {join_s:.1f} |")


if __name__ == "__main__":
    main()
