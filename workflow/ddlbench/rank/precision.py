"""How a run computes: the number formats of its recipe. Learning rates are in `schedule.py`, optimisers in
`optimizers.py`, models in `models.py`; `config/recipes/` holds the values.
"""

from __future__ import annotations

from typing import Any

from ddlbench.spec import RunSpec


def set_precision(spec: RunSpec) -> None:
    """How this process multiplies fp32 matrices on GPUs: in TensorFloat-32 if the recipe says tf32, else exactly.

    PyTorch's own default is neither: exact products, but convolutions in TensorFloat-32. Both of its switches are set
    (torch 2.13), because reading one where only the other was set is an error, and torch.compile reads the old one.
    """
    import torch

    tf32 = spec.recipe.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    backends: Any = torch.backends  # its types lack these switches
    for switch in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        switch.fp32_precision = "tf32" if tf32 else "ieee"


def autocast(spec: RunSpec) -> Any:
    """What a forward pass runs under: PyTorch's autocast to bf16 or fp16, which does nothing for fp32 and tf32.

    A context manager and a decorator. Loss scaling, which fp16 needs, is the framework's part.
    """
    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    wanted = spec.recipe.precision in kinds
    return torch.autocast(spec.device, dtype=kinds.get(spec.recipe.precision, torch.bfloat16), enabled=wanted)
