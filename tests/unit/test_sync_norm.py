"""Batch norm over all ranks against PyTorch's own on the whole batch, with two real processes; and on one value."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddlbench.mends import torchvision_operators
from ddlbench.train import models, sync_norm
from ddlbench.train.clock import Clock
from torch import nn
from torch.multiprocessing import start_processes

# Images of each rank in a step; a rank with none takes part with its last batch, which weighs nothing.
STEPS = ((5, 3), (4, 4), (1, 0), (2, 1))
# Single precision is as near as a processor's order of sums: 1.2e-6 apart on one, half of that on another.
NEAR = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.float64: {"rtol": 1e-9, "atol": 1e-12}}


def net() -> nn.Module:
    """PyTorch's batch norm and timm's, which has the activation in it; one layer has a picture of 1x1."""
    torchvision_operators.mend()
    from timm.layers import BatchNormAct2d

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3),
        BatchNormAct2d(8, act_layer=nn.PReLU),
        nn.AdaptiveAvgPool2d(1),
        nn.BatchNorm2d(8, affine=False),
        nn.Flatten(),
        nn.BatchNorm1d(8),
        nn.Linear(8, 4),
    )
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
            nn.init.normal_(module.weight, 1, 0.5)
            nn.init.normal_(module.bias)
    sync_norm.accept_one_value(model)
    return model


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole step's images and labels."""
    torch.manual_seed(100 + step)
    images = sum(STEPS[step])
    return torch.randn(images, 3, 11, 11) + 1, torch.arange(images) % 4


def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (F.cross_entropy(model(x), y, reduction="sum") * scale).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


def _rank(rank: int, folder: str) -> None:
    """One of two ranks: some steps as the loop makes them, in both number formats; writes what it has found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)  # no port, which others may take
    torch.save({dtype: _train(rank, dtype) for dtype in NEAR}, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _train(rank: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    def all_reduce(tensor: torch.Tensor) -> torch.Tensor:
        """As the loop makes it of a framework's average."""
        dist.all_reduce(tensor)
        return tensor / 2 * 2

    model = net().to(dtype)
    names = list(model.state_dict())
    share = sync_norm.convert(model, all_reduce, Clock("cpu"))
    assert list(model.state_dict()) == names
    found: list[dict[str, Any]] = []
    for step, images in enumerate(STEPS):
        whole_x, whole_y = batch(step)
        begin = sum(images[:rank])
        if images[rank]:
            x, y = whole_x[begin : begin + images[rank]].to(dtype), whole_y[begin : begin + images[rank]]
        share.weight = 1.0 if images[rank] else 0.0
        x = x.detach().requires_grad_()
        own = gradients(model, x, y, 2 / sum(images) if images[rank] else 0.0)
        for gradient in own.values():
            dist.all_reduce(gradient)
            gradient /= 2
        # Nobody averages the gradients of images: half of them belongs to the loss of the whole batch.
        state = copy.deepcopy(model.state_dict())
        found.append({"parameters": own, "images": x.grad[: images[rank]] / 2, "state": state})
    model.eval()
    found.append({"output": model(whole_x.to(dtype)).detach()})  # no collective: any rank may validate alone
    return found


def test_two_ranks_are_one_batch(tmp_path: Path) -> None:
    start_processes(_rank, (str(tmp_path),), nprocs=2, start_method="spawn")
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for dtype, near in NEAR.items():
        ranks = [found[dtype] for found in both]
        control = net().to(dtype)
        for step, images in enumerate(STEPS):
            x, y = batch(step)
            x = x.to(dtype).requires_grad_()
            expected = gradients(control, x, y, 1 / sum(images))
            for rank in ranks:
                torch.testing.assert_close(rank[step]["parameters"], expected, **near)
                torch.testing.assert_close(rank[step]["state"], control.state_dict(), **near)
            torch.testing.assert_close(torch.cat([rank[step]["images"] for rank in ranks]), x.grad, **near)
        first, second = (rank[-1]["output"] for rank in ranks)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, control.eval()(x).detach(), **near)


def alone(model: nn.Module) -> sync_norm.Share:
    """Synchronise a model's batch norm, on one rank."""
    return sync_norm.convert(model, lambda tensor: tensor, Clock("cpu"))


