#!/usr/bin/env python
"""How fast shards are made: ours against `tar` of the same files (the limit) and the `tfrecord`
package's writer.

`python bench/data.py` makes a tree of JPEGs (data set synthetic-imagenet as raw form). It writes
the tree as TFRecords and as tar shards (form webdataset) with one and with two workers, as one tar
file, and with the package, by turns, each from a cold cache where that is allowed and until the
disk has it all (sync). Then it measures peak memory of workers on a tenth of the files and on all,
and the time to list an empty tree of as many names as ImageNet has. It prints tables and exits with
1 if a limit is broken. Run it on a machine that does nothing else. The package comes from
envs/readers.txt (`make tensorflow`); without it, that rival is left out and the output says so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place

READERS = (
    Path(os.environ.get("DDLBENCH_READERS", "~/.cache/ddlbench/tensorflow-venv")).expanduser()
    / "bin/python"
)
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
OF_TAR, OF_PACKAGE, OF_ONE_WORKER = 0.8, 3.0, 1.0  # at least: MB/s of ours over MB/s of the other
PEAK_MIB, GROWTH_MIB = (
    300,
    10,
)  # at most: a worker's memory; its growth from a tenth of the pictures to all
FORMS = ("tfrecord", "webdataset")
SAME = "tfrecord package, the same shards"
START_UP_S = 30  # at most: from the start to the first shard
# In a process of its own: what `prepare` does, then seconds, and peak memory [KiB] of its workers
# and of itself.
OURS = """
import json, resource, sys
from pathlib import Path
from time import perf_counter
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
form, source, folder, workers = sys.argv[1:]
prepare("imagenet", form, Path(folder), place=Place(source, Path(folder)), processes=int(workers))
peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
print(json.dumps(peaks))
"""
# As its documentation says (https://github.com/vahidk/tfrecord), once for the same product as ours,
# shuffled shards with eight features and their indices, and once with no more to do than to write
# one file in the order of names.
PACKAGE = """
import io, random, sys
from pathlib import Path
from PIL import Image
from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.writer import TFRecordWriter
tree, target = map(Path, sys.argv[1:3])
labels = {folder.name: i + 1 for i, folder in enumerate(sorted((tree / "train").iterdir()))}
def datum(path, full):
    encoded, synset = path.read_bytes(), path.parent.name
    told = {"image/encoded": (encoded, "byte"), "image/class/label": (labels[synset], "int")}
    if full:
        with Image.open(io.BytesIO(encoded)) as image:
            width, height = image.size
        told |= {"image/height": (height, "int"), "image/width": (width, "int"), "image/format": (b"JPEG", "byte"),
                 "image/class/synset": (synset.encode(), "byte"), "image/colorspace": (b"RGB", "byte"),
                 "image/filename": (path.name.encode(), "byte")}
    return told
def write(name, paths, full):
    writer = TFRecordWriter(str(target / name))
    for path in paths:
        writer.write(datum(path, full))
    writer.close()
