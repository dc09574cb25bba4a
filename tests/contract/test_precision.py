"""Number formats of a recipe: autocast, and PyTorch's switches for its matrix units."""

import subprocess
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from ddlbench.train import precision
from ddlbench.train.precision import autocast

from tests.unit.test_recipe import RECIPE, run


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", None), ("tf32", None), ("bf16", "bfloat16"), ("fp16", "float16")],
)
def test_autocast(precision: str, dtype: str | None) -> None:
    spec = replace(run(), device="cpu", recipe=replace(RECIPE, precision=precision))
    layer = torch.nn.Linear(2, 2)

    @autocast(spec)
    def forward(x: Any) -> Any:
        return layer(x)

    for _ in range(2):
        y = forward(torch.ones(1, 2))
        assert str(y.dtype) == f"torch.{dtype or 'float32'}"
    with autocast(spec):
        assert layer(torch.ones(1, 2)).dtype == y.dtype
    assert layer(torch.ones(1, 2)).dtype == torch.float32


@pytest.mark.parametrize("on", [True, False])
def test_cudnn_times_its_algorithms_if_the_variant_says_so(
    monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    switches: Any = MagicMock()  # those of this process stay as they are
    monkeypatch.setattr(precision, "torch", switches)
    spec = replace(run(), options=(("cudnn_benchmark", True), ("framework", "ddp")) if on else ())
    precision.set_precision(spec)
    assert switches.backends.cudnn.benchmark is on
    assert (
        "cudnn_benchmark" in spec.to_json()
    ) is on  # recorded, and runs without it keep their settings


SWITCHES = """
import sys, warnings
warnings.simplefilter("error")
from dataclasses import replace
import torch
from ddlbench.train.precision import set_precision
from tests.unit.test_recipe import RECIPE, run
for precision in sys.argv[1:]:
    set_precision(replace(run(), recipe=replace(RECIPE, precision=precision)))
    on = torch.backends
    new = {on.cuda.matmul.fp32_precision, on.cudnn.conv.fp32_precision, on.cudnn.rnn.fp32_precision}
    old = {on.cuda.matmul.allow_tf32, on.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high"}
    print(precision, *new, *old)
"""


@pytest.mark.more
def test_all_of_pytorchs_switches_say_the_same() -> None:
    """In a process of its own: they are the whole process's. Reading one that contradicts another
    is an error.
    """
    formats = ["fp32", "tf32", "bf16", "tf32", "fp16"]
    done = subprocess.run(
        [sys.executable, "-c", SWITCHES, *formats], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    exact, tensor = "ieee False", "tf32 True"
    expected = {"fp32": exact, "tf32": tensor, "bf16": exact, "fp16": exact}
    assert done.stdout.splitlines() == [f"{name} {expected[name]}" for name in formats]
