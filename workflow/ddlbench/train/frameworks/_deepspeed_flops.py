"""DeepSpeed's FLOPS profiler over one forward pass: what it counts of each module, as numbers.

The profiler is DeepSpeed's own class, used around the pass as its documentation shows it. The
engine's own call of it would write a text for people, miss the start of the model, and switch on
timers that wait for the device in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def profiled(
    model: nn.Module, forward: Callable[[Tensor], Tensor], images: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Return the scores of a forward pass, and what DeepSpeed counts of it for all of its pictures.

    `modules` are those of the model in its order, parents before their parts: name ("" is the
    model), class, parameters, multiply-adds, and the time of the forward pass [s].
    """
    from deepspeed.profiling.flops_profiler.profiler import (
        FlopsProfiler,
        get_module_duration,
        get_module_macs,
    )

    profiler = FlopsProfiler(model)
    profiler.start_profile()
    try:
        scores = forward(images)
        profiler.stop_profile()
        modules = [
            {
                "module": name,
                "kind": type(module).__name__,
                "parameters": sum(p.numel() for p in module.parameters()),
                "macs": get_module_macs(module),
                "forward_s": get_module_duration(module),
            }
            for name, module in model.named_modules(remove_duplicate=False)
        ]
    finally:
        profiler.end_profile()
    return scores, {"images": len(images), "modules": modules}
