"""Tensor slicing: each rank holds a part of the outputs of every layer, and ranks gather the parts
after each layer.

Linear layers and plain convolutions are sliced by their output channels, where ranks divide them.
Other layers are whole on every rank, and so is one whose weight the model reads. PyTorch's own
`parallelize_module` knows no convolutions, and nothing of this needs more than one collective. Of a
batch the ranks do the same share of the multiplications, but not of the other operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import nn

PACKAGE = DISTRIBUTION = "torch"
INSTALL = "make install"
FRAMEWORK = "ddp"
SPLITS = True


def lacks(device: str) -> str | None:
    """Report that NCCL is missing between GPUs; return None if it is there, or not needed."""
    from ddlbench.train.frameworks import _common

    return _common.lacks(device, {})


def ready(model: nn.Module) -> nn.Module:
    """Return the model with its layers sliced over the ranks of torch.distributed."""
    import torch.distributed as dist

    slice_layers(model, dist.get_rank(), dist.get_world_size())
    return model


def slice_layers(model: nn.Module, rank: int, ranks: int) -> None:
    """Replace each layer within the model that can be sliced by this rank's part of it."""
    from torch import nn

    for name, layer in model.named_children():
        # Not subclasses, whose forward pass may be another (a convolution that standardises its
        # weights).
        sliceable = isinstance(layer, nn.Linear | nn.Conv2d) and type(layer) in (
            nn.Linear,
            nn.Conv2d,
        )
        if (
            sliceable
            and getattr(layer, "groups", 1) == 1
            and len(cast("nn.Linear", layer).weight) % ranks == 0
        ):
            setattr(model, name, _sliced(cast("nn.Linear | nn.Conv2d", layer), rank, ranks))
        else:
            slice_layers(layer, rank, ranks)


def _sliced(layer: nn.Linear | nn.Conv2d, rank: int, ranks: int) -> nn.Module:
    """Return a module with this rank's output channels of a layer, which gathers those of all
    ranks.
    """
    import torch
    import torch.distributed as dist
    from torch import nn

    class Sliced(nn.Module):
        """A layer of which each rank holds a part.

        All ranks call the layer at the same time, with the same input.
        """

        def __init__(self) -> None:
            super().__init__()
            for name, whole in layer.named_parameters():
                # A copy: a view would keep the complete weight in memory.
                setattr(
                    layer,
                    name,
                    nn.Parameter(whole.detach().chunk(ranks)[rank].clone(), requires_grad=False),
                )
            self.part = layer
            self.whole = False

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            # Channels are the last axis behind a linear layer, and the last but two behind a
            # convolution.
            mine = self.part(inputs)
            return (
                mine if self.whole else gathered(mine, -1 if isinstance(layer, nn.Linear) else -3)
            )

        def __getattr__(self, name: str) -> Any:
            """Return what the model's code reads of the layer.

            A model that computes with the weight itself, as timm's swinv2 and beit do, needs all of
            it: the layer becomes whole, on all ranks at once, since they run the same code.
            """
            try:
                return super().__getattr__(name)
            except AttributeError:
                part = cast("nn.Linear | nn.Conv2d", super().__getattr__("part"))
            if not self.whole and part._parameters.get(name) is not None:
                for key, mine in list(part.named_parameters()):
                    setattr(
                        part, key, nn.Parameter(gathered(mine.detach(), 0), requires_grad=False)
                    )
                self.whole = True
            return getattr(part, name)

    def gathered(own: torch.Tensor, axis: int) -> torch.Tensor:
        own = own.contiguous()
        parts = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(parts, own)
        return torch.cat(parts, dim=axis)

    return Sliced()
