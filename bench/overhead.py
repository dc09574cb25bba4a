#!/usr/bin/env python
"""What ddlbench costs over a bare training loop: images/s of both, with the same data, model and
launcher.

`python bench/overhead.py` prints a table and exits with 1 if a median ratio is below the limit, or
if the two did not train the same (losses of the last step). Two ratios, ddlbench over bare, of the
training part of epochs after the first (no start, no validation), with all that ddlbench measures
and writes meanwhile:

  images/s      by wall time, the slowest rank's; it has the limit. Run it on a machine that does nothing else.
  images/CPU-s  by CPU time of the ranks and their loader processes: waiting is not in it.

Both sides train at the same time, epoch by epoch in turns: a ratio is of two epochs that follow
each other, and each start has the other one begin. LeNet's steps are the shortest, so what ddlbench
does a step shows most there.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.data.prepare import prepare
from ddlbench.plan import launch
from ddlbench.settings.recipe import load_recipe
from sides import MACHINE, RANKS, Measured, Side, ours, spread, train
from told import tell

LIMIT = 0.98  # images/s of ddlbench over images/s of the bare loop
BATCH_PER_WORKER = 64
LOSS_TOLERANCE = 2e-2  # relative; float rounding grows over many hundred steps


def run_spec(framework: str, workers: int, model: str, epochs: int) -> RunSpec:
    """The run that both sides make."""
    return RunSpec(
        machine=MACHINE.name,
        device="cpu",
        dataset="mnist5k",
        model=model,
        recipe=load_recipe("demo").at(64),
        framework=framework,
        loader="native",
        workers=workers,
        workers_per_node=workers,
        loader_threads=MACHINE.loader_threads,
        global_batch=BATCH_PER_WORKER * workers,
        schedule="cosine",
        epochs=epochs,
        repeat=1,
    )


def bare(spec: RunSpec, data: Path, folder: Path) -> Side:
    """The bare loop makes the run."""
    settings = json.loads(spec.to_json())
    settings |= settings.pop("recipe")
    settings |= {
        "data": str(data),
        "out": str(folder),
        "seed": spec.seed,
        "batch_per_worker": spec.batch_per_worker,
        "classes": len(registry.member("datasets", spec.dataset).CLASSES),
    }
    argv = launch.command(
        spec, MACHINE, ("python", str(RANKS / "bare_loop.py"), json.dumps(settings))
    )
    return Side(argv, folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frameworks", nargs="+", default=["ddp", "horovod", "deepspeed", "fsdp"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--starts", type=int, default=10, help="of both sides, for each line of the table"
    )
    parser.add_argument(
        "--epochs", type=int, default=5, help="of each start; the first is not counted"
    )
    parser.add_argument("--model", default="lenet", help="lenet or a name that timm knows")
    a = parser.parse_args()
    if a.epochs < 2:
        parser.error("--epochs: the first is not counted; at least 2")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(
        f"{a.model}, mnist5k, {BATCH_PER_WORKER} images a worker, {a.starts} x {a.epochs - 1}"
        " epochs of each side"
    )
    print(
        "ddlbench / bare: images/s by wall time, and images/CPU-s; medians of pairs of epochs, 95 %"
        " intervals"
    )
    print(
        f"{'':9} {'':7}  {'images/s':>13}  {f'ratio (limit {LIMIT})':>20}  {'CPU-us an image':>15} "
        f" {'ratio':>20}"
    )
    print(
        f"framework workers  {'bare':>6} {'ours':>6}  {'':20}  {'bare':>7} {'ours':>7}  {'':20} "
        " last losses"
    )
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        data, folder = Path(scratch, "raw"), Path(scratch, "runs")
        with redirect_stdout(sys.stderr):
            prepare("mnist5k", "raw", data)
        for framework in a.frameworks:
            for workers in a.workers:
                spec = run_spec(framework, workers, a.model, a.epochs)
                both = [bare(spec, data, folder / "bare"), ours(spec, data, folder / "ours", 1)]
                good &= line(framework, workers, *train(both, workers, Path(scratch), a.starts))
    sys.exit(not good)


def line(framework: str, workers: int, bare: Measured, mine: Measured) -> bool:
    """Print a line of the table; False if it is over a limit."""
    by_wall = [m / b for b, m in zip(bare.images_per_s, mine.images_per_s, strict=True)]
    by_cpu = [b / m for b, m in zip(bare.cpu_ms, mine.cpu_ms, strict=True)]
    what = f"{framework}, {workers} worker{'s' * (workers > 1)}"
    tell(f"{what}: images/s", "bare loop", by_wall, LIMIT)
    tell(f"{what}: images/CPU-s", "bare loop", by_cpu, None)
    same = abs(bare.loss - mine.loss) <= LOSS_TOLERANCE * abs(bare.loss)
    fast = median(by_wall) >= LIMIT
    print(
        f"{framework:9} {workers:7}  {median(bare.images_per_s):6.0f}"
        f" {median(mine.images_per_s):6.0f}  {spread(by_wall)}  {1e3 * median(bare.cpu_ms):7.1f}"
        f" {1e3 * median(mine.cpu_ms):7.1f}  {spread(by_cpu)}  {bare.loss:.6f} {mine.loss:.6f}"
        f" {'agree' if same else 'DIFFER'}{'' if fast else '  BELOW THE LIMIT'}",
        flush=True,
    )
    return fast and same


if __name__ == "__main__":
    main()
