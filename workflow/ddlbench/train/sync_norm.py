"""Batch norm beyond PyTorch's: batches of one value per channel, and statistics over the images of all ranks.

Both are put into a model's own batch-norm layers (torch's, and timm's, which also have an activation). Parameters,
buffers and their names stay. `models.build` does the first for every model. `setup.py` does the second if the recipe
says `sync_batch_norm`: PyTorch's own SyncBatchNorm refuses CPU tensors and knows torch.distributed only.

One difference to PyTorch remains. Where a channel has the same value in all images, its normalised value is exactly 0
here. PyTorch's CPU batch norm leaves a rounding error there, times 1/sqrt(eps). A network in which all channels are
like that learns from the rounding in PyTorch and learns nothing here. ResNet on digits of 32 pixels is one: until its
blocks have learnt, its shortcuts show the last layers nothing but a black corner. In double precision, or on pictures
that differ everywhere, the two agree to the last digits.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ddlbench.train.frameworks import Clock, Moment


class Share:
    """What this rank's batch weighs in synchronised statistics: 1, or 0 if the rank has no images in this step.

    It then takes part with an old batch, which must not count. The loop sets the weight before the forward pass.
    `waits` is when ranks waited for each other's statistics, as begins and ends; the loop takes them with each step.
    """

    weight = 1.0

    def __init__(self) -> None:
        self.waits: list[tuple[Moment, Moment]] = []


def accept_one_value(model: nn.Module) -> None:
    """Let batch norm train on a batch that has one value per channel: one image, where a layer's picture is 1x1.

    PyTorch refuses it, so an epoch whose last batch is one image would fail. The mean of one value is the value, its
    variance is 0. So the layer gives its bias, and neither its input nor its weight gets a gradient. The running
    statistics stay, because one value says nothing about a variance.
    """
    _convert(model, _one_value_class, {})


def convert(model: nn.Module, all_reduce: Callable[[torch.Tensor], torch.Tensor], clock: Clock) -> Share:
    """Let every batch norm use mean and variance over all ranks' images while it trains.

    That is one collective per layer in the forward pass and one in the backward pass. `all_reduce` gives the sum of a
    tensor over ranks, the same on all. Ranks may have different numbers of images, but all must run the same layers.
    Running statistics become the same on all ranks. A rank's loss must be scaled so that gradients summed over ranks
    (or averaged, as everywhere else in the model) are those of the whole batch.
    """
    share = Share()

    def timed(tensor: torch.Tensor) -> torch.Tensor:
        before = clock.mark()
        total = all_reduce(tensor)
        share.waits.append((before, clock.mark()))
        return total

    _convert(model, _synchronised_class, {"all_reduce": timed, "share": share})
    return share


def _convert(model: nn.Module, changed: Callable[[type], type], attributes: dict[str, Any]) -> None:
    # Another class for the same object: its parameters, names, hooks and activation stay as they are.
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = changed(type(module))
            vars(module).update(attributes)


def _after(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
    """What timm's batch norm does after normalising: drop-out and activation."""
    for name in ("drop", "act"):
        if hasattr(module, name):
            y = getattr(module, name)(y)
    return y


def _per_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (x.ndim - 2))


def _affine(module: Any, y: torch.Tensor) -> torch.Tensor:
    if module.weight is None:
        return y
    # Times 1, so that the bias gets a gradient of its own. Where there is one value per channel, it would be a
    # view of y's, and a second norm whose output is added to this one's would hold the same memory as its gradient.
    bias = module.bias * 1.0
    return (y * _per_channel(module.weight, y) + _per_channel(bias, y)).to(y.dtype)


@cache
def _one_value_class(base: Any) -> type:
    class OneValue(base):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> Any:
            if not self.training or x.numel() != x.shape[1]:
                return super().forward(x)
            return _after(self, _affine(self, x - x))

    OneValue.__name__ = OneValue.__qualname__ = base.__name__
    return OneValue


@cache
def _synchronised_class(base: Any) -> type:
    class Synchronised(base):  # type: ignore[misc]
        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def forward(self, x: torch.Tensor) -> Any:
            if not self.training:
                return super().forward(x)
            y, mean, variance, count = _Normalise.apply(  # type: ignore[no-untyped-call]
                x, self.all_reduce, self.share.weight, self.eps
            )
            if self.track_running_stats:
                self._track(mean, variance, count)
            return _after(self, _affine(self, y))

        @torch.no_grad()
        def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
            several = (count > 1.5).squeeze()  # one value has no variance, see accept_one_value
            self.num_batches_tracked.add_(several)
            part = self.momentum
            if part is None:
                part = 1 / self.num_batches_tracked.clamp(min=1)
            unbiased = variance * (count / (count - 1).clamp(min=1))
            for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                running.copy_(torch.where(several, (1 - part) * running + part * new, running))

    Synchronised.__name__ = Synchronised.__qualname__ = f"Sync{base.__name__}"
    return Synchronised


class _Normalise(torch.autograd.Function):
    """x [n, channels, ...] normalised to mean 0 and variance 1 per channel, over all ranks.

    Also gives mean [channels], variance [channels] and count of values [1]. Each rank's count, sum and sum of squares
    are added up in double precision, so that the squares lose nothing.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, all_reduce: Any, weight: float, eps: float) -> tuple[torch.Tensor, ...]:
        over = [i for i in range(x.ndim) if i != 1]
        variance, mean = (t.double() for t in torch.var_mean(x.to(_float(x)), over, correction=0))
        count: Any = weight * x.numel() / x.shape[1]
        sums = torch.cat([mean * count, (variance + mean * mean) * count, mean.new_full((1,), count)])
        total, squares, count = all_reduce(sums).split([len(mean), len(mean), 1])
        # The count is 0 in a step that no rank has images for. Any finite answer will do then.
        mean = total / count.clamp(min=1)
        variance = (squares / count.clamp(min=1) - mean * mean).clamp(min=0)
        inverse = (variance + eps).rsqrt()
        shift, scale = (_per_channel(t, x).to(_float(x)) for t in (mean, inverse))
        y = ((x - shift) * scale).to(x.dtype)
        ctx.all_reduce, ctx.weight, ctx.over = all_reduce, weight, over
        ctx.save_for_backward(y, inverse, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        y, inverse, count = ctx.saved_tensors
        dy = dy.to(_float(dy))
        sums = ctx.all_reduce(torch.cat([dy.sum(ctx.over), (dy * y).sum(ctx.over)]).double())
        mean, mean_y = (_per_channel(s / count.clamp(min=1), y).to(dy.dtype) for s in sums.chunk(2))
        dx = (dy - ctx.weight * (mean + y * mean_y)) * _per_channel(inverse, y).to(dy.dtype)
        return dx.to(y.dtype), None, None, None


def _float(x: torch.Tensor) -> torch.dtype:
    """The number format to compute in: fp32 in place of fp16 and bf16."""
    return torch.float32 if x.dtype.itemsize < 4 else x.dtype