def test_alone_it_is_pytorchs_in_a_whole_resnet() -> None:
    x, y = torch.randn(6, 3, 32, 32, dtype=torch.float64), torch.arange(6)
    torch.manual_seed(0)
    own = models.build("resnet18", 10, 32).double()
    synchronised = copy.deepcopy(own)
    alone(synchronised)
    torch.testing.assert_close(gradients(synchronised, x, y, 1.0), gradients(own, x, y, 1.0), rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(synchronised.state_dict(), own.state_dict(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    layer = nn.BatchNorm2d(3)
    alone(layer)
    x = (torch.randn(64, 3, 8, 8) + 100).to(dtype)
    y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), nn.BatchNorm2d(3)(x.float()), rtol=0.01, atol=0.01)


def test_a_mean_far_from_0_costs_no_digits() -> None:
    layer = nn.BatchNorm2d(3)
    alone(layer)
    x = torch.randn(64, 3, 8, 8) + 1000
    torch.testing.assert_close(layer(x).double(), nn.BatchNorm2d(3).double()(x.double()), rtol=0, atol=2e-4)
    assert layer.running_var.allclose(0.9 + 0.1 * x.double().var((0, 2, 3)).float(), rtol=1e-5)


def test_nothing_to_count_is_finite_and_leaves_no_trace() -> None:
    layer = nn.BatchNorm2d(3)
    share = alone(layer)
    share.weight = 0.0
    y = layer(torch.randn(2, 3, 4, 4, requires_grad=True))
    (y.sum() * 0.0).backward()
    assert y.isfinite().all()
    assert torch.equal(layer.running_mean, torch.zeros(3))
    assert torch.equal(layer.running_var, torch.ones(3))


def test_pytorchs_batch_norm_still_refuses_one_value() -> None:
    """Else accept_one_value is not needed any more."""
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm2d(3)(torch.ones(1, 3, 1, 1))


@pytest.mark.parametrize(
    ("synchronised", "name"),
    [
        (False, "resnet18"),
        (True, "resnet18"),
        (False, "efficientnet_b0"),
        pytest.param(True, "efficientnet_b0", marks=pytest.mark.slow),
    ],
)
def test_the_last_batch_may_be_one_image(synchronised: bool, name: str) -> None:
    """257 images in batches of 64 at 32 pixels: the last picture is 1x1 in the last layers."""
    torch.manual_seed(0)
    model = models.build(name, 10, 32)
    if synchronised:
        alone(model)
    before = copy.deepcopy(model.state_dict())
    found = gradients(model, torch.randn(1, 3, 32, 32), torch.tensor([3]), 1.0)
    assert all(gradient.isfinite().all() for gradient in found.values())
    assert any(gradient.any() for gradient in found.values())
    after = model.state_dict()
    assert all(tensor.isfinite().all() for tensor in after.values())
    last = "layer4.1.bn2" if name == "resnet18" else "bn2"
    assert torch.equal(after[f"{last}.running_var"], before[f"{last}.running_var"])
    assert not torch.equal(after["bn1.running_var"], before["bn1.running_var"])
    assert not model(torch.randn(2, 3, 32, 32)).isnan().any()


def test_one_value_gives_the_bias() -> None:
    layer = nn.BatchNorm2d(3)
    nn.init.normal_(layer.bias)
    sync_norm.accept_one_value(layer)
    x = torch.randn(1, 3, 1, 1, requires_grad=True)
    y = layer(x)
    assert torch.equal(y.flatten(), layer.bias)
    y.sum().backward()
    assert not x.grad.any()
    assert not layer.weight.grad.any()
    assert torch.equal(layer.bias.grad, torch.ones(3))


@pytest.mark.parametrize("synchronised", [False, True])
def test_no_two_gradients_of_a_resnet_share_memory(synchronised: bool) -> None:
    """One image of 32 pixels is one value a channel in the last stage, whose shortcut has a norm of its own. As views
    of one tensor, gradients that are accumulated three times were 1, 3, 5 times the first."""
    model = models.build("resnet18", 10, 32)
    if synchronised:
        alone(model)
    model(torch.randn(1, 3, 32, 32)).sum().backward()
    held = [p.grad.untyped_storage().data_ptr() for p in model.parameters()]
    assert len(set(held)) == len(held)
