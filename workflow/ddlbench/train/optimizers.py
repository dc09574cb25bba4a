"""Optimizers by the recipe's name, and which parameters decay; tested against their papers.

SGD and AdamW are PyTorch's. LAMB is timm's, set to what its paper says. LARS is our own: the paper
and MLPerf, whose rates we use, put the learning rate into the momentum, and timm's keeps it out, as
PyTorch's SGD does.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ddlbench.core.recipe import Recipe
from ddlbench.patches import torchvision_operators
from ddlbench.patches.sgd_momentum import Sgd


def groups(recipe: Recipe, model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the trainable parameters in groups for an optimizer, each with `params`,
    `weight_decay` and `adapt`.

    There is one group. If norm and bias do not decay, a second one holds all parameters of one
    dimension: the biases, and those of normalisation layers. `adapt` says whether lars and lamb set
    layer-wise rates in a group: not where nothing decays, as MLPerf's reference leaves batch norm
    and biases out of both (mlcommons/training, image_classification/tensorflow2/lars_optimizer.py,
    skip_list).
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if recipe.decay_norm_and_bias:
        return [{"params": parameters, "weight_decay": recipe.weight_decay, "adapt": True}]
    parts = [
        {
            "params": [p for p in parameters if p.ndim > 1],
            "weight_decay": recipe.weight_decay,
            "adapt": True,
        },
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0, "adapt": False},
    ]
    return [part for part in parts if part["params"]]


def build(recipe: Recipe, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Build the recipe's optimizer over a model's parameters; its rate is `base_lr` until the loop
    sets it before each step.

    Raises ValueError on a name that it does not know.
    """
    parameters = groups(recipe, model)
    lr = recipe.base_lr
    # PyTorch's default on CPUs is one operation after the other for one parameter after the other:
    # 39 ms for ResNet-18. `foreach` applies each operation to all parameters (17 ms), and gives the
    # same last bit however parameters are cut up by ZeRO or FSDP. `fused` is a single pass (5 ms);
    # SGD's cannot take FSDP's sharded tensors.
    if recipe.optimizer == "sgd":
        fused = all(
            p.is_cuda and not isinstance(p, DTensor)
            for group in parameters
            for p in group["params"]
        )
        return Sgd(
            parameters,
            lr=lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            fused=fused,
            foreach=not fused,
        )
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, betas=(recipe.beta1, recipe.beta2), fused=True)
    if recipe.optimizer == "lars":
        return Lars(parameters, lr, recipe.momentum, recipe.nesterov, recipe.trust_coefficient)
    if recipe.optimizer == "lamb":
        torchvision_operators.apply()
        from timm.optim import Lamb

        # timm's optimizer clips gradients at 1 unless it is configured otherwise. Whether it adapts
        # is read from each group, not from the recipe.
        for group in parameters:
            group["always_adapt"] = group["adapt"]
        lamb: torch.optim.Optimizer = Lamb(
            parameters, lr=lr, betas=(recipe.beta1, recipe.beta2), max_grad_norm=None
        )
        return lamb
    raise ValueError(f"no optimizer {recipe.optimizer}")


class Lars(torch.optim.Optimizer):
    """LARS (You et al. 2017, arXiv:1708.03888, algorithm 1), with the learning rate inside the
    momentum:

        rate = lr * trust_coefficient * |w| / (|g| + weight_decay * |w|)     for each parameter, lr if a norm is 0
        v    = momentum * v + rate * (g + weight_decay * w)
        w    = w - v                                    (Nesterov: w - momentum * v - rate * (g + weight_decay * w))

    In groups whose `adapt` is false the rate is lr. MLPerf's reference does the same, with epsilon
    0. Where the rate is constant it is timm's `Lars`. Norms are those of whole parameters: no use
    for parts of flattened ones.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        momentum: float = 0.9,
        nesterov: bool = False,
        trust_coefficient: float = 0.001,
        weight_decay: float = 0.0,
    ) -> None:
        # Horovod makes this object again with its groups alone, so every setting lives in them.
        defaults = {
            "momentum": momentum,
            "nesterov": nesterov,
            "trust_coefficient": trust_coefficient,
            "adapt": True,
        }
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **defaults})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the weights once. `closure` is called first, with gradients, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._update(weights, group)
        return loss

    def _update(self, weights: list[torch.Tensor], group: dict[str, Any]) -> None:
        gradients = [w.grad for w in weights if w.grad is not None]
        decay, lr = group["weight_decay"], group["lr"]
        scaled = (
            torch._foreach_add(gradients, weights, alpha=decay)
            if decay
            else torch._foreach_mul(gradients, 1.0)
        )
        steps = list(scaled)
        if group["adapt"]:
            w, g = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, gradients))
            trust = group["trust_coefficient"] * w / (g + decay * w)
            rates = lr * torch.where((w > 0) & (g > 0), trust, 1.0)
            torch._foreach_mul_(steps, list(rates.unbind()))
        else:
            torch._foreach_mul_(steps, lr)
        if group["momentum"]:
            for weight in weights:
                if "momentum_buffer" not in self.state[weight]:
                    self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            velocity = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_mul_(velocity, group["momentum"])
            torch._foreach_add_(velocity, steps)
            if group["nesterov"]:
                torch._foreach_add_(steps, velocity, alpha=group["momentum"])
            else:
                steps = velocity
        torch._foreach_sub_(weights, steps)
