#!/usr/bin/env python
"""What a better JPEG decoder would bring loader `native`, which decodes whole pictures: libjpeg-turbo
decoding only what a random crop shows, at a smaller scale, and both, beside decoding all of it.

`python bench/decoding.py` prints CPU-ms per picture. Pictures are JPEGs of ImageNet's sizes, crops
those that `native` draws. It needs a C compiler and libjpeg-turbo's headers (apt-get install
libjpeg62-turbo-dev). A crop's pixels are those of the whole picture but for some at its edge; those
of a smaller scale are others, so that another thing would be trained.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import process_time

from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.train.loaders._pictures import decoded, random_crop, resized

SIZE = 224
SOURCE = Path(__file__).with_suffix(".c")
WAYS = ("whole picture", "crop only", "smaller scale", "crop at smaller scale")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        program = compiled(Path(scratch))
        place = Place(f"train={a.images},val=10,classes=10", Path(scratch, "fetched"))
        prepare("synthetic-imagenet", "raw", Path(scratch, "raw"), place=place)
        pictures = sorted(Path(scratch, "raw/train").glob("*/*"))
        crops = [crop(picture, number) for number, picture in enumerate(pictures)]
        rounds = [by_libjpeg(program, pictures, crops) for _ in range(a.rounds)]
        reading, decoding, resizing = by_native(pictures, crops)
    print(f"native: reads {reading:.2f}, decodes {decoding:.2f}, resizes {resizing:.2f} CPU-ms")
    print(f"{'libjpeg-turbo':22} {'CPU-ms':>7} {'/ whole':>8}")
    for way, name in enumerate(WAYS):
        taken = median(one[way] for one in rounds)
        ratio = median(one[way] / one[0] for one in rounds)
        print(f"{name:22} {taken:7.2f} {ratio:8.2f}")


def compiled(folder: Path) -> Path:
    """Compile decoding.c, and return the program."""
    compiler = shutil.which("cc") or sys.exit("no C compiler: apt-get install gcc")
    program = folder / "decoding"
    argv = [compiler, "-O2", "-o", str(program), str(SOURCE), "-ljpeg"]
    if subprocess.run(argv).returncode:
        sys.exit("apt-get install libjpeg62-turbo-dev")
    return program


def crop(picture: Path, number: int) -> tuple[int, int, int, int]:
    """Draw a crop as `native` does, and return left, top, right and bottom [pixels]."""
    height, width, _ = decoded(picture.read_bytes(), lambda: str(picture)).shape
    left, top, right, bottom = random_crop(width, height, random.Random(number))
    return int(left), int(top), int(right), int(bottom)


def by_libjpeg(
    program: Path, pictures: Sequence[Path], crops: Sequence[tuple[int, int, int, int]]
) -> list[float]:
    """Return the CPU-ms per picture of each of WAYS."""
    lines = [
        f"{picture} {left} {top} {right - left} {bottom - top}\n"
        for picture, (left, top, right, bottom) in zip(pictures, crops, strict=True)
    ]
    done = subprocess.run(
        [program], input="".join(lines), stdout=subprocess.PIPE, text=True, check=True
    )
    return [1e3 * float(seconds) / len(pictures) for seconds in done.stdout.split()]


def by_native(
    pictures: Sequence[Path], crops: Sequence[tuple[int, int, int, int]]
) -> tuple[float, float, float]:
    """Return the CPU-ms per picture that `native` takes to read, to decode and to resize."""
    import torch

    torch.set_num_threads(1)  # as in a loader's worker
    reading = decoding = resizing = 0.0
    for picture, box in zip(pictures, crops, strict=True):
        began = process_time()
        file = picture.read_bytes()
        read = process_time()
        pixels = decoded(file, lambda picture=picture: str(picture))
        there = process_time()
        resized(pixels, box, SIZE).copy()
        reading += read - began
        decoding += there - read
        resizing += process_time() - there
    each_ms = 1e3 / len(pictures)
    return each_ms * reading, each_ms * decoding, each_ms * resizing


if __name__ == "__main__":
    main()
