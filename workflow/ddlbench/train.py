"""One rank of one run: the training loop, the same for every framework, loader and model.

Started by a launcher (`launch.py`) under `run.py`, which left `job.json` in the folder. Nothing here knows which
framework it drives: an adapter in `frameworks/` wraps the model, the loop owns everything that decides accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F

from ddlbench import profile, ranks, recipe, registry
from ddlbench.loaders import _share
from ddlbench.manifest import Manifest
from ddlbench.record import RankLog
from ddlbench.spec import RunSpec


def train(spec: RunSpec, folder: Path, data: Path | None, facts: dict[str, Any]) -> torch.nn.Module:
    """Train as `spec` says, log into `folder`, return the trained model. `data` is the prepared form, if one is read.

    Raises WorldError if the launcher started another number of ranks than promised.
    """
    who = ranks.here(spec.workers)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if spec.device == "cuda":
        torch.cuda.set_device(who.local_rank)
    log = RankLog(folder, who.rank)
    log.event("cache_clear", True)  # each run is processes of its own; the file cache is as the machine left it
    log.start("init_start")
    framework = registry.member("frameworks", spec.framework)
    images, classes = sizes(spec, data)
    log.settings(spec, facts, images["train"], images["val"])
    # Loaders first: they fork worker processes, which must not happen once a framework runs threads.
    open_loader = registry.member("loaders", spec.loader).Loader
    loaders = {s: open_loader(data, s, spec, who.rank, images[s], classes) for s in ("train", "val")}
    first = {s: loader.epoch(0) for s, loader in loaders.items()} if spec.epochs else {}
    framework.start(spec.device)
    device = torch.device(spec.device)
    model = recipe.build_model(spec, classes).to(device)
    optimizer = recipe.build_optimizer(spec, model)
    engine = framework.Engine(model, optimizer, spec)
    (folder / f"rank-{who.rank}.json").write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    log.stop("init_stop")

    log.start("run_start")
    began = perf_counter()
    steps = _share.steps(images["train"], spec.global_batch)
    profiled_step = profile.start(spec, who.rank, folder, steps)
    for epoch in range(spec.epochs):
        log.start("epoch_start", epoch_num=epoch + 1)
        losses, rows = [], []
        model.train()
        before = perf_counter()
        batches = iter(first.pop("train", None) or loaders["train"].epoch(epoch))
        for step in range(steps):
            batch = next(batches)
            waited = perf_counter()
            lr = recipe.learning_rate(spec, epoch + step / steps)
            for group in optimizer.param_groups:
                group["lr"] = lr
            # The mean over the whole step's images, also when the last batch is small or uneven over ranks.
            whole = min(spec.global_batch, images["train"] - step * spec.global_batch)
            n = len(batch[1])
            if n:  # else nothing is left for this rank: it takes part with its last batch, which then weighs nothing
                x, y = batch
            loss = F.cross_entropy(engine(x), y, reduction="sum", label_smoothing=spec.recipe.label_smoothing)
            loss = loss * (spec.workers / whole if n else 0.0)
            engine.backward(loss)
            engine.step()
            profiled_step()
            after = perf_counter()
            losses.append(loss.detach() / spec.workers)  # summed over ranks it is the step's loss
            wait, communication = waited - before, engine.communication_s
            compute = after - waited - (communication or 0.0)
            rows.append((epoch, epoch * steps + step, who.rank, n, lr, wait, compute, communication, after - began))
            before = after
        total = float(framework.average(torch.stack(losses).sum())) * spec.workers / steps
        for row, loss_value in zip(rows, torch.stack(losses).tolist(), strict=True):
            log.rows.append((*row[:5], loss_value, *row[5:]))
        if next(batches, None) is not None:
            raise RuntimeError(f"rank {who.rank}: loader {spec.loader} gave more than {steps} steps")
        seconds = sum(wait + compute + (reduction or 0.0) for *_, wait, compute, reduction, _ in rows)
        log.stop("epoch_stop", epoch_num=epoch + 1)

        log.start("eval_start", epoch_num=epoch + 1)
        average_batch_norm(model, framework)
        validation = first.pop("val", None) or loaders["val"].epoch(epoch)
        correct, seen = evaluate(model, engine, validation, framework, spec.workers, device)
        if seen != images["val"]:
            raise RuntimeError(f"validated {seen} images of {images['val']}")
        log.event("eval_accuracy", correct / seen, epoch_num=epoch + 1)
        log.event("tracked_stats", {"loss": total, "correct": correct, "seen": seen}, epoch_num=epoch + 1)
        log.stop("eval_stop", epoch_num=epoch + 1)
        if who.rank == 0:
            result = f"loss {total:.4f}, top-1 {correct / seen:.4f}, {seconds:.1f} s"
            print(f"epoch {epoch + 1}/{spec.epochs}: {result}", flush=True)
    log.stop("run_stop", status="success")
    log.write_steps()
    framework.close()
    return model


def sizes(spec: RunSpec, data: Path | None) -> tuple[dict[str, int], int]:
    """Images a split and the number of classes: from the manifest, or from the data set where nothing is read."""
    if data is None:
        dataset = registry.member("datasets", spec.dataset)
        return dict(dataset.IMAGES), dataset.NUM_CLASSES
    manifest = Manifest.read(data)
    return {s: split.images for s, split in manifest.splits.items()}, len(manifest.classes)


def average_batch_norm(model: torch.nn.Module, framework: Any) -> None:
    """Each rank has seen other pictures: all validate with the mean of the running statistics over ranks."""
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and name.rsplit(".", 1)[-1].startswith("running_"):
            buffer.copy_(framework.average(buffer.clone()))


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, engine: Any, batches: Any, framework: Any, workers: int, device: torch.device
) -> tuple[int, int]:
    """(correct, seen) over all ranks; every validation image is counted once."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.float64, device=device)
    for x, y in batches:
        if len(y):
            counts[0] += (engine(x).argmax(1) == y).sum()
            counts[1] += len(y)
    correct, seen = (framework.average(counts) * workers).round().long().tolist()
    return correct, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where run.py left job.json; the record goes there too")
    folder = parser.parse_args().folder
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    data = Path(job["data"]) if job["data"] else None
    train(RunSpec.from_json(json.dumps(job["spec"])), folder, data, job["facts"])


if __name__ == "__main__":
    main()