for split, size in (("train", 1251), ("val", 391)):
    paths = sorted((tree / split).glob("*/*"))
    if sys.argv[3] == "plain":
        write(split, paths, False)
        continue
    random.Random(1).shuffle(paths)
    count = -(-len(paths) // size)
    for i in range(count):
        name = f"{split}-{i:05d}-of-{count:05d}"
        write(name, paths[i::count], True)
        create_index(str(target / name), str(target / f"{name}.idx"))
"""
START_UP = """
import json, resource, sys
from pathlib import Path
from time import perf_counter
began = perf_counter()
from ddlbench.data import prepare, source
from ddlbench.data.crew import Crew
class First(Exception): pass
def first(*arguments): raise First
Crew.map = first
try:
    prepare.prepare("imagenet", "tfrecord", Path(sys.argv[2]), place=source.Place(sys.argv[1], Path(sys.argv[2])))
except First:
    print(json.dumps([perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]))
"""


def cold() -> bool:
    """Empty the page cache, if that is allowed here."""
    os.sync()
    try:
        DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True


def timed(work: Callable[[], object]) -> float:
    """Seconds until the disk has what `work` wrote."""
    cold()
    began = perf_counter()
    work()
    os.sync()
    return perf_counter() - began


def python(program: str, *arguments: object, interpreter: Path | str = sys.executable) -> str:
    """What a Python program prints last."""
    command = [interpreter, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return (done.stdout.splitlines() or [""])[-1]


def ours(form: str, workers: int) -> str:
    """The name of one of our sides."""
    return f"{form}, {workers} worker{'s' if workers > 1 else ''}"


def compare(tree: Path, scratch: Path, repeats: int) -> dict[str, list[float]]:
    """MB/s of each writer, a list of repeats, taken by turns."""
    size = sum(f.stat().st_size for f in tree.rglob("*") if f.is_file())
    target = scratch / "out"
    writers: dict[str, Callable[[], object]] = {
        "tar": lambda: subprocess.run(
            ["tar", "-cf", target / "tree.tar", "-C", tree, "train", "val"], check=True
        ),
    }
    for form in FORMS:
        for workers in (1, 2):
            writers[ours(form, workers)] = partial(
                python, OURS, form, tree, target / "form", workers
            )
    if READERS.exists():
        for name, how in ((SAME, "same"), ("tfrecord package, file by file as they lie", "plain")):
            writers[name] = partial(python, PACKAGE, tree, target, how, interpreter=READERS)
    rates: dict[str, list[float]] = {name: [] for name in writers}
    for repeat in range(repeats):
        for name in list(writers)[:: -1 if repeat % 2 else 1]:
            target.mkdir()
            rates[name].append(size / timed(writers[name]) / 1e6)
            print(f"{name}: {rates[name][-1]:.0f} MB/s", flush=True)
            shutil.rmtree(target)
    return rates


def tree_of(folder: Path, images: int) -> Path:
    """Synthetic JPEGs in class folders: a hundredth of them to validate, about 1300 a class, as in
    ImageNet.
    """
    classes, val = max(2, images // 1300), max(20, images // 100)
    place = Place(f"train={images - val},val={val},classes={classes}", folder)
    began = perf_counter()
    manifest = prepare(
        "synthetic-imagenet", "raw", folder, place=place, processes=len(os.sched_getaffinity(0))
    )
    size = sum(split.bytes for split in manifest.splits.values())
    print(
        f"{images} JPEGs, {size / 1e9:.2f} GB, made in {perf_counter() - began:.0f} s", flush=True
    )
    return folder


def peaks(tree: Path, scratch: Path) -> list[int]:
    """Peak memory [MiB] of a worker, and of the process that deals out the work."""
    answer = python(OURS, "tfrecord", tree, scratch / "out", 2)
    shutil.rmtree(scratch / "out")
    return [kib // 1024 for kib in json.loads(answer)]


def start_up(scratch: Path, names: int) -> list[float]:
    """Seconds from the start to the first shard, over a tree of empty files in 1000 class folders;
    the main process's peak memory [MiB].
    """
    for label in range(1000):
        folders = [scratch / f"names/{split}/n{label:08d}" for split in ("train", "val")]
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "one.JPEG").touch()
        for number in range(names // 1000):
            os.close(os.open(folders[0] / f"n{label:08d}_{number}.JPEG", os.O_CREAT | os.O_WRONLY))
    cold()
    return json.loads(python(START_UP, scratch / "names", scratch / "out"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=20000, help="about 110 kB each")
    parser.add_argument("--names", type=int, default=1280000, help="of the empty tree")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to measure")
    a = parser.parse_args()
    if not READERS.exists():
        print(f"left out: the tfrecord package (no {READERS}: make tensorflow)")
    with tempfile.TemporaryDirectory(dir=a.scratch) as scratch:
        folder = Path(scratch)
        print(
            "page cache:"
            f" {'emptied before each' if cold() else 'as it is (it cannot be emptied here)'}"
        )
        trees = {
            images: tree_of(folder / str(images), images) for images in (a.images // 10, a.images)
        }
        rates = {name: median(r) for name, r in compare(trees[a.images], folder, a.repeats).items()}
        memory = {images: peaks(tree, folder) for images, tree in trees.items()}
        seconds, listing = start_up(folder, a.names)
    best = {form: max(rates[ours(form, 1)], rates[ours(form, 2)]) for form in FORMS}
    over = " | ".join(f"{form} over it" for form in FORMS)
    print(f"\n| writer | MB/s (median) | {over} |\n|---|---|{'---|' * len(FORMS)}")
    for name, rate in rates.items():
        print(
            f"| {name} | {rate:.0f} | {' | '.join(f'{best[form] / rate:.2f}' for form in FORMS)} |"
        )
    print("\n| images | worker's peak, MiB | main process, MiB |\n|---|---|---|")
    for images, (worker, main_process) in memory.items():
        print(f"| {images} | {worker} | {main_process} |")
    print(f"\nstart-up over {a.names} names: {seconds:.1f} s, main process {listing:.0f} MiB")
    few, many = (worker for worker, _ in memory.values())
    limits = {
        f"a worker's peak below {PEAK_MIB} MiB": many < PEAK_MIB,
        f"it grows by less than {GROWTH_MIB} MiB": many - few < GROWTH_MIB,
        f"start-up below {START_UP_S} s": seconds < START_UP_S,
    }
    for form in FORMS:
        limits[f"{form}: at least {OF_TAR} of tar"] = best[form] >= OF_TAR * rates["tar"]
        one, two = rates[ours(form, 1)], rates[ours(form, 2)]
        limits[f"{form}: two workers' rate at least {OF_ONE_WORKER} of one's"] = (
            two >= OF_ONE_WORKER * one
        )
    if SAME in rates:
        limits[f"tfrecord: at least {OF_PACKAGE} times the {SAME}"] = (
            best["tfrecord"] >= OF_PACKAGE * rates[SAME]
        )
    print(
        "\n"
        + "\n".join(f"{'holds' if held else 'BROKEN'}: {limit}" for limit, held in limits.items())
    )
    sys.exit(0 if all(limits.values()) else 1)


if __name__ == "__main__":
    main()
