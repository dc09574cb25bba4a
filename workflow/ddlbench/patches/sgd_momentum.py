"""PyTorch 2.13, whose fused SGD makes a momentum without values in its first step.

Where a loss scaler found an overflow in that step, the kernel leaves the tensor so: noise from
there on. Without a guard: momentum that begins with zeros gives the same weights in every release.

Upstream (pytorch/pytorch): `_fused_sgd` allocates `momentum_buffer` with `empty_like` and, if
`found_inf` is 1, returns before it writes it, while `_init_group` keeps it as the state. Allocating
it with `zeros_like` in the first step, or keeping it only if `found_inf` is 0, would patch it.
"""

from typing import Any

import torch


class Sgd(torch.optim.SGD):
    """PyTorch's SGD, whose momentum begins with zeros; the first step then gives the same
    weights.
    """

    def step(self, closure: Any = None) -> Any:
        """Update the weights once. `closure` is called first, with gradients, if there is one."""
        for group in self.param_groups:
            if group["fused"] and group["momentum"]:
                for weight in group["params"]:
                    if self.state[weight].get("momentum_buffer") is None:
                        self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return super().step(closure)
