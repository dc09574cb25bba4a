"""What 16 to 1024 ranks cost beside training, without GPUs: `python bench/scale.py`. Table:
docs/measurements/scale.md.

Four ranks per node. One node's ranks are really started (without torch): they leave their notes and
beat. The supervisor's ears are really started beside notes and heartbeats of all ranks. strace
counts their system calls on files of the run's folder for a minute; closing is not counted. What
one node does is multiplied by the number of nodes. Rows of 90 epochs, 20 480 per epoch as of
ImageNet with 64 images per rank and step, are written and joined.

One node's ranks then read the loader's list of as many files as ImageNet has, and one rank (this
one with torch) lets its guard agree a hundred times. `python bench/scale.py readers` is this part
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddlbench.core import heartbeats, notes
from ddlbench.core.files import write_json
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import ROWS, STEPS
from ddlbench.core.step_rows import STEP_COLUMNS, step_type
from ddlbench.core.step_table import join_steps
from ddlbench.data.forms import raw
from ddlbench.data.forms.raw import Files
from ddlbench.data.manifest import Manifest, Split
from ddlbench.run.watch import Probe, RankMonitor

PER_NODE, RANKS, EPOCHS, ROWS_PER_EPOCH, SECONDS = 4, (16, 64, 256, 1024), 90, 20_480, 60
IMAGES, CLASSES = {"train": 1_281_167, "val": 50_000}, 1000  # ImageNet's
CALL = re.compile(r"^\d+ +([\d.]+) (\w+)\(")
NOT_COUNTED = {
    "close",
    "lseek",
    "ioctl",
    "fcntl",
    "execve",
}  # reach no file system server, or only name the folder


def rank(folder: Path, number: int, nodes: int, seconds: float) -> None:
    """A stand-in rank."""
    notes.introduce(folder, number, number % PER_NODE)
    heartbeats.keep_beating(folder, number, number % PER_NODE, nodes)
    time.sleep(seconds)
    heartbeats.end(folder, number)


def supervisor(folder: Path, nodes: int, seconds: float) -> None:
    """The part of the supervisor that looks at files."""
    probe = Probe(folder, heartbeats.poll_s(nodes))
    probe.start()
    monitor, ends = (
        RankMonitor(folder, probe, heartbeats.SILENT_S, nodes),
        time.monotonic() + seconds,
    )
    while time.monotonic() < ends:
        monitor.listen()
        time.sleep(heartbeats.poll_s(nodes))


def reader(folder: Path, said: Path) -> None:
    """A rank's list of files, and a thousand names of it. Leaves how long it took, and the memory
    that is its own.
    """
    import numpy as np

    before, began = private_bytes(), time.perf_counter()
    files = Files(folder, "train")
    took_s = time.perf_counter() - began
    for index in np.random.default_rng(1).integers(0, len(files), 1000):
        assert files.name(index).endswith(".JPEG")
    write_json(said, {"seconds": took_s, "bytes": private_bytes() - before})


def private_bytes() -> int:
    """Memory of this process that no file holds."""
    return (
        int(
            re.search(r"^Anonymous: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)[
                1
            ]
        )
        * 1024
    )


def guarded(folder: Path) -> None:
    """A rank's guard: its part of a hundred agreements. What it sends is another matter; on disk it
    has nothing.
    """
    import torch
    from ddlbench.train.guard import Guard

    guard = Guard(lambda tensor: tensor[None], 30.0)
    os.close(os.open(folder / "began", os.O_CREAT))  # one call, to be sure that calls are seen
    for step in range(100):
        guard.agree(0, [torch.ones(())], step)


def calls(log: Path, folder: Path, first_s: float) -> tuple[int, int]:
    """Counted calls that touch the folder: in the first seconds, and in a minute after them."""
    found = [
        (float(m[1]), line)
        for line in log.open(errors="replace")
        if (m := CALL.match(line)) and m[2] not in NOT_COUNTED
    ]
    times = [at for at, line in found if str(folder) in line]
    began = min(times, default=0.0)
    return sum(at < began + first_s for at in times), sum(
        first_s <= at - began < first_s + SECONDS for at in times
    )


def traced(folder: Path, log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """This script as another process, under strace."""
    strace = ["strace", "-f", "-y", "-ttt", "-e", "trace=%file,%desc", "-o", str(log)]
    return subprocess.Popen(
        [*strace, sys.executable, __file__, *map(str, arguments), "--folder", str(folder)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["all"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to try this file")
    a = parser.parse_args()
    if a.tiny:
        globals().update(RANKS=(16,), EPOCHS=2, SECONDS=2, IMAGES={"train": 5000, "val": 2000})
    if a.what[0] == "rank":
        rank(a.folder, int(a.what[1]), int(a.what[2]), float(a.what[3]))
    elif a.what[0] == "supervisor":
        supervisor(a.folder, int(a.what[1]), float(a.what[2]))
    elif a.what[0] == "reader":
        reader(a.folder, Path(a.what[1]))
    elif a.what[0] == "guard":
        guarded(a.folder)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            if a.what[0] == "all":
                measure(Path(scratch))
                joined(Path(scratch))
            readers(Path(scratch))


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
                heartbeats.write_heartbeat(all_ / f"beat-{number}", 1)
        for number in range(PER_NODE):
            log = scratch / f"rank-{ranks}-{number}.log"
            started.append(traced(one, log, "rank", number, nodes, SECONDS + skip_s + 10))
        started.append(
            traced(
                all_,
                scratch / f"supervisor-{ranks}.log",
                "supervisor",
                nodes,
                SECONDS + skip_s + 10,
            )
        )
    for process in started:
        process.wait()
    print(
        "| ranks | nodes | supervisor, once | nodes, once | supervisor [1/s] | nodes [1/s] | all"
        " [1/s] | a node [1/s] |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for ranks in RANKS:
        nodes = ranks // PER_NODE
        logs = [scratch / f"rank-{ranks}-{number}.log" for number in range(PER_NODE)]
        found = [calls(log, scratch / f"node-{ranks}", skip_s) for log in logs]
        begin, later = (nodes * sum(one[n] for one in found) for n in (0, 1))
        own, own_later = calls(
            scratch / f"supervisor-{ranks}.log", scratch / f"all-{ranks}", skip_s
        )
        rates = [calls_ / SECONDS for calls_ in (own_later, later, own_later + later)]
        said = " | ".join(f"{rate:.1f}" for rate in rates)
        print(f"| {ranks} | {nodes} | {own} | {begin} | {said} | {rates[2] / nodes:.2f} |")


def joined(scratch: Path) -> None:
    """Rows of all epochs, written and made a table, by number of ranks."""
    import numpy as np

    print(
        "\n| ranks | rows | files | written [MB] | steps.parquet [MB] | writing an epoch [s] |"
        " joining [s] |"
    )
    print("|---|---|---|---|---|---|---|")
    for ranks in RANKS:
        folder, rng, took = scratch / f"rows-{ranks}", np.random.default_rng(1), 0.0
        folder.mkdir()
        log, steps = RankLog(folder, 0), ROWS_PER_EPOCH // ranks
        for epoch in range(EPOCHS):
            rows = np.zeros(ranks * steps, dtype=step_type())
            for name, mean in zip(
                STEP_COLUMNS, (0, 0, 0, 0, 0, 2, 1e-4, 0.05, 0.1, 0.01, 0.002, 1e3), strict=True
            ):
                rows[name] = mean * np.exp(0.2 * rng.standard_normal(len(rows)))
            rows["rank"], rows["epoch"], rows["images"] = (
                np.repeat(np.arange(ranks), steps),
                epoch,
                64,
            )
            rows["step"] = epoch * steps + np.tile(np.arange(steps), ranks)
            rows["lr"] = 0.1 * (1 + np.cos(rows["step"] / (EPOCHS * steps)))
            before = time.perf_counter()
            log.write_steps(rows)
            took += time.perf_counter() - before
        files = len(list(folder.glob("steps*")))
        before = time.perf_counter()
        join_steps(folder, ranks)
        join_s, sizes = (
            time.perf_counter() - before,
            [(folder / name).stat().st_size / 1e6 for name in (ROWS, STEPS)],
        )
        count = ranks * steps * EPOCHS
        print(
            f"| {ranks} | {count} | {files} | {sizes[0]:.0f} | {sizes[1]:.0f} | {took / EPOCHS:.3f}"
            f" | {join_s:.1f} |"
        )


def readers(scratch: Path) -> None:
    """What a node's ranks do with the list of files that `prepare` left, and one rank's guard."""
    form, run = scratch / "raw", scratch / "guarded"
    list_bytes = make_form(form)
    run.mkdir()
    logs = [scratch / f"reader-{number}.log" for number in range(PER_NODE)]
    started = [traced(form, log, "reader", log.with_suffix(".json")) for log in logs]
    started.append(traced(run, scratch / "guard.log", "guard"))
    for process in started:
        assert process.wait() == 0
    told = [json.loads(log.with_suffix(".json").read_text()) for log in logs]
    counted = [calls(log, form, 1e9)[0] for log in logs]
    print(
        "\n| ranks | calls on the form's folder | list [MB] | a rank's own memory [MB] | a rank"
        " [s] |"
    )
    print("|---|---|---|---|---|")
    own, slowest = max(one["bytes"] for one in told) / 1e6, max(one["seconds"] for one in told)
    for ranks in RANKS:
        all_calls = ranks * sum(counted) // PER_NODE
        print(f"| {ranks} | {all_calls} | {list_bytes / 1e6:.0f} | {own:.0f} | {slowest:.1f} |")
    at_work = calls(scratch / "guard.log", run, 1e9)[0]
    print(f"\nA guard's hundred agreements: {at_work - 1} calls on the run's folder.")
    assert at_work >= 1, "strace saw not even the call that was made to be seen"


def make_form(folder: Path) -> int:
    """A raw form of ImageNet's size without its pictures: the manifest, and the lists that
    `prepare` writes. Returns the bytes of the list for training.
    """
    classes = tuple(f"n{number:08d}" for number in range(CLASSES))
    splits = {}
    for split, images in IMAGES.items():
        counts = {
            name: images // CLASSES + (n < images % CLASSES) for n, name in enumerate(classes)
        }
        splits[split] = Split(
            images, counts, 0, {f"{split}/{name}/": "0" * 64 for name in classes}, "", {}
        )
    manifest = Manifest("imagenet", "raw", raw.FORMAT, None, classes, 0, 1, {}, {}, splits)
    folder.mkdir()
    manifest.write(folder)
    for split, told in splits.items():
        with raw.list_path(folder, Manifest.read(folder), split).open("w") as out:
            for label, (name, count) in enumerate(told.images_per_class.items()):
                out.writelines(f"{name}/{name}_{number}.JPEG {label}\n" for number in range(count))
    return raw.list_path(folder, manifest, "train").stat().st_size


if __name__ == "__main__":
    main()
