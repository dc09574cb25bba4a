"""Optimizers against their papers' formulas by hand, against other implementations, and on FSDP's
sharded tensors.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddlbench.core.recipe import needs_whole_layers
from ddlbench.patches import deepspeed_zero, torchvision_operators
from ddlbench.patches.sgd_momentum import Sgd
from ddlbench.settings.recipe import load_recipe
from ddlbench.train import models, optimizers
from ddlbench.train.frameworks import _common
from torch import nn
from torch.multiprocessing import start_processes

from tests.builders.plans import run_spec

RECIPE = replace(load_recipe("demo").at(32), base_lr=0.1, momentum=0.9, weight_decay=0.01)
NAMES = ("sgd", "lars", "adamw", "lamb")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def train(steps: int, *pairs: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    """Let models learn from the same random pictures."""
    for _ in range(steps):
        x = torch.randn(8, 5)
        for model, optimizer in pairs:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


def one(
    value: list[float], gradients: list[list[float]], rates: list[float], **recipe: Any
) -> list[float]:
    """A weight matrix of one row after some steps."""
    model = nn.Linear(len(value), 1, bias=False).double()
    model.weight.data[:] = torch.tensor([value])
    optimizer = optimizers.build(replace(RECIPE, **recipe), model)
    for gradient, rate in zip(gradients, rates, strict=True):
        model.weight.grad = torch.tensor([gradient], dtype=torch.float64)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    return list(model.weight[0].tolist())


LARS = {"optimizer": "lars", "weight_decay": 0.2, "trust_coefficient": 0.5}
FREE = LARS | {"weight_decay": 0.0}
SECOND_RATE = 0.3 * 0.5 * 4.75 / 10.95
LAMB = 5 / (1.03**2 + 0.96**2) ** 0.5
# The recipe, a weight, its gradients and rates in each step, and what becomes of it.
BY_HAND: list[tuple[dict[str, Any], list[float], list[list[float]], list[float], list[float]]] = [
    # w = 1, g = 2, decay 0.5: v = 2 + 0.5 = 2.5, w = 1 - 0.1 * 2.5 = 0.75;
    # then g = 0: v = 0.9 * 2.5 + 0.375 = 2.625, at rate 0.2 w = 0.75 - 0.525 = 0.225
    ({"optimizer": "sgd", "weight_decay": 0.5}, [1.0], [[2.0], [0.0]], [0.1, 0.2], [0.225]),
    # v = 2, the step is g + 0.9 v = 3.8
    (
        {"optimizer": "sgd", "weight_decay": 0.0, "nesterov": True},
        [1.0],
        [[2.0]],
        [0.1],
        [1 - 0.38],
    ),
    # lars, with |w| = 1, |g| = 2: rate = 0.1 * 0.5 * 1 / 2 = 0.025; v = 0.025 * 2; the step is v +
    # 0.9 v
    (FREE | {"nesterov": True}, [1.0], [[2.0]], [0.1], [1 - 0.05 * 1.9]),
    # |w| = 5, |g| = 10, decay 0.2: rate = lr * 0.5 * 5 / (10 + 1) = lr * 5/22, direction g + 0.2 w
    # = (6.6, 8.8) lr 0.1: v = (0.15, 0.2), w = (2.85, 3.8), |w| = 4.75
    (LARS, [3.0, 4.0], [[6.0, 8.0]], [0.1], [2.85, 3.8]),
    # lr 0.3, the same g: rate = 0.3 * 0.5 * 4.75 / (10 + 0.95), direction (6.57, 8.76)
    # v = 0.9 * (0.15, 0.2) + rate * direction: what was added before keeps the rate that it had
    (
        LARS,
        [3.0, 4.0],
        [[6.0, 8.0]] * 2,
        [0.1, 0.3],
        [2.715 - SECOND_RATE * 6.57, 3.62 - SECOND_RATE * 8.76],
    ),
    # without a norm, the plain rate
    ({"optimizer": "lars"}, [0.0], [[2.0]], [0.1], [-0.2]),
    ({"optimizer": "lars"}, [2.0], [[0.0]], [0.1], [1.998]),
    # it moves on from a rate of zero
    (FREE, [1.0], [[2.0], [2.0]], [0.0, 0.1], [0.95]),
    (FREE, [1.0], [[2.0], [2.0]], [0.1, 0.0], [0.95 - 0.9 * 0.05]),
    # Step 1: m / (1 - beta1) = g, v / (1 - beta2) = g^2, so r = g / (|g| + 1e-6) = (1, -1) but for
    # epsilon; r + 0.01 w = (1.03, -0.96); trust = 5 / |(1.03, -0.96)|
    (
        {"optimizer": "lamb"},
        [3.0, 4.0],
        [[6.0, -8.0]],
        [0.1],
        [3 - 0.1 * LAMB * 1.03, 4 + 0.1 * LAMB * 0.96],
    ),
    # w * (1 - 0.1 * 0.01) - 0.1 * sign(g)
    ({"optimizer": "adamw"}, [3.0, 4.0], [[6.0, -8.0]], [0.1], [3 * 0.999 - 0.1, 4 * 0.999 + 0.1]),
]


@pytest.mark.parametrize(("recipe", "weight", "gradients", "rates", "after"), BY_HAND)
def test_by_hand(
    recipe: dict[str, Any],
    weight: list[float],
    gradients: list[list[float]],
    rates: list[float],
    after: list[float],
) -> None:
    assert one(weight, gradients, rates, **recipe) == pytest.approx(after)


def test_lamb_does_not_clip() -> None:
    """timm's clips at a norm of 1 by itself; clip_norm is the recipe's."""
    small, large = (
        one([1.0, 2.0], [[1e-2, 0.0], [k, k]], [0.1] * 2, optimizer="lamb") for k in (1.0, 100.0)
    )
    assert small != pytest.approx(large)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("everywhere", [False, True])
def test_lars_is_timms_where_the_rate_is_constant(nesterov: bool, everywhere: bool) -> None:
    torchvision_operators.apply()
    from timm.optim import Lars

    recipe = replace(RECIPE, optimizer="lars", nesterov=nesterov, decay_norm_and_bias=everywhere)
    ours, theirs = net(), net()
    groups = optimizers.groups(recipe, theirs)
    for group in groups:
        group["always_adapt"] = group["adapt"]
    pairs = (
        (ours, optimizers.build(recipe, ours)),
        (theirs, Lars(groups, lr=0.1, momentum=0.9, nesterov=nesterov, trust_coeff=0.001, eps=0.0)),
    )
    start = [p.clone() for p in ours.parameters()]
    train(5, *pairs)
    for a, b, was in zip(ours.parameters(), theirs.parameters(), start, strict=True):
        assert not torch.equal(a, was)
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_norm_and_bias_that_do_not_decay_have_a_group() -> None:
    model = models.build("resnet18", 10, 32)
    one_group = optimizers.groups(RECIPE, model)
    decaying, rest = optimizers.groups(replace(RECIPE, decay_norm_and_bias=False), model)
    assert [(g["weight_decay"], g["adapt"]) for g in (*one_group, decaying, rest)] == [
        (0.01, True),
        (0.01, True),
        (0.0, False),
    ]
    names = {id(p): n for n, p in model.named_parameters()}
    assert {names[id(p)].rsplit(".", 1)[-1] for p in rest["params"]} == {"weight", "bias"}
    assert all(
        "bn" in n or "downsample.1" in n or n == "fc.bias"
        for n in (names[id(p)] for p in rest["params"])
    )
    assert len(decaying["params"]) == 21  # 20 convolutions and a linear layer
    assert (
        len(decaying["params"]) + len(rest["params"]) == len(one_group[0]["params"]) == len(names)
    )


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_layers_that_do_not_decay_are_not_adapted_and_all_others_are(name: str) -> None:
    """Also without any decay: timm's then adapts nothing, unless it is told to."""
    recipe = replace(
        RECIPE, optimizer=name, weight_decay=0.0, decay_norm_and_bias=False, momentum=0.0
    )
    moved = {}
    for scale in (1.0, 100.0):
        model = net()
        for p in model.parameters():
            p.data *= scale
            p.grad = torch.ones_like(p)
        before = [p.clone() for p in model.parameters()]
        optimizers.build(recipe, model).step()
        moved[scale] = [
            (a - b).norm().item() for a, b in zip(model.parameters(), before, strict=True)
        ]
    for weight in (0, 2):
        assert moved[100.0][weight] == pytest.approx(100 * moved[1.0][weight], rel=1e-3)
    for bias in (1, 3):
        assert moved[100.0][bias] == pytest.approx(moved[1.0][bias], rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_into_a_checkpoint_and_back(name: str, tmp_path: Path) -> None:
    recipe = replace(RECIPE, optimizer=name, decay_norm_and_bias=False)
    model = net()
    optimizer = optimizers.build(recipe, model)
    train(1, (model, optimizer))
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "state.pt")
    again = net()
    other = optimizers.build(recipe, again)
    weights, state = torch.load(tmp_path / "state.pt", weights_only=True)
    again.load_state_dict(weights)
    other.load_state_dict(state)
    train(1, (model, optimizer), (again, other))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no optimizer adam"):
        optimizers.build(replace(RECIPE, optimizer="adam"), net())


