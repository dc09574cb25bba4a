"""No step makes the host wait for its GPU: nothing is read from the device, nothing copied to it.

Counted on a CPU, of the loop and the engine that frameworks share; `tests/contract` counts every
framework's engine.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddlbench.patches.sgd_momentum import Sgd
from ddlbench.settings.recipe import load_recipe
from ddlbench.train import optimizers, precision
from ddlbench.train.clock import Clock
from ddlbench.train.frameworks import _common
from ddlbench.train.loop import Training
from ddlbench.train.validation import count_correct
from torch import nn

from tests.builders.plans import run_spec
from tests.host_waits import HostWaits

IMAGES, STEPS = 4, 3


class Alone(_common.Engine):
    """An engine of one rank."""

    def reduced_backward(self, loss: torch.Tensor, last: bool) -> None:
        loss.backward()


def training(**recipe: Any) -> Training:
    """A loop over a small model with batch norm; keywords are the recipe's."""
    of = replace(load_recipe("demo").at(IMAGES), image_size=8, **recipe)
    spec = run_spec(recipe=of, workers=1, global_batch=IMAGES)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)
    )
    precision.prepare(model, spec)
    optimizer = optimizers.build(of, model)
    if of.optimizer == "sgd":
        optimizer = Sgd(
            model.parameters(), lr=0.1, momentum=of.momentum, fused=True
        )  # as it is on GPUs
    setup: Any = SimpleNamespace(
        spec=spec,
        device=torch.device("cpu"),
        images={"train": IMAGES * STEPS},
        steps=STEPS,
        start=SimpleNamespace(losses=[]),
        assignment=SimpleNamespace(interrupt_steps=None),
        engine=Alone(model, optimizer, spec, Clock("cpu")),
        clock=Clock("cpu"),
        profiled_step=lambda: None,
    )
    return Training(setup)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(IMAGES, 3, 8, 8), torch.arange(IMAGES)


@pytest.mark.parametrize(
    "recipe",
    [
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "clip_norm": 1.0},
        {"optimizer": "lars"},
        {"optimizer": "lamb"},
        {"precision": "bf16", "accumulation": 2},
        {"precision": "fp16"},
        {"precision": "fp16", "optimizer": "adamw", "clip_norm": 1.0, "accumulation": 2},
    ],
    ids=str,
)
def test_no_step_waits(recipe: dict[str, Any]) -> None:
    loop = training(**recipe)
    loop.step(0, 0, batch())
    given = batch()
    with HostWaits() as waits:
        loop.step(0, 1, given)
    # LAMB of timm counts its steps on the host, where reading the count waits for nobody.
    assert waits.count == (
        {"aten._local_scalar_dense": 1} if recipe.get("optimizer") == "lamb" else {}
    )
    assert float(loop.taken[1].loss) > 0


def test_no_batch_of_a_validation_waits() -> None:
    loop = training()
    with HostWaits() as waits:
        counts = count_correct(loop.setup.engine, iter([batch(), batch()]), loop.parts.spare)
    assert waits.count == {}
    assert counts.dtype == torch.float64 and counts[2] == 2 * IMAGES


def test_a_smaller_last_batch_leaves_the_compiled_model_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each size of batch has a program of its own, without sizes that are known only when it
    runs.
    """
    shapes: list[list[Any]] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        shapes.append([size for x in inputs if isinstance(x, torch.Tensor) for size in x.shape])
        return graph.forward

    compile_ = nn.Module.compile
    monkeypatch.setattr(
        nn.Module, "compile", lambda self, **how: compile_(self, backend=backend, **how)
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    precision.prepare(model, run_spec(options=(("compile", True), ("framework", "ddp"))))
    for images in (4, 3, 4, 3):
        assert model(torch.randn(images, 3, 2, 2)).shape == (images, 2)
    assert len(shapes) == 2 and all(type(size) is int for of_one in shapes for size in of_one)
