#!/usr/bin/env python
"""How fast pictures are fed: our loaders against timm's and torchvision's, and against pipelines of
DALI, SPDL and WebDataset written by hand.

`python bench/loaders.py` makes JPEGs of ImageNet's sizes (data set synthetic-imagenet, every form)
and has each side read all training pictures some times, in a process of its own, with as many
worker processes or threads as there are cores (or with each of the numbers that `--threads` names):
random resized crop to 224, flip, normalise; float batches on the CPU. The sides are there at the
same time and take turns by the epoch. Images/s are of the epochs after the first of each start
(workers are then running, files in the page cache); CPU-ms an image are of the same epochs, of the
process and its workers. A ratio is the median over pairs of epochs, with its 95 % interval. Prints
a table for each number of threads, ratios, and how many threads are enough; exits with 1 if a ratio
that has a limit is below it. `--figure` draws the table. `bare WebDataset` is a side where that
package is installed (`pip install webdataset==1.0.2`).
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.patches import torchvision_operators
from ddlbench.settings.recipe import load_recipe
from ddlbench.train.loaders import PictureSet
from ddlbench.train.loaders._normalisation import MEAN, STD
from sides import spread
from told import tell

SIZE, BATCH = 224, 64  # pixels a side, images a batch
SETTLE_S = 0.5  # after an epoch, for what reads ahead to come to rest
OF_TIMM, OF_BARE = 1.2, 0.97  # at least: images/s of ours over those of the rival
RATIOS = [  # (ours, rival, limit)
    ("native", "timm", OF_TIMM),
    ("dali-cpu tfrecord", "bare DALI tfrecord", OF_BARE),
    ("dali-cpu raw", "bare DALI raw", OF_BARE),
    ("dali-cpu webdataset", "bare DALI webdataset", OF_BARE),
    ("spdl", "bare SPDL", OF_BARE),
    ("native webdataset", "bare WebDataset", OF_BARE),
    ("torchvision", "bare torchvision", OF_BARE),
]
# Batches that a side decodes between epochs, in nobody's time: DALI's own iterator begins an epoch
# when one ends, and fills its queue. They are not counted as read. Ours begin an epoch when it is
# asked for.
AHEAD = {"bare DALI tfrecord": 2, "bare DALI raw": 2, "bare DALI webdataset": 2}
ENOUGH = 0.95  # of the fastest: so many threads are enough
LOOKS = {
    "raw": ("o", "-"),
    "tfrecord": ("s", "--"),
    "webdataset": ("^", ":"),
}  # marker and line of a form in the figure
Results = dict[str, list[dict[str, float]]]  # by side, an epoch each
Epochs = Iterator[Iterator[tuple[Any, Any]]]


def ours(loader: str, form: str) -> Callable[[Path, int], Epochs]:
    """One of our loaders, opened as `train.py` opens it."""

    def epochs(data: Path, threads: int) -> Epochs:
        from dataclasses import replace

        recipe = replace(load_recipe("demo").at(BATCH), augmentation="imagenet", image_size=SIZE)
        spec = RunSpec(
            machine="local",
            device="cpu",
            dataset="synthetic-imagenet",
            model="resnet50",
            recipe=recipe,
            framework="ddp",
            loader=loader,
            form=form,
            workers=1,
            workers_per_node=1,
            loader_threads=threads,
            global_batch=BATCH,
            schedule="cosine",
            epochs=1,
            repeat=1,
        )
        images = sum(1 for _ in (data / "raw/train").glob("*/*"))
        opened = registry.member("loaders", loader).Loader(
            PictureSet(data / form, "train", images, 10), spec, 0
        )
        epoch = 0
        while True:
            yield opened.epoch(epoch)
            epoch += 1

    return epochs


def timm(data: Path, threads: int) -> Epochs:
    """timm's loader: its augmentation without what ours has not, and normalisation of whole
    batches.
    """
    torchvision_operators.apply()
    from timm.data import create_dataset, create_loader

    loader = create_loader(
        create_dataset("", root=str(data / "raw/train")),
        input_size=(3, SIZE, SIZE),
        batch_size=BATCH,
        is_training=True,
        color_jitter=None,
        hflip=0.5,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
        num_workers=threads,
        pin_memory=False,
        device=torch.device("cpu"),
    )
    # It drops the last batch, as timm does in training: only whole images are counted on either
    # side.
    while True:
        yield iter(loader)


def torchvision(data: Path, threads: int) -> Epochs:
    """torchvision as in PyTorch's ImageNet example (github.com/pytorch/examples,
    imagenet/main.py).
    """
    torchvision_operators.apply()
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    augment = [
        transforms.RandomResizedCrop(SIZE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    dataset = datasets.ImageFolder(str(data / "raw/train"), transforms.Compose(augment))
    loader = DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=threads, persistent_workers=True
    )
    while True:
        yield iter(loader)


def augmentation() -> Callable[[bytes], torch.Tensor]:
    """Make a function from a JPEG to uint8 [3, SIZE, SIZE], as one writes it by hand: the decoder of
    our loaders and torchvision's transforms of tensors, so that only what surrounds them differs.
    """
    torchvision_operators.apply()
    import simplejpeg
    from torchvision.transforms import v2

    augment = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])

    def augmented(encoded: bytes) -> torch.Tensor:
        picture = torch.from_numpy(simplejpeg.decode_jpeg(encoded))
        whole: torch.Tensor = augment(picture.permute(2, 0, 1))
        return whole

    return augmented


def normalised(pictures: torch.Tensor) -> torch.Tensor:
    """Return float32 of uint8 [n, 3, SIZE, SIZE], by ImageNet's mean and deviation."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))
    return pictures.float().sub_(mean).div_(std)


