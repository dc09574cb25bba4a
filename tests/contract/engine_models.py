"""The models and pictures of the small trainings in `engine_cases.py`."""

import time
from typing import Any

import torch
from ddlbench.patches import torchvision_operators
from ddlbench.train import models
from torch import nn

from tests.contract.engine_cases import BATCH, SLOW_S


class Spiked(nn.Module):
    """LeNet, and two numbers of which `factor` makes the second one's gradient infinite: on one
    rank, if sharded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.build("lenet", 10, 16)
        self.spike = nn.Parameter(torch.zeros(2))
        self.factor = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.eye(10)[0]
        return self.inner(x).float() + (self.spike * torch.tensor([0.0, self.factor])).sum() * first


class Slow(torch.autograd.Function):
    """What it is given; its backward pass takes SLOW_S."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW_S)
        return gradients[0]


class Token(nn.Module):
    """Like CaiT, with a class token: the first parameter by name is used last, and so it is the
    first with a gradient.

    The last gradient, that of `first`, comes SLOW_S later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(16))
        self.first, self.last = nn.Linear(768, 16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(Slow.apply(self.first(x.flatten(1))) + self.token)
        return scores


class Loud(nn.Module):
    """LeNet, whose scores are multiplied, and so are its gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.build("lenet", 10, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 12


def model_of(name: str) -> nn.Module:
    """The untrained model for pictures of 16x16, the same on every rank."""
    torch.manual_seed(1)
    if name == "vit":
        torchvision_operators.apply()
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(
            img_size=16,
            patch_size=8,
            embed_dim=16,
            depth=6,
            num_heads=2,
            num_classes=10,
            init_values=None,
        )
    if name == "spike":
        return Spiked()
    if name == "token":
        return Token()
    if name == "loud":
        return Loud()
    if name == "norm":
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14**2, 10)
        )
    if name == "linear":  # no parameter without gradients, which one bit cannot say
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    if name == "wide":  # DeepSpeed shards a parameter from 100 000 numbers on
        return nn.Sequential(
            nn.Flatten(), nn.Linear(768, 256), nn.ReLU(), nn.Linear(256, 512), nn.Linear(512, 10)
        )
    return models.build("lenet", 10, 16)


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's pictures of a step, and labels that can be learned: where a picture is brightest."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, 3, 16, 16, generator=draw)
    return x, x.mean((1, 3)).argmax(1) % 10
