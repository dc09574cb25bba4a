"""DeepSpeed 0.19, whose reductions have no hooks: methods of its engine and its optimizers are
wrapped.

Each stage of ZeRO puts gradients into buckets and sends them elsewhere. Zero is the optimizer of
ZeRO 1, 2 and 3.

Upstream (deepspeedai/DeepSpeed): nobody can tell from outside when a step waits for gradients.
Callbacks before and after `allreduce_gradients` and `reduce_ipg_grads` would replace this file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ddlbench import patches

Method = Callable[..., Any]
# Of deepspeed.comm, those that ZeRO 1 and 2 call when they update.
MESSAGES = ("all_reduce", "all_gather", "all_gather_into_tensor")


def watch_reductions(
    engine: Any,
    zero: Any,
    stage: int,
    overlaps: bool,
    timed: Callable[[Method], Method],
    last: Method,
) -> None:
    """Wrap in `timed` what reduces gradients; `last` says whether a micro-batch is its step's last.

    Where ZeRO 1 or 2 `overlaps`, a bucket waits for the one before, and after the backward pass all
    is waited for. Raises ReleaseError.
    """
    patches.only_for("deepspeed", ("0.19",), "deepspeed_watchers")
    if stage == 2 or overlaps:
        zero.reduce_ipg_grads = timed(zero.reduce_ipg_grads)
    if overlaps:
        engine.allreduce_gradients = timed(engine.allreduce_gradients)
    elif stage < 2:
        reduce, of_last = engine.allreduce_gradients, timed(engine.allreduce_gradients)
        # Called after each micro-batch, and reduces after the last.
        engine.allreduce_gradients = lambda *a, **k: (of_last if last() else reduce)(*a, **k)


@contextmanager
def watched_update(stage: int, timed: Callable[[Method], Method]) -> Iterator[None]:
    """Time messages of ZeRO 1 and 2 as waits within this block: whether a gradient overflowed, the
    norm, the new parameters.
    """
    from deepspeed import comm

    messages = {name: getattr(comm, name) for name in MESSAGES if stage in (1, 2)}
    for name, send in messages.items():
        setattr(comm, name, timed(send))
    try:
        yield
    finally:
        for name, send in messages.items():
            setattr(comm, name, send)
