"""fp16 whose first step overflows: the step is left out, and training goes on as if it had not been."""

import math
from collections.abc import Iterator, Sequence

from ddlbench.analysis.record import Record
from ddlbench.commands.gpucheck import Row, judged
from ddlbench.commands.gpucheck._bench import Bench, each, losses
from ddlbench.core import registry

LIMIT_S = 240
TOLERANCE = 0.02  # relative: on GPUs, sums are not always made in one order
STEPS = 6


def check(bench: Bench) -> Iterator[Row]:
    """One row per framework. The learning rate is constant and each step's batch the same, so that the second step
    must repeat what the first would have been."""
    recipe = {"warmup_epochs": 0, "base_lr": 0.02}
    specs = {
        name: bench.spec(name, "fp16", schedule="step", epochs=1, recipe=recipe)
        for name in registry.members("frameworks")
    }
    usual = bench.train(specs["ddp"], "fp16")  # of every framework: they train the same
    yield from each(
        bench, specs, lambda name, spec: judge(name, _losses(usual), _losses(bench.train(spec, "overflow", "overflow")))
    )


def judge(name: str, usual: tuple[Sequence[float], int], after: tuple[Sequence[float], int]) -> Row:
    """Losses and number of left-out steps of the run that overflowed (`after`), and of one that was left alone.

    That one may leave out its first steps too, until its scale fits the model: a step that is left out is repeated.
    """
    (there, own), (here, skipped_steps) = usual, after
    if skipped_steps < 1:
        return Row(name, judged(False), "expected: one step left out; none was", skipped_steps, "steps left out")
    pairs = list(zip(here[skipped_steps:][:STEPS], there[own:][:STEPS], strict=False))
    if len(pairs) < STEPS:
        return Row(name, judged(False), f"too few steps were made: {len(pairs)}", skipped_steps, "steps left out")
    off = max((abs(a - b) / abs(b) if math.isfinite(a) else math.inf) for a, b in pairs)
    compared = f"losses of {STEPS} steps after it, against ddp's without: at most {TOLERANCE:.0%} apart"
    if not math.isfinite(off):
        return Row(name, judged(False), f"{compared}; a loss is not finite")
    return Row(name, judged(off <= TOLERANCE), compared, 100 * off, "% apart")


def _losses(record: Record) -> tuple[list[float], int]:
    return losses(record), int(record.said("ddlbench_skipped_steps", 0))