def spdl(data: Path, threads: int) -> Epochs:
    """SPDL's pipeline as its guide has it: a source of files, a stage with as many threads, batches
    (facebookresearch.github.io/spdl, "Building and Running Pipeline").
    """
    import random

    from spdl.pipeline import PipelineBuilder

    augmented = augmentation()
    folders = sorted((data / "raw/train").iterdir())
    files = [(path, label) for label, folder in enumerate(folders) for path in folder.iterdir()]

    def opened(file: tuple[Path, int]) -> tuple[torch.Tensor, int]:
        path, label = file
        return augmented(path.read_bytes()), label

    def batch(pictures: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, labels = zip(*pictures, strict=True)
        return normalised(torch.stack(pixels)), torch.tensor(labels)

    while True:
        builder: PipelineBuilder[Any, Any] = PipelineBuilder()
        pipeline = (
            builder.add_source(random.sample(files, len(files)))
            .pipe(opened, concurrency=threads)
            .aggregate(BATCH)
            .pipe(batch)
            .add_sink(2)
            .build(num_threads=threads)
        )
        yield _of_pipeline(pipeline)


def _of_pipeline(pipeline: Any) -> Iterator[Any]:
    with pipeline.auto_stop():
        yield from pipeline


def webdataset(data: Path, threads: int) -> Epochs:
    """WebDataset's pipeline as its documentation has it for ImageNet (github.com/webdataset): tar
    shards, a buffer that shuffles, batches made by the workers.
    """
    import webdataset as wds

    shards = sorted(str(path) for path in (data / "webdataset").glob("train-*.tar"))
    dataset = (
        wds.WebDataset(shards, shardshuffle=len(shards))
        .shuffle(1000)
        .to_tuple("jpg;jpeg", "cls")
        .map_tuple(augmentation(), int)
        .batched(BATCH)
    )
    loader = wds.WebLoader(
        dataset, batch_size=None, num_workers=threads, persistent_workers=threads > 0
    )
    while True:
        yield ((normalised(pictures), labels) for pictures, labels in loader)


def dali(form: str) -> Callable[[Path, int], Epochs]:
    """DALI's pipeline as its documentation has it for ResNet-50, with no more around it than its
    own iterator.
    """

    def epochs(data: Path, threads: int) -> Epochs:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali import tfrecord as tfrec
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

        shards = sorted(str(p) for p in (data / "tfrecord").glob("train-*-of-*[0-9]"))
        features = {
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        }

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, seed=1)
        def define() -> Any:
            common = {
                "name": "reader",
                "random_shuffle": True,
                "initial_fill": 4096,
                "pad_last_batch": True,
            }
            if form == "raw":
                encoded, labels = fn.readers.file(file_root=str(data / "raw/train"), **common)
            elif form == "webdataset":
                tars = sorted(str(path) for path in (data / "webdataset").glob("train-*.tar"))
                # The ten classes are a digit each.
                encoded, labels = fn.readers.webdataset(
                    paths=tars,
                    index_paths=[f"{tar}.idx" for tar in tars],
                    ext=["jpg;jpeg", "cls"],
                    **common,
                )
            else:
                indices = [f"{shard}.idx" for shard in shards]
                record = fn.readers.tfrecord(
                    path=shards, index_path=indices, features=features, **common
                )
                encoded, labels = record["image/encoded"], record["image/class/label"] - 1
            images = fn.decoders.image_random_crop(
                encoded,
                output_type=types.RGB,
                random_area=[0.08, 1.0],
                random_aspect_ratio=[3 / 4, 4 / 3],
            )
            images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR)
            images = fn.crop_mirror_normalize(
                images,
                crop=(SIZE, SIZE),
                mirror=fn.random.coin_flip(probability=0.5),
                mean=[255 * m for m in MEAN],
                std=[255 * s for s in STD],
                dtype=types.FLOAT,
                output_layout="CHW",
            )
            return images, labels

        iterator = DALIClassificationIterator(
            define(),
            reader_name="reader",
            auto_reset=True,
            last_batch_policy=LastBatchPolicy.PARTIAL,
        )
        while True:
            yield ((batch["data"], batch["label"].squeeze(-1).long()) for (batch,) in iterator)

    return epochs


