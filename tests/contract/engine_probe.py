"""One rank of a launch that drives a framework's engine through many small trainings; `engines.py`
starts it.

    <launcher> python -m tests.contract.engine_probe <folder> first|resumed <case> ...

`first` takes all steps of every case (`engine_cases.py`) and saves a state on the way; `resumed`
are other processes, which load it and take the rest. Each case leaves
`<case>-<first|resumed>-<rank>.pt`.
"""

import faulthandler
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ddlbench.core import registry
from ddlbench.train import optimizers, place, precision
from ddlbench.train.clock import Clock

from tests.contract.engine_cases import BATCH, CASES, OVERFLOW, OVERFLOW_AT, SLOW_S, Case, spec_of
from tests.contract.engine_models import Spiked, batch_of, model_of
from tests.contract.weights import whole
from tests.host_waits import HostWaits

GATHERED = (
    10  # times that weights are asked for: DeepSpeed gathered some of them wrong now and then
)


def watch_synchronize() -> Counter[str]:
    """Counts from here on what DeepSpeed asks of its accelerator: to wait for all that it does."""
    from deepspeed.accelerator import get_accelerator

    accelerator, asked = get_accelerator(), Counter[str]()
    synchronize = accelerator.synchronize

    def counted(*args: Any) -> None:
        asked["synchronize"] += 1
        synchronize(*args)

    accelerator.synchronize = counted
    return asked


def slowed(does: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(SLOW_S)
        return does(*args, **kwargs)

    return slowly


@contextmanager
def planted(case: Case, engine: Any, rank: int) -> Iterator[None]:
    """Within, what the case names is slow."""
    if case.slow == "gather":
        from deepspeed.comm.comm import cdb

        owner, name = cdb, "all_gather_into_tensor"
    elif case.slow == "optimizer" and rank == 0:
        owner, name = engine.optimizer, "step"
    else:
        yield
        return
    quick = getattr(owner, name)
    setattr(owner, name, slowed(quick))
    yield
    setattr(owner, name, quick)


def drive(case: Case, rank: int, folder: Path, resumed: bool) -> dict[str, Any]:
    """Take the case's steps; what they gave."""
    spec = spec_of(case)
    model = model_of(case.model)
    precision.prepare(model, spec)
    clock = Clock("cpu")
    framework = registry.member("frameworks", case.adapter)
    engine = framework.Engine(model, partial(optimizers.build, spec.recipe), spec, clock)
    engine.model.train()
    saved = folder / f"{case.name}-saved-{rank}.pt"
    if resumed:
        engine.load(torch.load(saved, weights_only=True))
    parts = spec.recipe.accumulation
    losses, waits, updates, kept, calls = [], [], [], [], []
    host_waits = HostWaits()
    synchronized = watch_synchronize() if case.adapter == "deepspeed" else Counter[str]()
    counts = [0] * len(getattr(model, "blocks", []))
    for i in range(len(counts)):
        model.blocks[i].norm1.register_forward_hook(
            lambda *_, i=i: counts.__setitem__(i, counts[i] + 1)
        )
    for step in range(case.save_at if resumed else 0, case.steps):
        if step == case.save_at and not resumed:
            torch.save(engine.state(), saved)
        x, y = batch_of(rank, step)
        if isinstance(model, Spiked):
            model.factor = 1e37 if step == OVERFLOW_AT else 0.0
        if step == 2:  # validation between two steps disturbs nothing, nor does asking for weights
            engine.model.eval()
            with torch.no_grad():
                engine(x)
            whole(engine.model)
            engine.model.train()
        for group in engine.optimizer.param_groups:
            group["lr"] = spec.recipe.base_lr * (1 - step / 100)
        total = []
        before = Counter(synchronized)
        # A step like any other: what is prepared in the first one is there.
        counting = host_waits if step == case.steps - 1 and not resumed else nullcontext()
        for part, (a, b) in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True)):
            counts[:] = [0] * len(counts)
            with counting:
                loss = F.cross_entropy(engine(a), b, reduction="sum") / BATCH
            calls.append(list(counts))
            if (
                spec.recipe.precision == "fp16"
                and case.model != "spike"
                and (step, rank) == (OVERFLOW_AT, 1)
            ):
                loss = loss * OVERFLOW
            total.append(float(loss.detach()))
            with counting:
                engine.backward(loss, part == parts - 1)
            if getattr(engine, "dropping", None):
                kept.append(list(engine.dropping.kept))
        with counting, planted(case, engine, rank):
            began = clock.mark()
            engine.step()
            updates.append(clock.seconds([began, clock.mark()]))
        losses.append(sum(total))
        waits.append(engine.waits and [clock.seconds(list(pair)) for pair in engine.waits])
    host_waits.count.update(synchronized - before)  # of the last step
    weights = {name: value.detach().clone() for name, value in whole(engine.model).items()}
    again = [whole(engine.model) for _ in range(GATHERED)]
    return {
        "gathered_alike": all(
            torch.equal(other[name], weights[name]) for other in again for name in weights
        ),
        "losses": losses,
        "waits": waits,
        "updates": updates,
        "host_waits": dict(host_waits.count),
        "kept": kept,
        "block_calls": calls,
        "skipped": engine.skipped_steps,
        "bytes": engine.state_bytes(),
        "weights": weights,
    }


def main() -> None:
    folder, phase, *wanted = Path(sys.argv[1]), *sys.argv[2:]
    faulthandler.enable()
    torch.set_num_threads(1)
    (folder / phase).mkdir(exist_ok=True)
    os.environ["DDLBENCH_FOLDER"] = str(folder / phase)
    rank = place.rank_number()
    framework = registry.member("frameworks", CASES[wanted[0]].adapter)
    framework.start("cpu")
    for name in wanted:
        result = drive(CASES[name], rank, folder, phase == "resumed")
        torch.save(result, folder / f"{name}-{phase}-{rank}.pt")
    framework.close()


if __name__ == "__main__":
    main()
