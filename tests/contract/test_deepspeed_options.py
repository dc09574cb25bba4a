"""What DeepSpeed alone has: one-bit optimizers, layer dropping, tables of operations and messages.

Two real ranks (`engines.py`). That these train alike and resume by the bit is in
test_frameworks.py.
"""

import json
import math
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from ddlbench.analysis.sheets import operations
from ddlbench.core.record import FLOPS
from ddlbench.patches.timm_layer_dropping import decisions, keep_probability
from ddlbench.train import optimizers

from tests.contract.engine_cases import (
    CASES,
    FREEZE,
    GAMMA,
    LONG,
    ONE_BIT,
    RANKS,
    STEPS,
    THETA,
    spec_of,
)
from tests.contract.engine_models import batch_of, model_of
from tests.contract.engines import mean_losses, name_of

pytestmark = pytest.mark.usefixtures("engine_packages")


@cache
def uncorrected(compression: str, steps: int) -> list[float]:
    """Losses of one process under Adam or LAMB without bias correction, which DeepSpeed's one-bit
    optimizers are until they compress (LAMB's coefficient within 0.01 and 10), on the pictures of
    all ranks.
    """
    spec = spec_of(next(c for c in CASES.values() if c.options.get("compression") == compression))
    net, r = model_of("linear"), spec.recipe
    moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in net.parameters()}
    eps = optimizers.build(spec.recipe, net).param_groups[0]["eps"]
    losses = []
    for step in range(steps):
        x, y = (
            torch.cat(part) for part in zip(*(batch_of(i, step) for i in range(RANKS)), strict=True)
        )
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for p, (m, v) in moments.items():
                m.mul_(r.beta1).add_(p.grad, alpha=1 - r.beta1)
                v.mul_(r.beta2).addcmul_(p.grad, p.grad, value=1 - r.beta2)
                update = m / (v.sqrt() + eps) + (r.weight_decay if p.ndim > 1 else 0.0) * p
                trust = (p.norm() / update.norm()).clamp(0.01, 10) if r.optimizer == "lamb" else 1.0
                p.sub_(r.base_lr * (1 - step / 100) * trust * update)
    return losses


@pytest.mark.parametrize("compression", ONE_BIT)
def test_one_bit_optimizers_lose_no_step_before_they_compress(results, compression):
    """DeepSpeed's own first step trains nothing: it is not one of ours. 0/1 Adam compresses from
    step 16 on.
    """
    same = 16 if compression == "0/1-adam" else LONG
    ours = mean_losses(results(name_of(f"{compression}-late", ONE_BIT[compression], "linear")))
    assert ours[:same] == pytest.approx(uncorrected(compression, LONG)[:same], abs=1e-5)


@pytest.mark.parametrize("compression", ONE_BIT)
def test_one_bit_optimizers_go_on_learning_when_they_compress(results, compression):
    late, early = (
        results(name_of(f"{compression}-{when}", ONE_BIT[compression], "linear"))
        for when in ("late", "early")
    )
    losses = mean_losses(early)
    assert losses[: FREEZE + 1] == pytest.approx(mean_losses(late)[: FREEZE + 1], abs=1e-6)
    assert losses[FREEZE + 2 : FREEZE + 6] != pytest.approx(
        mean_losses(late)[FREEZE + 2 : FREEZE + 6], abs=1e-4
    )
    assert sum(losses[-4:]) < sum(losses[FREEZE : FREEZE + 4]) < sum(losses[:4])


@pytest.mark.parametrize("variant", ["dropping0", "dropping1", "dropping2", "dropping-parts"])
def test_blocks_are_dropped_on_the_published_schedule(results, variant):
    """By the paper's formula and a run's seed on all ranks the same; every micro-batch of a step
    draws anew.
    """
    (name,) = [n for n, c in CASES.items() if c.variant == variant]
    spec, steps = spec_of(CASES[name]), range(CASES[name].steps)
    theta = [(1 - THETA) * math.exp(-GAMMA * step) + THETA for step in steps]
    parts = range(spec.recipe.accumulation)
    expected = [
        decisions(6, theta[step], spec.seed, step, part) for step in steps for part in parts
    ]
    for result in results(name):
        assert result["kept"] == expected
        # What really ran, counted at the blocks' own first layer.
        assert result["block_calls"] == [[int(kept) for kept in of] for of in expected]
    dropped = sum(not kept for of in expected for kept in of)
    chances = [1 - keep_probability(i, 6, 0.5) for _ in expected for i in range(6)]
    assert 0 < dropped < sum(chances) * 1.5


def test_tables_of_operations_and_messages_are_written(results, engines_folder):
    results(name_of("tables", "sgd"))
    profile = json.loads((engines_folder / "first" / FLOPS).read_text())
    counted = operations.rows(profile, {}, spec_of(CASES[name_of("tables", "sgd")]))
    numbers = sum(p.numel() for p in model_of("lenet").parameters())
    assert (counted[0]["module"], counted[0]["parameters"]) == ("(model)", numbers)
    whole, *modules = (row["deepspeed_flops_per_image"] for row in counted)
    assert whole == sum(modules) > 0 and counted[0]["forward_s"] < 60  # not the time since 1970
    lines = (engines_folder / "first" / "comms.txt").read_text().splitlines()
    at = lines.index("all_reduce")
    gradients = sum(p.numel() for p in model_of("lenet").parameters()) * 4
    count = int(lines[at + 1].split()[2])
    assert lines[at + 1].split()[:2] == [f"{gradients / 1024:.2f}", "KB"] and count == STEPS