SIDES: dict[str, Callable[[Path, int], Epochs]] = {
    "native": ours("native", "raw"),
    "dali-cpu tfrecord": ours("dali-cpu", "tfrecord"),
    "dali-cpu raw": ours("dali-cpu", "raw"),
    "spdl": ours("spdl", "raw"),
    "native webdataset": ours("native", "webdataset"),
    "spdl webdataset": ours("spdl", "webdataset"),
    "dali-cpu webdataset": ours("dali-cpu", "webdataset"),
    "torchvision": ours("torchvision", "raw"),
    "timm": timm,
    "bare torchvision": torchvision,
    "bare DALI tfrecord": dali("tfrecord"),
    "bare DALI raw": dali("raw"),
    "bare DALI webdataset": dali("webdataset"),
    "bare SPDL": spdl,
}
if importlib.util.find_spec("webdataset"):
    SIDES["bare WebDataset"] = webdataset


def cpu_s(pid: int) -> float:
    """Seconds of processor time of a process and its living children, all threads."""
    pids = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        pids += map(int, children.read_text().split())
    fields = (Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split() for p in pids)
    return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")


def serve(side: str, data: Path, threads: int) -> None:
    """In a process of its own: for each line of standard input read an epoch, and print what it
    took.
    """
    import resource

    def spent_s() -> (
        float
    ):  # workers that ended meanwhile are counted by `resource`, those that live by /proc
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_s(os.getpid()) + ended.ru_utime + ended.ru_stime

    torch.set_num_threads(1)
    given = SIDES[side](data, threads)
    for _ in sys.stdin:
        images, began, spent = 0, perf_counter(), spent_s()
        for x, y in next(given):
            # A rival that gave less than a normalised float picture would win for nothing.
            assert x.dtype == torch.float32
            assert x.shape[1:] == (3, SIZE, SIZE)
            images += len(y)
        seconds, spent = perf_counter() - began, spent_s() - spent
        images -= BATCH * AHEAD.get(side, 0)
        print(
            json.dumps({"images_per_s": images / seconds, "cpu_ms": 1e3 * spent / images}),
            flush=True,
        )


def measure(sides: Sequence[str], data: Path, threads: int, epochs: int) -> Results:
    """Images/s and CPU-ms an image of each side's epochs after the first. All sides are there and
    take turns by the epoch, so that what else the machine does hits all of them; they go first and
    last by turns.
    """
    results: Results = {side: [] for side in sides}
    command = [sys.executable, __file__, "--threads", str(threads), "--data", str(data), "--side"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = {side: subprocess.Popen([*command, side], **pipes) for side in sides}
    for epoch in range(1 + epochs):
        for side in sides if epoch % 2 else reversed(sides):
            process = running[side]
            print("epoch", file=process.stdin, flush=True)
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{side}: exit code {process.wait()}")
            if epoch:
                results[side].append(json.loads(line))
            time.sleep(SETTLE_S)
    for process in running.values():
        process.communicate()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000, help="training pictures, made for this")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is started")
    parser.add_argument(
        "--epochs", type=int, default=3, help="of each start that count; one more comes first"
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[cores], help="worker processes or threads"
    )
    parser.add_argument("--figure", type=Path, help="draw images/s over threads into this file")
    parser.add_argument("--data", type=Path, help="where the forms lie from an earlier call")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument(
        "--side", choices=SIDES, help=argparse.SUPPRESS
    )  # one measurement, in this process
    a = parser.parse_args()
    if a.side:
        serve(a.side, a.data, *a.threads)
        return
    with tempfile.TemporaryDirectory() as scratch:
        data = a.data or Path(scratch)
        place = Place(f"train={a.images},val=10,classes=10", data / "fetched")
        for form in registry.members("forms"):
            prepare("synthetic-imagenet", form, data / form, place=place, processes=cores)
        found: dict[int, Results] = {
            threads: {side: [] for side in a.sides} for threads in a.threads
        }
        for _ in range(a.rounds):
            for threads, results in found.items():
                for side, measured in measure(a.sides, data, threads, a.epochs).items():
                    results[side] += measured
    good = [report(results, threads) for threads, results in found.items()]
    if len(found) > 1:
        report_enough(found)
    if a.figure:
        draw(found, a.figure)
    sys.exit(not all(good))


