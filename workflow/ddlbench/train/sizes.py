"""How large models are, whatever fits into this computer: `python -m ddlbench.train.sizes <model>:<image size> ...`.

Models are built on PyTorch's meta device, where tensors have shapes and no memory. It prints rows of
`config/references/model-sizes.csv`. It is a process of its own because it imports torch.
"""

import argparse
import csv
import sys
from importlib.metadata import version

import torch

from ddlbench.train import models

CLASSES = 1000


def count(name: str, image_size: int) -> tuple[int, int]:
    """Numbers in the model: those that are trained, and those in buffers. Raises RuntimeError on an unknown name."""
    with torch.device("meta"):
        model = models.build(name, CLASSES, image_size)
    return sum(p.numel() for p in model.parameters()), sum(b.numel() for b in model.buffers())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ddlbench.train.sizes", description=__doc__)
    parser.add_argument("models", nargs="+", help="such as vit_giant_patch14_224:224")
    out = csv.writer(sys.stdout, lineterminator="\n")
    for model in parser.parse_args().models:
        name, _, size = model.rpartition(":")
        if not size.isdigit():
            parser.error(f"{model}: allowed: a name, a colon and the image size in pixels")
        source = f"counted on the meta device with {CLASSES} classes, timm {version('timm')}"
        out.writerow([name, size, *count(name, int(size)), source])


if __name__ == "__main__":
    main()
