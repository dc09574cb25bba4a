"""PyTorch 2.13, which tells nobody when all gradients are computed and DDP only waits for its last
reductions.

What is queued in the engine of autograd while a backward pass runs is called when all gradients are
there, in the order of queueing. DDP queues its own wait with its last bucket. The queue is a
private name of PyTorch, asked for here.
"""

from collections.abc import Callable

from ddlbench import patches


def call_when_computed(callback: Callable[[], None]) -> None:
    """Call back, within a backward pass, when its gradients are there. Raises ReleaseError."""
    from torch.autograd import Variable

    patches.private(
        Variable, "_execution_engine", "torch", ("2.13",), "backward_end"
    ).queue_callback(callback)