def report(results: Results, threads: int) -> bool:
    """Print the tables; False if a ratio is below its limit."""
    print(f"{threads} worker processes or threads, {SIZE} pixels, {BATCH} images a batch")
    print(
        f"{'loader':20} {'images/s':>9} {'min..max':>12} {'CPU-ms an image':>16} {'min..max':>12}"
    )
    for side, measured in results.items():
        rates, costs = ([m[key] for m in measured] for key in ("images_per_s", "cpu_ms"))
        print(
            f"{side:20} {median(rates):9.0f} {min(rates):5.0f}..{max(rates):5.0f}"
            f" {median(costs):16.2f} {min(costs):5.2f}..{max(costs):5.2f}"
        )
    good = True
    for our, rival, limit in RATIOS:
        if our in results and rival in results:
            pairs = list(zip(results[our], results[rival], strict=True))
            rates = [o["images_per_s"] / r["images_per_s"] for o, r in pairs]
            costs = [r["cpu_ms"] / o["cpu_ms"] for o, r in pairs]
            verdict = "" if median(rates) >= limit else "  BELOW THE LIMIT"
            tell(f"loader {our}: images/s", rival, rates, limit)
            said = f"{spread(rates)} in images/s (limit {limit}), {spread(costs)} in images a CPU-s"
            print(f"{our} / {rival}: {said}{verdict}")
            good &= median(rates) >= limit
    for side in results if "native" in results else ():
        if side not in ("native", *(rival for _, rival, _ in RATIOS)):
            pairs = list(zip(results[side], results["native"], strict=True))
            rates = [s["images_per_s"] / n["images_per_s"] for s, n in pairs]
            costs = [n["cpu_ms"] / s["cpu_ms"] for s, n in pairs]
            print(
                f"{side} / native: {spread(rates)} in images/s, {spread(costs)} in images a CPU-s"
            )
    return good


def report_enough(found: dict[int, Results]) -> None:
    """From how many threads on each side is within 5 % of its fastest."""
    for side in next(iter(found.values())):
        rates = {
            threads: median(m["images_per_s"] for m in results[side])
            for threads, results in found.items()
        }
        enough = min(
            threads for threads, rate in rates.items() if rate >= ENOUGH * max(rates.values())
        )
        print(
            f"{side}: {enough} threads are enough"
            f" ({', '.join(f'{t}: {r:.0f}/s' for t, r in sorted(rates.items()))})"
        )


def draw(found: dict[int, Results], path: Path) -> None:
    """Images/s and images per CPU second over threads, medians with the least and most: a line per
    loader and form.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    sides = list(next(iter(found.values())))
    colours = dict(
        zip(
            dict.fromkeys(side.split()[0] for side in sides),
            plt.get_cmap("tab10").colors,
            strict=False,
        )
    )
    told = {
        "images/s": lambda m: m["images_per_s"],
        "images per second of processor time": lambda m: 1e3 / m["cpu_ms"],
    }
    threads = sorted(found)
    for axes, (label, value) in zip(panels, told.items(), strict=True):
        for number, side in enumerate(sides):
            loader, *form = side.split()
            marker, line = LOOKS[form[-1]] if form and form[-1] in LOOKS else LOOKS["raw"]
            values = [[value(m) for m in found[t][side]] for t in threads]
            middle = [median(v) for v in values]
            ends = [[m - min(v) for m, v in zip(middle, values, strict=True)]]
            ends.append([max(v) - m for m, v in zip(middle, values, strict=True)])
            x = [t * 1.03 ** (number - len(sides) / 2) for t in threads]  # side by side
            name = " ".join(form[-1:]) if form and form[-1] in LOOKS else "raw"
            axes.errorbar(
                x,
                middle,
                ends,
                marker=marker,
                linestyle=line,
                color=colours[loader],
                capsize=2,
                label=f"{loader}, {name}",
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(threads, map(str, threads))
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(xlabel="threads or worker processes", ylabel=label)
        axes.grid(alpha=0.3)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
