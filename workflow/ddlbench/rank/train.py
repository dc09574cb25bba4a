"""One rank of one run: the training loop, the same for every framework, loader and model.

Started by a launcher (`launch.py`) under `ddlbench.run`, which left `job.json` in the folder. Nothing here knows which
framework it drives: an adapter in `frameworks/` wraps the model, the loop owns everything that decides accuracy.
`steps.py` keeps a step's times, `guard.py` watches for signals and broken losses, `checkpoint.py` holds checkpoints.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from math import fsum
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from ddlbench import notes, registry
from ddlbench.data.manifest import Manifest
from ddlbench.rank import checkpoint, guard, models, optimizers, place, precision, profiler, sync_norm
from ddlbench.rank.clock import Clock
from ddlbench.rank.measure import Meter, merge
from ddlbench.rank.steps import Step, rows
from ddlbench.record import RankLog, drop_steps
from ddlbench.schedule import learning_rate
from ddlbench.spec import RunSpec, steps_per_epoch

UNDER_NSYS = "DDLBENCH_UNDER_NSYS"
START = {"step": 0, "elapsed_s": 0.0, "log_bytes": None}
NOTHING_SAVED: dict[str, Any] = {"loaders": {}, "losses": [], "used": []}


class Training:
    """A rank of the run that `job` describes, logging into `folder`; goes on from the newest checkpoint there.

    Raises WorldError if the launcher started another number of ranks than promised.
    """

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        self.job, self.folder = job, folder
        self.spec = spec = RunSpec.from_json(json.dumps(job["spec"]))
        self.who = place.here(spec.workers)
        self.rank = self.who.rank
        notes.introduce(folder, self.rank, self.who.local_rank)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        if spec.device == "cuda":
            torch.cuda.set_device(self.who.local_rank)
        self.device = torch.device(spec.device)
        found = checkpoint.latest(folder)
        at = checkpoint.summary(found) if found else START
        saved = checkpoint.load(found, self.rank) if found else NOTHING_SAVED
        drop_steps(folder, self.rank, at["step"])
        self.log = RankLog(folder, self.rank, at["log_bytes"])
        self.framework = registry.member("frameworks", spec.adapter)
        data = Path(job["data"]) if job["data"] else None
        self.images, classes = sizes(spec, data)
        self.steps = steps_per_epoch(self.images["train"], spec.global_batch)
        if not found:
            self.log.event("cache_clear", True)  # a run is processes of its own; the file cache is as it was left
            self.log.start("init_start")
            self.log.settings(spec, job["facts"], self.images["train"], self.images["val"])
        # Loaders first: they fork worker processes, which must not happen once a framework runs threads.
        open_loader = registry.member("loaders", spec.loader).Loader
        self.loaders = {
            split: open_loader(data, split, spec, self.rank, self.images[split], classes, saved["loaders"].get(split))
            for split in ("train", "val")
        }
        self.first_step = at["step"]  # in this process; counted over the whole run
        self.first_epoch, self.done = divmod(at["step"], self.steps)
        self.opened = {
            "train": self.loaders["train"].epoch(self.first_epoch, self.done),
            "val": self.loaders["val"].epoch(self.first_epoch),
        }
        notes.keep_beating(folder, self.rank)
        self.framework.start(spec.device)
        self.watch = guard.Guard(self.framework.average, self.device, job["checkpoint_minutes"])
        precision.set_precision(spec)
        torch.manual_seed(spec.seed)  # the same model on every rank
        self.model = models.build(spec.model, classes, spec.recipe.image_size)
        if self.rank == 0 and not found:
            self.log.event("ddlbench_flops_per_image", models.flops_per_image(self.model, spec.recipe.image_size))
        self.model.to(self.device)
        self.share = sync_norm.Share()
        if spec.recipe.sync_batch_norm:
            self.share = sync_norm.convert(self.model, lambda t: self.framework.average(t) * spec.workers)
        prepare(self.model, spec)
        torch.manual_seed(spec.seed * 100_003 + self.rank)  # from here on, ranks draw different numbers
        self.clock = Clock(spec.device, at["elapsed_s"])
        self.engine = self.framework.Engine(self.model, partial(optimizers.build, spec.recipe), spec, self.clock)
        size = spec.recipe.image_size
        # What a rank computes when no image of a step is left for it: then it weighs nothing.
        self.spare = (torch.zeros(1, 3, size, size), torch.zeros(1, dtype=torch.int64))
        self.spare = (self.spare[0].to(self.device), self.spare[1].to(self.device))
        self.taken: list[Step] = []  # steps that are not rows yet
        self.losses: list[float] = saved["losses"]  # of this epoch's steps that are
        if found:
            self.engine.load(saved["engine"])
            set_random_state(saved["random"])
            self.log.event("ddlbench_resumed", {key: at[key] for key in ("step", "elapsed_s")})
        else:
            self.log.stop("init_stop")
        self.meet()
        if not found:
            self.log.start("run_start")
        self.clock.start()
        self.used_before = saved["used"]  # by the processes that trained up to the checkpoint
        self.meter = Meter(spec.device, self.who.local_rank)
        self.meter.start()
        self.profiled_step = profiler.start(spec, self.rank, folder, self.steps, self.first_step)

    def run(self) -> None:
        """Train and validate every epoch. Raises LossError if a loss is not finite, Stopped after a checkpoint that a
        signal asked for.
        """
        for epoch in range(self.first_epoch, self.spec.epochs):
            save = self.train(epoch)
            self.validate(epoch)
            every = self.job["checkpoint_epochs"]
            if epoch + 1 < self.spec.epochs and (save or (every and (epoch + 1) % every == 0)):
                self.save(epoch + 1, 0)
        used = merge([*self.used_before, self.meter.stop()])
        notes.introduce(self.folder, self.rank, self.who.local_rank, used["values"] | self.engine.state_bytes())
        self.log.event("ddlbench_elapsed_s", self.clock.seconds([self.clock.mark()])[0])
        self.log.event("ddlbench_skipped_steps", self.engine.skipped_steps)
        reasons = self.framework.NOT_MEASURED if self.engine.waits is None else {}
        self.log.event("ddlbench_not_measured", reasons | used["not_measured"])
        self.log.stop("run_stop", status="success")

    def train(self, epoch: int) -> bool:
        """The epoch's steps that are still to do; whether ranks agreed to write a checkpoint after them."""
        done, self.done = self.done, 0
        if not done:
            self.log.start("epoch_start", epoch_num=epoch + 1)
        self.model.train()
        batches = iter(self.opened.pop("train", None) or self.loaders["train"].epoch(epoch, 0))
        began, step_s = self.clock.mark(), 0.0
        for step in range(done, self.steps):
            self.step(epoch, step, next(batches))
            if step + 2 >= self.steps:
                continue  # after the last, what is due comes after the validation; before it, see `parts`
            if self.watch.due(self.taken[-1].step - self.first_step) and self.agree():
                self.write_rows(began)
                self.save(epoch, step + 1)
                began = self.clock.mark()
        save = self.agree()
        if self.taken:
            step_s = self.write_rows(began)
        if next(batches, None) is not None:
            raise RuntimeError(f"rank {self.rank}: loader {self.spec.loader} gave more than {self.steps} steps")
        mine = torch.tensor([fsum(self.losses), step_s], device=self.device, dtype=torch.float64)
        loss, step_s = self.framework.average(mine).tolist()
        self.losses.clear()
        self.loss = loss * self.spec.workers / self.steps
        self.watch.pace(step_s)
        self.log.stop("epoch_stop", epoch_num=epoch + 1)
        return save

    def agree(self) -> bool:
        """Whether all ranks write a checkpoint now. Raises LossError if the loss of a step is not finite."""
        taken = self.taken
        return self.watch.agree(self.rank, [step.loss for step in taken], taken[0].step if taken else 0)

    def step(self, epoch: int, step: int, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        """One step on this rank's share of it."""
        spec, engine, clock = self.spec, self.engine, self.clock
        lr = learning_rate(spec, epoch + step / self.steps)
        for group in engine.optimizer.param_groups:
            group["lr"] = lr
        # The mean over the whole step's images, also when the last batch is small or uneven over ranks.
        whole = min(spec.global_batch, self.images["train"] - step * spec.global_batch)
        this = Step(epoch, epoch * self.steps + step, len(batch[1]), lr, clock.mark())
        for x, y, weight, last in self.parts(*batch, keep=step + 2 == self.steps):
            self.share.weight = weight
            loss = F.cross_entropy(engine(x), y, reduction="sum", label_smoothing=spec.recipe.label_smoothing)
            loss = loss * (weight * spec.workers / whole)
            this.forward(clock.mark(), loss.detach() / spec.workers)  # summed over ranks it is the step's loss
            engine.backward(loss, last)
            this.backward(clock.mark())
        engine.step()
        this.end(clock.mark(), engine.waits)
        self.profiled_step()
        self.taken.append(this)

    def parts(
        self, x: torch.Tensor, y: torch.Tensor, keep: bool
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, float, bool]]:
        """(images, labels, weight, whether it is the last) of each part that the recipe accumulates gradients over.

        Every rank computes as many; where no image is left, what it had last with weight 0. That is kept (`keep`) for
        the epoch's last step only: else each batch would take other memory than the one before. No checkpoint is
        written in between, so that it is no part of one.
        """
        count, n, had = self.spec.recipe.accumulation, len(y), self.spare
        for part in range(count):
            here = slice(n * part // count, n * (part + 1) // count)
            if here.start < here.stop:
                had = x[here], y[here]
            yield (*had, float(here.start < here.stop), part == count - 1)
        if keep:
            self.spare = had

    def write_rows(self, began: Any) -> float:
        """Steps taken since `began` as rows; the mean length of one [s]."""
        table = rows(self.taken, began, self.clock, self.rank)
        self.losses += [row[5] for row in table]
        self.log.rows += table
        self.log.write_steps()
        self.taken.clear()
        return fsum(second or 0.0 for row in table for second in row[6:11]) / len(table)

    def save(self, epoch: int, done: int) -> None:
        """A checkpoint after `done` steps of an epoch. Raises Stopped if a signal asked for it."""
        step = epoch * self.steps + done
        part = {
            "engine": self.engine.state(),
            "loaders": {split: loader.state() for split, loader in self.loaders.items()},
            "random": random_state(),
            "losses": list(self.losses),
            "used": [*self.used_before, self.meter.read()],
        }
        about = {"elapsed_s": self.clock.seconds([self.clock.mark()])[0], "log_bytes": self.log.bytes_written()}
        checkpoint.save(self.folder, step, self.rank, part, about, self.meet)
        if self.watch.stop:
            (self.folder / notes.STOPPED_NOTE).touch()
            raise guard.Stopped(f"stopped on request after {step} steps; its checkpoint is written")

    def meet(self) -> None:
        """Wait for all ranks."""
        self.framework.average(torch.zeros(1, device=self.device))

    def validate(self, epoch: int) -> None:
        """Accuracy over all validation images, each counted once."""
        self.log.start("eval_start", epoch_num=epoch + 1)
        average_batch_norm(self.model, self.framework)
        correct, correct_top5, seen = self.count(self.opened.pop("val", None) or self.loaders["val"].epoch(epoch))
        if seen != self.images["val"]:
            raise RuntimeError(f"validated {seen} images of {self.images['val']}")
        self.log.event("eval_accuracy", correct / seen, epoch_num=epoch + 1)
        stats = {"loss": self.loss, "correct": correct, "correct_top5": correct_top5, "seen": seen}
        self.log.event("tracked_stats", stats, epoch_num=epoch + 1)
        self.log.stop("eval_stop", epoch_num=epoch + 1)
        if self.rank == 0:
            accuracy = f"top-1 {correct / seen:.4f}"
            print(f"epoch {epoch + 1}/{self.spec.epochs}: loss {self.loss:.4f}, {accuracy}", flush=True)

    @torch.no_grad()
    def count(self, batches: Any) -> list[int]:
        """[correct, correct among the first five, seen] over all ranks."""
        self.model.eval()
        counts = torch.zeros(3, dtype=torch.float64, device=self.device)
        for x, y in batches:
            # Every rank takes as many passes: where weights are sharded, ranks meet in each.
            scores = self.engine(x if len(y) else self.spare[0])
            if len(y):
                hits = scores.topk(min(5, scores.shape[1])).indices == y[:, None]
                counts += torch.stack([hits[:, 0].sum(), hits.sum(), torch.tensor(len(y), device=self.device)])
        return (self.framework.average(counts) * self.spec.workers).round().long().tolist()


def prepare(model: torch.nn.Module, spec: RunSpec) -> None:
    """Make the model what the recipe and the options of all frameworks want, before a framework takes it."""
    layout = torch.channels_last if spec.option("channels_last") else torch.contiguous_format
    model.to(memory_format=layout)  # type: ignore[call-overload]
    forward = model.forward

    def precisely(images: torch.Tensor) -> torch.Tensor:
        # Within the model, so that it holds under every framework; scores are fp32 for the loss.
        with precision.autocast(spec):
            return forward(images.contiguous(memory_format=layout)).float()

    model.forward = precisely
    if spec.option("compile"):
        model.compile()


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


def random_state() -> dict[str, torch.Tensor]:
    """That of torch's generators on this rank."""
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Put back what `random_state` gave."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where ddlbench.run left job.json; the record goes there too")
    folder = parser.parse_args().folder
    spec = RunSpec.from_json(json.dumps(json.loads((folder / "job.json").read_text(encoding="utf-8"))["spec"]))
    nsys = profiler.nsys_prefix(spec, shutil.which("nsys"), folder)
    if nsys and UNDER_NSYS not in os.environ:
        os.environ[UNDER_NSYS] = "1"
        os.execv(nsys[0], [*nsys, sys.executable, "-m", "ddlbench.rank.train", str(folder)])
    run_rank(folder)


def run_rank(folder: Path, training: type[Training] = Training) -> None:
    """Train, and end this process: with 0, with `notes.STOPPED` after a checkpoint that was asked for, or with 1."""
    faulthandler.enable()  # a crash in compiled code (SIGSEGV, SIGABRT) leaves in the log where Python was
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the guard listens; worker processes of loaders never do
    rank = place.number()
    code = 0
    try:
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        this = training(job, folder)
        this.run()
        this.framework.close()
    except guard.Stopped as stopped:
        print(stopped, file=sys.stderr)
        code = notes.STOPPED
    except BaseException as error:
        traceback.print_exc()
        notes.report(folder, rank, error)
        code = 1
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # not sys.exit: a framework's own threads would wait for ranks that are gone


if __name__ == "__main__":
    main()
