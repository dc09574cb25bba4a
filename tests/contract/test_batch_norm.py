"""Batch norm over all ranks, as far as it can be tried without GPUs; and batch norm on one
value.
"""

import copy
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddlbench.core import registry
from ddlbench.core.spec import smallest_share
from ddlbench.patches import torchvision_operators
from ddlbench.plan import fits
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.train import batch_norm, models
from ddlbench.train.loaders._sampling import share
from torch import nn

from tests.facts import refuses

FRAMEWORKS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(name) is None and name == "horovod", reason="not installed"
        ),
    )
    for name in registry.members("frameworks")
]


def net() -> nn.Module:
    """PyTorch's batch norm and timm's, which has the activation in it."""
    torchvision_operators.apply()
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
    batch_norm.accept_one_value(model)
    return model


def gradients(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, scale: float
) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (F.cross_entropy(model(x), y, reduction="sum") * scale).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_norm_becomes_the_frameworks_under_its_own_names(framework: str) -> None:
    layer = registry.member("frameworks", framework).sync_batch_norm()
    model = net()
    parameters, names = list(model.parameters()), list(model.state_dict())
    batch_norm.synchronise(model, layer)
    norms = [module for module in model if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert len(norms) == 4 and all(isinstance(module, layer) for module in norms)
    assert list(model.state_dict()) == names
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))


def test_of_one_process_pytorchs_gives_what_the_models_own_gives() -> None:
    """Also timm's, with its activation. Of one process, PyTorch's computes what its plain batch
    norm does.
    """
    own, synchronised = net(), net()
    batch_norm.synchronise(synchronised, nn.SyncBatchNorm)
    x, y = torch.randn(6, 3, 11, 11), torch.arange(6) % 4
    torch.testing.assert_close(gradients(synchronised, x, y, 1.0), gradients(own, x, y, 1.0))
    torch.testing.assert_close(synchronised.state_dict(), own.state_dict())
    torch.testing.assert_close(synchronised.eval()(x), own.eval()(x))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_a_cpu_they_refuse(framework: str, tmp_path: object) -> None:
    """Else the plan need not refuse such a recipe on machines without GPUs."""
    model = net()
    batch_norm.synchronise(model, registry.member("frameworks", framework).sync_batch_norm())
    dist.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with refuses(ValueError, "GPU"):
            model(torch.randn(6, 3, 11, 11))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("images", "batch", "workers"),
    [(257, 64, 2), (133, 66, 3), (40, 64, 3), (128, 64, 2), (63, 64, 4), (70, 64, 4)],
)
def test_the_smallest_share_is_that_of_the_loaders(images: int, batch: int, workers: int) -> None:
    last = [len(list(share(range(images), batch, rank, workers))[-1]) for rank in range(workers)]
    assert smallest_share(images, batch, workers) == min(last)


def test_a_plan_refuses_statistics_that_would_count_no_images() -> None:
    """ImageNet's last step has 36015 images for 1024 workers: 35 for the one that has the
    fewest.
    """
    study, machine = load_study("aach2023"), load_machine("juwels-booster")
    plan = make_plan(study, machine)
    spec = next(run.spec for run in plan.runs.values() if run.spec.workers == 1024)
    fewer = replace(spec, recipe=replace(spec.recipe, sync_batch_norm=True, accumulation=32))
    more = replace(spec, recipe=replace(spec.recipe, sync_batch_norm=True, accumulation=64))
    fits.check_run(study, study.blocks[0], machine, fewer)
    with pytest.raises(ConfigError, match=r"global_batch: 65536 .* 35 images for accumulation 64"):
        fits.check_run(study, study.blocks[0], machine, more)


def test_pytorchs_batch_norm_still_refuses_one_value() -> None:
    """Else accept_one_value is not needed any more."""
    with refuses(ValueError, "more than 1"):
        nn.BatchNorm2d(3)(torch.ones(1, 3, 1, 1))


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_the_last_batch_may_be_one_image(name: str) -> None:
    """257 images in batches of 64 at 32 pixels: the last picture is 1x1 in the last layers."""
    torch.manual_seed(0)
    model = models.build(name, 10, 32)
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
    batch_norm.accept_one_value(layer)
    x = torch.randn(1, 3, 1, 1, requires_grad=True)
    y = layer(x)
    assert torch.equal(y.flatten(), layer.bias)
    y.sum().backward()
    assert not x.grad.any()
    assert not layer.weight.grad.any()
    assert torch.equal(layer.bias.grad, torch.ones(3))


def test_no_two_gradients_of_a_resnet_share_memory() -> None:
    """One image of 32 pixels is one value a channel in the last stage, whose shortcut has a norm of
    its own. As views of one tensor, gradients that are accumulated three times were 1, 3, 5 times
    the first.
    """
    model = models.build("resnet18", 10, 32)
    model(torch.randn(1, 3, 32, 32)).sum().backward()
    held = [p.grad.untyped_storage().data_ptr() for p in model.parameters()]
    assert len(set(held)) == len(held)
