"""Models by name: a LeNet-5 and a small ResNet of our own, SqueezeNet from torchvision, those that
people wrote (`own_models.py`), everything else from timm; for pictures of any size.

What batch norm does beyond PyTorch's is in `batch_norm.py`.
"""

import copy
from collections.abc import Callable

import torch
from torch import nn

from ddlbench.patches import grouped_convolutions, torchvision_operators
from ddlbench.settings.own_models import is_own
from ddlbench.train import batch_norm, own_models


def build(
    name: str,
    classes: int,
    image_size: int,
    zero_init_last: bool | None = None,
    sha256: str | None = None,
) -> nn.Module:
    """Build the untrained model for RGB pictures of `image_size` pixels a side.

    Its batch norm trains on a batch of one value per channel too (`batch_norm.accept_one_value`).
    `zero_init_last` is the recipe's key, `sha256` that of the source of a model of the user's
    (`own_models.py`). Raises RuntimeError on a name timm lacks, on that key for a model that has no
    such choice, and on another source.
    """
    if zero_init_last is not None and (
        name in ("lenet", "lenet5", "squeezenet1_1") or is_own(name)
    ):
        raise _no_choice(name)
    if name in ("lenet", "lenet5"):
        return lenet(classes, image_size, padding=2 if name == "lenet" else 0)
    if name == "squeezenet1_1":
        return squeezenet1_1(classes)
    if name == "resnet8_half":
        model = resnet8_half(classes, zero_init_last or False)
    elif is_own(name):
        model = own_models.build(name, classes, image_size, sha256)
    else:
        model = _from_timm(name, classes, image_size, zero_init_last)
    batch_norm.accept_one_value(model)
    return model


def _no_choice(name: str) -> RuntimeError:
    return RuntimeError(
        f"recipe: zero_init_last: model {name} has no residual blocks that can choose; allowed:"
        " null"
    )


def _from_timm(name: str, classes: int, image_size: int, zero_init_last: bool | None) -> nn.Module:
    torchvision_operators.apply()
    import timm

    made_for = timm.models.get_pretrained_cfg(name)
    settings: dict[str, int | bool] = {}
    # Vision transformers and their like are made for one size; convolutions take any.
    if made_for is not None and made_for.fixed_input_size and made_for.input_size[-1] != image_size:
        settings["img_size"] = image_size
    if zero_init_last is not None:
        settings["zero_init_last"] = zero_init_last
    try:
        model: nn.Module = timm.create_model(
            name, pretrained=False, num_classes=classes, **settings
        )
    except TypeError as error:
        if "zero_init_last" in str(error):
            raise _no_choice(name) from None
        raise
    return model


def lenet(classes: int, image_size: int, padding: int = 2) -> nn.Module:
    """Build LeNet-5 (LeCun et al. 1998, doi:10.1109/5.726791) with three input channels, max
    pooling and ReLU.

    Without padding (`lenet5`) it has the 62 006 weights of DeepSpeed's CIFAR example at 32 pixels
    and 10 classes, and LeCun's 61 706 but for two input channels; with the padding of `lenet`,
    which is ours, 83 126.
    """
    side = ((image_size + 2 * padding - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side**2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def resnet8_half(classes: int, zero_init_last: bool = False) -> nn.Module:
    """Build the smallest ResNet of He et al. 2016 for small pictures (arXiv:1512.03385, section
    4.2), half as wide.

    6n+2 layers with n = 1: one block in each of three stages, of 8, 16 and 32 filters in place of
    16, 32 and 64. Between stages the shortcut takes every second pixel and pads the new channels
    with zeros (their option A).
    """
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        _Residual(8, 8),
        _Residual(8, 16),
        _Residual(16, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
    for block in model:
        if zero_init_last and isinstance(block, _Residual):
            last = block.convolutions[-1]
            assert isinstance(last, nn.BatchNorm2d)
            nn.init.zeros_(last.weight)
    return model


def squeezenet1_1(classes: int) -> nn.Module:
    """Build SqueezeNet 1.1 (Iandola et al. 2016, arXiv:1602.07360) as torchvision has it; timm has
    none.

    Pictures have at least 17 pixels a side.
    """
    torchvision_operators.apply()
    from torchvision.models import squeezenet1_1 as theirs

    model: nn.Module = theirs(weights=None, num_classes=classes)
    return model


class _Residual(nn.Module):
    """A residual block: two 3x3 convolutions with a shortcut around them.

    Where the channels grow, the picture halves its sides.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride = 1 if before == after else 2
        self.new_channels = after - before
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=self.stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        kept = pictures[:, :, :: self.stride, :: self.stride]
        shortcut = nn.functional.pad(kept, (0, 0, 0, 0, 0, self.new_channels))
        return torch.relu(self.convolutions(pictures) + shortcut)


def complaint(name: str, image_size: int) -> str | None:
    """Return why a model cannot be trained on pictures of `image_size` pixels a side, in one line;
    None if it can.

    Asked on the meta device: it takes a second, and no memory.
    """
    try:
        with torch.device("meta"):
            model = build(name, 10, image_size)
        model.train()(torch.empty(2, 3, image_size, image_size, device="meta"))
    except Exception as error:  # each model raises its own error, some without a message
        why = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
        return (
            f"model {name} takes no pictures of {image_size} pixels (recipe: image_size)"
            f"{_made_for(name)}: {why[:200]}"
        )
    return None


def _made_for(name: str) -> str:
    torchvision_operators.apply()
    from timm.models import get_pretrained_cfg

    made_for = get_pretrained_cfg(name)
    return f"; timm made it for {made_for.input_size[-1]}" if made_for is not None else ""


def flops_per_image(model: nn.Module, image_size: int) -> int:
    """Count the floating-point operations of a forward and a backward pass over one RGB picture of
    `image_size` pixels a side.

    Matrix products, convolutions and attention count, an addition and a multiplication as one each;
    normalisation and activations are left out. Only shapes are computed: the model is not changed,
    and no random number is drawn.
    """
    return _count(lambda: copy.deepcopy(model), image_size, backward=True)[""]


def forward_flops(model: nn.Module, image_size: int) -> dict[str, int]:
    """Count the operations of the forward pass alone, by module: "" is the whole model, "layer1.0"
    a part of it.

    Modules in which nothing is counted are left out.
    """
    # Without gradients altogether: PyTorch's counter stumbles over a weight that is a module's
    # input (timm's CaiT).
    return _count(lambda: copy.deepcopy(model).requires_grad_(False), image_size, backward=False)


def _count(build: Callable[[], nn.Module], image_size: int, backward: bool) -> dict[str, int]:
    """Count the operations by module of a copy that is made for it.

    PyTorch's FlopCounterMode counts all but a convolution's backward pass.
    """
    from torch.utils.flop_counter import FlopCounterMode

    def counted(model: nn.Module, pictures: torch.Tensor) -> FlopCounterMode:
        with FlopCounterMode(
            display=False, custom_mapping=grouped_convolutions.counting()
        ) as counter:
            out = model.train()(pictures)
            if backward:
                out.sum().backward()
        return counter  # type: ignore[no-any-return]

    shape = (1, 3, image_size, image_size)
    try:
        counter = counted(build().to("meta"), torch.empty(shape, device="meta"))
    except Exception:  # it looks at values, and nothing has any there
        with torch.random.fork_rng():
            counter = counted(build().cpu(), torch.rand(shape))
    counts = {
        name: sum(by_operator.values()) for name, by_operator in counter.get_flop_counts().items()
    }
    total = counts.pop("Global", 0)
    return {name.partition(".")[2]: count for name, count in counts.items() if count} | {"": total}
