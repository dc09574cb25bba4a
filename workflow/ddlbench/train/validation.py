"""Validation of one rank: right answers counted, with batch norm that is the same on all ranks."""

from collections.abc import Iterator

import torch

from ddlbench.train.frameworks import Engine, Framework
from ddlbench.train.loaders import Batch


def share_batch_norm(model: torch.nn.Module, framework: Framework) -> None:
    """Average the running statistics of batch norm over ranks before validation: each rank has seen
    other pictures.
    """
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and name.rsplit(".", 1)[-1].startswith("running_"):
            buffer.copy_(framework.average(buffer.clone()))


@torch.no_grad()
def count_correct(engine: Engine, batches: Iterator[Batch], spare: Batch) -> torch.Tensor:
    """Count [correct, correct among the first five, seen] of this rank's images, float64.

    Every rank takes as many passes, because ranks meet in each where weights are sharded: without
    images it takes one over `spare`, which counts for nothing.
    """
    # What is counted stays on the device, so that no batch waits for the one before.
    counts = torch.zeros(2, dtype=torch.float64, device=spare[0].device)
    seen = 0
    for x, y in batches:
        scores = engine(x if len(y) else spare[0])
        if len(y):
            hits = scores.topk(min(5, scores.shape[1])).indices == y[:, None]
            counts += torch.stack([hits[:, 0].sum(), hits.sum()])
            seen += len(y)
    return torch.cat([counts, counts.new_full((1,), seen)])
