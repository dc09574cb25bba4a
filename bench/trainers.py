#!/usr/bin/env python
"""How fast ddlbench trains (DDP, loader native) beside what people train ImageNet with: timm's
`train.py` and PyTorch's ImageNet example, both written anew after their published recipes
(`ranks/`), and, where they are installed, the Trainers of Lightning and of Hugging Face.

`python bench/trainers.py` makes JPEGs of ImageNet's sizes (data set synthetic-imagenet) and has all
sides train the same model from the same weights on them, at the same time and epoch by epoch in
turns: batch, optimizer, learning rate, augmentation (random resized crop, flip, normalise), ranks,
torch threads and loader processes are the same; the order of pictures and what crops are drawn are
each side's own. Prints images/s of the training part of epochs after the first (slowest rank),
CPU-ms an image of the same epochs (ranks and their loader processes), and the mean loss of the last
epoch. Exits with 1 if ddlbench's images/s are below a rival's, or if a side did not train like the
others. Run it on a machine that does nothing else.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from statistics import median

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.data.prepare import prepare
from ddlbench.data.source import Place
from ddlbench.plan import launch
from ddlbench.settings.recipe import load_recipe
from sides import MACHINE, RANKS, Measured, Side, ours, spread, train
from told import tell

LIMIT = 1.0  # images/s of ddlbench over images/s of each rival, at least
RIVALS = {"timm train.py": "timm_train.py", "PyTorch example": "imagenet_example.py"}
OPTIONAL = {
    "lightning": ("Lightning", "lightning_trainer.py"),
    "transformers": ("HF Trainer", "hf_trainer.py"),
}
RIVALS |= dict(rival for package, rival in OPTIONAL.items() if registry.importable(package))
OURS = "ddlbench"
CLASSES = 10
# Relative, between the sides' mean losses of the last epoch: they draw other crops in another order
# (2.5 % was seen). A side that learnt nothing would be 13 % above the others (2.30, the logarithm
# of ten classes).
LOSS_TOLERANCE = 0.08


def run_spec(a: argparse.Namespace) -> RunSpec:
    """The run that all sides make; the rate is constant, which all have under the name of a step
    schedule.
    """
    batch = a.batch_per_worker * a.workers
    recipe = replace(
        load_recipe("demo").at(batch),
        base_lr=0.02,
        lr_scaling="none",
        warmup_epochs=0.0,
        step_epochs=(),
        momentum=0.9,
        nesterov=False,
        weight_decay=1e-4,
        label_smoothing=0.0,
        augmentation="imagenet",
        image_size=a.size,
    )
    return RunSpec(
        machine=MACHINE.name,
        device="cpu",
        dataset="synthetic-imagenet",
        model=a.model,
        recipe=recipe,
        framework="ddp",
        loader="native",
        workers=a.workers,
        workers_per_node=a.workers,
        loader_threads=a.threads,
        global_batch=batch,
        schedule="step",
        epochs=a.epochs,
        repeat=1,
    )


def theirs(program: str, spec: RunSpec, data: Path, folder: Path) -> Side:
    """A rival makes the run, started as its documentation says: by torchrun, with as many threads
    as ours.
    """
    settings = {
        "data": str(data),
        "out": str(folder),
        "model": spec.model,
        "classes": CLASSES,
        "image_size": spec.recipe.image_size,
        "batch_per_worker": spec.batch_per_worker,
        "workers": spec.workers,
        "threads": spec.loader_threads,
        "epochs": spec.epochs,
        "lr": spec.recipe.base_lr,
        "momentum": spec.recipe.momentum,
        "weight_decay": spec.recipe.weight_decay,
        "seed": spec.seed,
    }
    given = launch.environment(spec, MACHINE)
    threads = [f"{name}={given[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    torchrun = ["python", "-m", "torch.distributed.run", "--standalone"]
    torchrun += [f"--nproc-per-node={spec.workers}"]
    command = [*torchrun, str(RANKS / program), json.dumps(settings)]
    return Side(["env", *threads, *command], folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=5, help="of all sides")
    parser.add_argument(
        "--epochs", type=int, default=4, help="of each start; the first is not counted"
    )
    parser.add_argument("--images", type=int, default=1280, help="training pictures, made for this")
    parser.add_argument("--model", default="resnet18", help="a name that timm knows")
    parser.add_argument("--size", type=int, default=64, help="pixels a side")
    parser.add_argument("--batch-per-worker", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2, help="ranks")
    parser.add_argument("--threads", type=int, default=1, help="loader processes a rank")
    parser.add_argument(
        "--data", type=Path, help="where the pictures lie from an earlier call, or shall lie"
    )
    a = parser.parse_args()
    if a.epochs < 2:
        parser.error("--epochs: the first is not counted; at least 2")
    if a.images % (a.batch_per_worker * a.workers):
        parser.error(
            "--images: a multiple of the batch of all ranks, so that no side drops or repeats"
            " pictures"
        )
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    spec = run_spec(a)
    with tempfile.TemporaryDirectory() as scratch:
        data, folder = (a.data or Path(scratch)) / "raw", Path(scratch, "runs")
        place = Place(f"train={a.images},val={CLASSES},classes={CLASSES}", data.parent / "fetched")
        with redirect_stdout(sys.stderr):
            prepare(
                "synthetic-imagenet",
                "raw",
                data,
                place=place,
                processes=len(os.sched_getaffinity(0)),
            )
        sides = [ours(spec, data, folder / "ours", a.images // spec.global_batch)]
        sides += [theirs(program, spec, data, folder / program) for program in RIVALS.values()]
        found = train(sides, a.workers, Path(scratch), a.starts)
    print(
        f"{a.model}, {a.size} pixels, {a.images} JPEGs, {a.workers} ranks, {a.batch_per_worker}"
        f" images a rank, {a.threads} loader processes a rank, {a.starts} x {a.epochs - 1} epochs"
    )
    sys.exit(not report(dict(zip([OURS, *RIVALS], found, strict=True))))


def report(results: dict[str, Measured]) -> bool:
    """Print the tables; False if a limit is broken."""
    print(f"{'':16} {'images/s':>9} {'CPU-ms an image':>16}  loss, last epoch")
    for name, m in results.items():
        print(f"{name:16} {median(m.images_per_s):9.1f} {median(m.cpu_ms):16.2f}  {m.loss:.3f}")
    good, mine = True, results[OURS]
    for name in RIVALS:
        other = results[name]
        rates = [a / b for a, b in zip(mine.images_per_s, other.images_per_s, strict=True)]
        costs = [b / a for a, b in zip(mine.cpu_ms, other.cpu_ms, strict=True)]
        fast = median(rates) >= LIMIT
        tell("a whole training: images/s", name, rates, LIMIT)
        alike = abs(mine.loss - other.loss) <= LOSS_TOLERANCE * other.loss
        print(
            f"{OURS} / {name}: images/s {spread(rates)}, limit {LIMIT}; images a CPU-s"
            f" {spread(costs)}"
            f"{'' if fast else '  BELOW THE LIMIT'}{'' if alike else '  LOSSES DIFFER'}"
        )
        good &= fast and alike
    return good


if __name__ == "__main__":
    main()