def test_who_needs_whole_layers() -> None:
    assert [name for name in NAMES if needs_whole_layers(name)] == ["lars", "lamb"]


def _sharded(rank: int, folder: str) -> None:
    """One of two ranks: the same training with FSDP's sharded tensors and without; writes the
    largest difference.
    """
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{folder}/meet", rank=rank, world_size=2
    )  # no port, which others may take
    differences = {}
    for name in NAMES:
        recipe = replace(RECIPE, optimizer=name, decay_norm_and_bias=False)
        whole = net()
        sharded = copy.deepcopy(whole)
        fully_shard(sharded)
        pairs = [(model, optimizers.build(recipe, model)) for model in (whole, sharded)]
        train(3, *pairs)
        parameters = zip(sharded.parameters(), whole.parameters(), strict=True)
        differences[name] = max((a.full_tensor() - b).abs().max().item() for a, b in parameters)
    torch.save(differences, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.more
def test_sharded_tensors_of_fsdp_train_alike(tmp_path: Path) -> None:
    """Norms of a DTensor are those of the whole parameter, so that lars and lamb may be used with
    FSDP.
    """
    start_processes(_sharded, (str(tmp_path),), nprocs=2, start_method="spawn")
    for rank in range(2):
        differences = torch.load(tmp_path / f"{rank}.pt")
        assert set(differences) == set(NAMES)
        assert max(differences.values()) < 1e-6, differences


@pytest.mark.parametrize("nesterov", [False, True])
def test_fused_sgd_after_an_overflow_in_its_first_step(nesterov: bool) -> None:
    """A loss scaler says that the gradient is infinite: the step is left out, and what follows is a
    first step.
    """
    weights = [torch.ones(1000, 100, requires_grad=True) for _ in range(4)]
    clean = [weight.detach().clone().requires_grad_() for weight in weights]
    with_overflow, without = (
        Sgd(parameters, lr=0.1, momentum=0.9, weight_decay=0.0, nesterov=nesterov, fused=True)
        for parameters in (weights, clean)
    )
    with_overflow.grad_scale, with_overflow.found_inf = torch.ones(1), torch.ones(1)
    for weight in weights:
        weight.grad = torch.full_like(weight, float("inf"))
    with_overflow.step()
    assert all(torch.equal(weight, torch.ones_like(weight)) for weight in weights)
    with_overflow.found_inf = torch.zeros(1)
    for gradient in (0.0, 2.0, -1.0):
        for weight in (*weights, *clean):
            weight.grad = torch.full_like(weight, gradient)
        with_overflow.step()
        without.step()
        assert all(torch.equal(a, b) for a, b in zip(weights, clean, strict=True)), gradient


@pytest.mark.parametrize("how", ["fused", "foreach"])
def test_sgd_is_pytorchs(how: str) -> None:
    """To the last bit, also in the first step, where PyTorch's takes the gradient for the
    momentum.
    """
    ours, theirs = net(), net()
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True, how: True}
    pairs = (
        (ours, Sgd(ours.parameters(), **settings)),
        (theirs, torch.optim.SGD(theirs.parameters(), **settings)),
    )
    for _ in range(4):
        train(1, *pairs)
        assert all(
            torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
        )


