"""The training loop of one rank, the same for every framework, loader and model.

`setup.py` makes what the loop uses, `__main__.py` starts and ends the process. The loop owns
everything that decides accuracy; which framework it drives it does not know. A step's times are in
`steps.py`, the parts of a batch in `parts.py`, validation in `validation.py`.
"""

import time
from math import fsum

import torch
import torch.nn.functional as F

from ddlbench.core import notes, registry
from ddlbench.core.files import aside
from ddlbench.core.record import WEIGHTS
from ddlbench.core.schedule import learning_rate
from ddlbench.core.spec import RunSpec
from ddlbench.train import checkpoint, interruption
from ddlbench.train.frameworks import Moment
from ddlbench.train.guard import Stopped
from ddlbench.train.loaders import Batch
from ddlbench.train.measure import merge
from ddlbench.train.parts import Parts
from ddlbench.train.setup import Setup
from ddlbench.train.steps import Step, gathered, rows
from ddlbench.train.validation import count_correct, share_batch_norm


class Training:
    """The training of all epochs of a run that are still to do, on one rank."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.parts = Parts(setup.spec, setup.device)
        self.taken: list[Step] = []  # steps whose times are not read yet
        self.losses = list(setup.start.losses)  # of this epoch's steps whose times are
        self.dies = setup.assignment.interrupt_steps  # after so many steps; None: never
        self.saves = interruption.checkpoint_step(self.dies, setup.steps)
        self.checkpoint_s: float | None = None  # what the last one took

    def run(self) -> None:
        """Train and validate every epoch, then log the times.

        Raises LossError if a loss is not finite, Stopped after a checkpoint that a signal
        requested.
        """
        s = self.setup
        epochs, every = s.spec.epochs, s.assignment.checkpoint_epochs
        first, done = divmod(s.start.step, s.steps)
        for epoch in range(first, epochs):
            loss, save = self.train(epoch, done if epoch == first else 0)
            self.validate(epoch, loss)
            done_now = (epoch + 1) * s.steps
            if epoch + 1 < epochs and (
                save or (every and (epoch + 1) % every == 0) or done_now == self.saves
            ):
                self.save(done_now)
        used = merge([*s.start.used, s.meter.stop()])
        notes.introduce(
            s.assignment.folder, s.rank, s.place.local_rank, used["values"] | s.engine.state_bytes()
        )
        s.log.event("ddlbench_elapsed_s", s.clock.now_s())
        s.log.event("ddlbench_skipped_steps", s.engine.skipped_steps)
        reasons = s.framework.NOT_MEASURED if s.engine.waits is None else {}
        s.log.event("ddlbench_not_measured", reasons | used["not_measured"])
        s.log.stop("run_stop", status="success")
        if s.assignment.keep_weights and s.rank == 0:
            # Of frameworks whose rank 0 has all of them (`plan/kinds/inference.py` sees to that).
            with aside(s.assignment.folder / WEIGHTS) as hidden:
                torch.save(s.model.state_dict(), hidden)

    def train(self, epoch: int, done: int) -> tuple[float, bool]:
        """Train the epoch's steps after those `done`.

        Return their mean loss, and whether ranks agreed to write a checkpoint now.
        """
        s = self.setup
        if not done:
            s.log.start("epoch_start", epoch_num=epoch + 1)
        s.model.train()
        # The epoch begins here for every loader: what it needs until it has a batch is in the first
        # step's wait.
        began = s.clock.mark()
        batches = s.batches("train", epoch)
        for step in range(done, s.steps):
            self.step(epoch, step, next(batches))
            now = epoch * s.steps + step + 1
            if now == self.dies:
                s.meet()  # all have made the step
                interruption.die(s.assignment.folder, s.rank, now, self.checkpoint_s)
            if step + 2 >= s.steps:
                # after the last, what is due comes after the validation; before it, see `Parts`
                continue
            if now == self.saves or s.guard.due(self.taken[-1].step):  # the same on all ranks
                save = self.agree()  # a collective
                if save or now == self.saves:
                    self.write_rows(began)
                    self.save(now)
                    began = s.clock.mark()
        save = self.agree()
        if self.taken:
            self.write_rows(began)
        if next(batches, None) is not None:
            raise RuntimeError(
                f"rank {s.rank}: loader {s.spec.loader} gave more than {s.steps} steps"
            )
        mine = torch.tensor([fsum(self.losses)], device=s.device, dtype=torch.float64)
        loss = float(s.framework.average(mine).item())
        self.losses.clear()
        s.log.stop("epoch_stop", epoch_num=epoch + 1)
        return loss * s.spec.workers / s.steps, save

    def step(self, epoch: int, step: int, batch: Batch) -> None:
        """Train one step on this rank's share of the batch; `step` counts within the epoch."""
        s, recipe = self.setup, self.setup.spec.recipe
        lr = learning_rate(s.spec, epoch + step / s.steps)
        for group in s.engine.optimizer.param_groups:
            group["lr"] = lr
        # The mean over all images of the step, also when the last batch is small or uneven over
        # ranks.
        images = min(s.spec.global_batch, s.images["train"] - step * s.spec.global_batch)
        this = Step(epoch, epoch * s.steps + step, len(batch[1]), lr, s.clock.mark())
        for x, y, weight, last in self.parts.cut(*batch, keep=step + 2 == s.steps):
            loss = F.cross_entropy(
                s.engine(x), y, reduction="sum", label_smoothing=recipe.label_smoothing
            )
            loss = loss * (weight * s.spec.workers / images)
            this.forward(
                s.clock.mark(), loss.detach() / s.spec.workers
            )  # summed over ranks it is the step's loss
            s.engine.backward(loss, last)
            this.backward(s.clock.mark())
        s.engine.step()
        this.end(s.clock.mark(), s.engine.waits)
        s.profiled_step()
        self.taken.append(this)

    def validate(self, epoch: int, loss: float) -> None:
        """Measure the accuracy over all validation images, each counted once; `loss` is that of
        training, for the log.
        """
        s = self.setup
        s.log.start("eval_start", epoch_num=epoch + 1)
        share_batch_norm(s.model, s.framework)
        s.model.eval()
        counts = count_correct(s.engine, s.batches("val", epoch), self.parts.spare)
        over_ranks = s.framework.average(counts) * s.spec.workers
        correct, correct_top5, seen = over_ranks.round().long().tolist()
        if seen != s.images["val"]:
            raise RuntimeError(f"validated {seen} images of {s.images['val']}")
        stats, said = {"loss": loss, "seen": seen}, ""
        if registry.member("loaders", s.spec.loader).LEARNS:  # else one batch is learnt by heart
            s.log.event("eval_accuracy", correct / seen, epoch_num=epoch + 1)
            stats |= {"correct": correct, "correct_top5": correct_top5}
            said = f", top-1 {correct / seen:.4f}"
        s.log.event("tracked_stats", stats, epoch_num=epoch + 1)
        s.log.stop("eval_stop", epoch_num=epoch + 1)
        if s.rank == 0:
            print(f"epoch {epoch + 1}/{s.spec.epochs}: loss {loss:.4f}{said}", flush=True)

    def agree(self) -> bool:
        """Decide whether all ranks write a checkpoint now.

        Raises LossError if the loss of a step is not finite.
        """
        losses = [step.loss for step in self.taken]
        try:
            return self.setup.guard.agree(
                self.setup.rank, losses, self.taken[0].step if self.taken else 0
            )
        except notes.LossError as error:
            raise notes.LossError(
                "; ".join([str(error), *diverging(self.setup.spec)]), error.step
            ) from None

    def write_rows(self, began: Moment) -> None:
        """Write rows for the steps taken since `began`.

        All ranks call it at once: rank 0 writes for all of them.
        """
        s = self.setup
        table = rows(self.taken, began, s.clock, s.rank)
        if table[0].step % s.steps == 0:
            s.log.event(
                "ddlbench_epoch_start_s", table[0].data_wait_s, epoch_num=table[0].epoch + 1
            )
        every = gathered(table, s.gather)
        if s.rank == 0:
            s.log.write_steps(every)
        self.losses += [row.loss for row in table]
        self.taken.clear()

    def save(self, step: int) -> None:
        """Save a checkpoint after `step` steps of the run.

        Raises Stopped if a signal requested it.
        """
        s, began_s = self.setup, time.monotonic()
        part = {
            "engine": s.engine.state(),
            "loaders": {split: loader.state() for split, loader in s.loaders.items()},
            "random": checkpoint.random_state(),
            "losses": list(self.losses),
            "used": [*s.start.used, s.meter.read()],
        }
        s.log.event("ddlbench_checkpoint", step)
        about = {"elapsed_s": s.clock.now_s(), "written": s.log.bytes_written()}
        checkpoint.save(s.assignment.folder, step, s.rank, part, about, s.meet, s.gather)
        self.checkpoint_s = time.monotonic() - began_s
        if s.guard.stop:
            (s.assignment.folder / notes.STOPPED_NOTE).touch()
            raise Stopped(f"stopped on request after {step} steps; its checkpoint is written")


def diverging(spec: RunSpec) -> list[str]:
    """List the run's options that, by their own description, can make a loss not finite."""
    rules = registry.options(spec.adapter)
    return [
        f"option {name}: {value}: {rules[name]['diverges']}"
        for name, value in spec.all_options().items()
        if "diverges" in rules[name] and value != rules[name]["default"]
    ]
