"""Batches on their way to a GPU: copies beside the computation, and memory that is kept until
nobody reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# Steps that a host may be ahead of its GPU before `KeptBatches` waits: the driver's queue of
# kernels holds as many.
MOST_KEPT = 4


def copied(tensors: Iterable[Tensor], device: Any, stream: Any) -> list[Tensor]:
    """Copy tensors in pinned memory to `device` on `stream`; the current stream may use the copies.

    The host is ahead of the GPU: on the current stream the copy would wait for the step before, and
    the next one for the copy. On a stream of its own it is made while that step is computed.
    """
    import torch

    with torch.cuda.stream(stream):
        there = [tensor.to(device, non_blocking=True) for tensor in tensors]
    current = torch.cuda.current_stream()
    current.wait_stream(stream)
    for tensor in there:
        tensor.record_stream(
            current
        )  # else their memory might be used again while the current stream reads it
    return there


class KeptBatches:
    """A store of batches whose memory is not PyTorch's, kept until the GPU has used them.

    DALI (2.4, its dynamic executor) hands out its own memory without a copy, and takes it back when
    the last tensor on it is deleted. That happens on the host, which does not wait for the GPU:
    DALI might decode the next pictures into memory that a step still reads.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[Any, Any]] = deque()

    def keep(self, batch: Any) -> None:
        """Keep the batch until the GPU has used it.

        Call this when all that uses the batch is in the current stream's queue.
        """
        import torch

        used = torch.cuda.Event()
        used.record()
        self._batches.append((batch, used))
        while self._batches and self._batches[0][1].query():
            self._batches.popleft()
        while len(self._batches) > MOST_KEPT:
            self._batches.popleft()[1].synchronize()