class Alone(_common.Engine):
    """One rank: there is nothing to average."""

    def reduced_backward(self, loss: torch.Tensor, last: bool) -> None:
        loss.backward()


def test_gradients_of_fp16_are_clipped_without_their_scale() -> None:
    """The scale is some ten thousand: a norm that is below the limit would be above it."""
    weights = []
    for precision in ("fp32", "fp16"):
        model = net()
        recipe = replace(RECIPE, optimizer="sgd", precision=precision, clip_norm=100.0)
        optimizer = optimizers.build(recipe, model)
        engine = Alone(model, optimizer, run_spec(recipe=recipe), clock=Any)
        torch.manual_seed(1)
        engine.backward(model(torch.randn(8, 5)).square().mean(), last=True)
        engine.step()
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    assert not torch.equal(weights[0], nn.utils.parameters_to_vector(net().parameters()))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kernel", "place"), [("fused", "meta"), ("foreach", "cpu")])
def test_a_count_of_steps_goes_where_the_kernel_counts(kernel: str, place: str) -> None:
    """Fused AdamW on GPUs takes no count on the host: a run of DeepSpeed's could not go on."""
    weights = nn.Parameter(torch.zeros(3, device="meta"))
    optimizer = torch.optim.AdamW([weights], lr=0.1, foreach=True)
    optimizer.param_groups[0] |= {"fused": False, "foreach": False} | {kernel: True}
    state = {"step": torch.tensor(7.0), "exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}
    group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    deepspeed_zero.load_optimizer_state(optimizer, [], {"tensors": [state], "groups": [group]})
    loaded = optimizer.state[weights]
    assert {name: value.device.type for name, value in loaded.items()} == {
        "step": place,
        "exp_avg": "meta",
        "exp_avg_sq": "meta",
    }
