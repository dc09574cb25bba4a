"""Sends requests to a model and takes the time: what one rank does. The record holds all; warm-up
is cut later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddlbench.train.frameworks._common import bytes_of
from ddlbench.train.inference import requests

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def latencies(
    respond: Callable[[Tensor], Any], images: Tensor, agree: Callable[[int], int] = int
) -> tuple[float, list[float]]:
    """Measure (seconds of the first request, seconds of each further one), one request at a time.

    A request's time ends when its response is there; on a GPU the host waits for it. `agree` gives
    all ranks the number of requests that rank 0 gives it.
    """
    import torch

    def send() -> float:
        began = time.perf_counter()
        respond(images)
        if images.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    with torch.inference_mode():
        first = send()
        # The second request may still compile something. So the third one gives the time of a
        # request.
        send()
        taken = [send() for _ in range(agree(requests(send())))]
    return first, taken


class Responses(NamedTuple):
    """The responses of a model to all pictures, in their order; of the first batch the pictures and
    their scores too.
    """

    classes: Tensor  # int64 [n]
    labels: Tensor  # int64 [n], what is right
    images: Tensor  # float32 [batch, 3, size, size], as the loader gave them
    scores: Tensor  # float32 [batch, classes]


def responses(
    model: Callable[[Tensor], Tensor], batches: Iterable[tuple[Tensor, Tensor]], kind: torch.dtype
) -> Responses:
    """Send all pictures to the model, converted to this type, and return its responses.

    There is at least one picture.
    """
    import torch

    responded, right = [], []
    first: list[Tensor] = []
    with torch.inference_mode():
        for images, labels in batches:
            if not len(labels):
                continue
            scores = model(images.to(kind)).float()
            responded.append(scores.argmax(1))
            right.append(labels.clone())  # a loader may use its memory again
            first = first or [images.clone(), scores.clone()]
    return Responses(torch.cat(responded), torch.cat(right), *first)


def take_precision(model: nn.Module, precision: str) -> torch.dtype:
    """Make the model compute in a recipe's precision, and return the type that its pictures must
    have.

    Of bf16 all weights and buffers take that type, as is usual where a model is served: autocast,
    which training has, would keep weights in 32 bits and make bf16 of them for each request. fp32
    and tf32 are float32.
    """
    import torch

    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    model.to(kind)
    return kind


def weights_bytes(model: nn.Module) -> int:
    """Return the bytes of parameters and buffers that this rank holds, each storage once; of
    quantised tensors, of their parts.
    """
    return bytes_of(
        part for tensor in (*model.parameters(), *model.buffers()) for part in _parts(tensor)
    )


def _parts(tensor: Any) -> list[torch.Tensor]:
    """Return the plain tensors that a tensor is made of."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in _parts(getattr(tensor, name))]


def load(model: nn.Module, path: Path) -> None:
    """Give the model the weights that a run left.

    Raises RuntimeError if they are of another model.
    """
    import torch

    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
