"""DeepSpeed 0.19, whose reductions and messages have no hooks: methods of its engine and its optimizers are wrapped.

Each stage of ZeRO puts gradients into buckets and sends them elsewhere. Zero is the optimizer of ZeRO 1, 2 and 3.

Upstream (deepspeedai/DeepSpeed): nobody can tell from outside when a step waits for gradients, or what gradients take
when a message is about to be sent. Callbacks before and after `allreduce_gradients`, `reduce_ipg_grads` and
`__reduce_and_partition_ipg_grads` would replace this file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ddlbench import mends

Method = Callable[..., Any]
# Methods of the ZeRO optimizers that put gradients into buckets and send them, by stage.
SENDERS = {
    0: (),
    1: ("reduce_ready_partitions_and_remove_grads", "reduce_ipg_grads"),
    2: ("reduce_ready_partitions_and_remove_grads", "reduce_ipg_grads"),
    3: ("_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads",),
}
# Of deepspeed.comm, those that ZeRO 1 and 2 call when they update.
MESSAGES = ("all_reduce", "all_gather", "all_gather_into_tensor")


def watch_reductions(engine: Any, zero: Any, stage: int, timed: Callable[[Method], Method], last: Method) -> None:
    """Wrap in `timed` what reduces gradients; `last` says whether a micro-batch is its step's last.

    Raises ReleaseError.
    """
    mends.only_for("deepspeed", ("0.19",), "deepspeed_watchers")
    if stage == 2:
        zero.reduce_ipg_grads = timed(zero.reduce_ipg_grads)
    elif stage < 2:
        reduce, of_last = engine.allreduce_gradients, timed(engine.allreduce_gradients)
        # Called after each micro-batch, and reduces after the last.
        engine.allreduce_gradients = lambda *a, **k: (of_last if last() else reduce)(*a, **k)


def watch_messages(engine: Any, zero: Any, stage: int, look: Method) -> None:
    """Let `look` see what gradients take when some are about to be sent, and after.

    It is given further tensors, and a function that says how many further bytes there are.
    """
    if stage == 0:
        flatten = engine.flatten

        def flattened(tensors: list[Any]) -> Any:
            message = flatten(tensors)
            look([message])
            return message

        engine.flatten = flattened
    for name in SENDERS[stage]:
        setattr(zero, name, _watched(getattr(zero, name), zero, stage, look))


def _watched(send: Method, zero: Any, stage: int, look: Method) -> Method:
    def watched(*args: Any, **kwargs: Any) -> Any:
        # ZeRO 3 joins a bucket's gradients into one more message; stages 1 and 2 send the bucket itself.
        look([], partial(bytes_in_buckets, zero) if stage == 3 else int)
        result = send(*args, **kwargs)
        look()
        return result

    return watched


@contextmanager
def watched_update(stage: int, timed: Callable[[Method], Method]) -> Iterator[None]:
    """Within, messages of ZeRO 1 and 2 are waits: whether a gradient overflowed, the norm, the new parameters."""
    from deepspeed import comm

    messages = {name: getattr(comm, name) for name in MESSAGES if stage in (1, 2)}
    for name, send in messages.items():
        setattr(comm, name, timed(send))
    try:
        yield
    finally:
        for name, send in messages.items():
            setattr(comm, name, send)


def bytes_in_buckets(zero: Any) -> int:
    """Bytes of the gradients that wait to be sent."""
    waiting = (p.grad for bucket in zero.ipg_buckets.values() for p in bucket.params)
    return sum(gradient.numel() * gradient.element_size() for gradient in waiting)
