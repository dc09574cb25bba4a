"""Layers that are sliced over ranks answer as whole ones do; ranks are threads here, which gather
in memory.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ddlbench.train.inference import tensor_slicing
from torch import nn

RANKS = 2


@pytest.fixture(autouse=True)
def gathering(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """torch.distributed's all_gather between threads; each says its rank in what this returns."""
    who, meet, given = (
        threading.local(),
        threading.Barrier(RANKS, timeout=20),
        [torch.empty(0)] * RANKS,
    )

    def all_gather(parts: list[torch.Tensor], mine: torch.Tensor) -> None:
        given[who.rank] = mine
        meet.wait()
        for part, theirs in zip(parts, given, strict=True):
            part.copy_(theirs)
        meet.wait()

    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    return who


class Reading(nn.Module):
    """A convolution that is asked for its kernel, a layer that is asked, and one whose weight the
    model takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.asked = nn.Linear(4, 6)
        self.taken = nn.Linear(6, 8)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        assert self.convolution.kernel_size == (3, 3)
        features = self.asked(self.convolution(pictures).mean((2, 3)))
        return F.linear(features, self.taken.weight, self.taken.bias) + self.taken(features)


def test_a_layer_whose_weight_the_model_reads_is_whole(gathering: threading.local) -> None:
    model, pictures = Reading().eval(), torch.randn(5, 3, 9, 9)
    whole = {name: p.numel() for name, p in model.named_parameters()}

    def rank(number: int) -> tuple[torch.Tensor, dict[str, int]]:
        gathering.rank = number
        mine: Any = copy.deepcopy(model)
        tensor_slicing.slice_layers(mine, number, RANKS)
        with torch.no_grad():
            answers = [mine(pictures), mine(pictures)]
        assert torch.equal(*answers)
        return answers[0], {
            name.replace(".part", ""): p.numel() for name, p in mine.named_parameters()
        }

    with ThreadPoolExecutor(RANKS) as threads:
        for answer, held in threads.map(rank, range(RANKS)):
            torch.testing.assert_close(answer, model(pictures), rtol=0, atol=1e-5)
            assert held == {
                name: n if name.startswith("taken") else n // RANKS for name, n in whole.items()
            }
