"""Three ranks, where a mean is rounded and shards are uneven: the same training, equal skipping,
and it goes on.

Horovod reduces each gradient on its own here (fusion_threshold_mb 0).
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.conftest import Once
from tests.contract.engine_cases import BATCH, CASES, MAIN, spec_of
from tests.contract.engines import Results, drive, name_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("engine_packages")]

RANKS = 3
RECIPES = [
    ("sgd", "lenet"),
    ("adamw-accumulate-clip", "lenet"),
    ("adamw", "wide"),
    ("fp16", "lenet"),
    ("fp16", "spike"),
]
VARIANTS = [variant for variant in MAIN if variant[1] not in ("ddp", "fsdp")]
NAMES = [
    name_of(variant, recipe, model)
    for _, variant, _ in (("ddp", "ddp", {}), *VARIANTS)
    for recipe, model in RECIPES
    if (variant, recipe) != ("zero3", "fp16")
]


@pytest.fixture(scope="module")
def of_three(once: Once):
    """`of_three(case's name, phase)`: what each rank left."""

    def start(adapter: str, phase: str, folder: Path) -> None:
        names = [name for name in NAMES if CASES[name].adapter == adapter]
        case = CASES[names[0]]
        if adapter == "horovod":
            case = replace(case, options={"fusion_threshold_mb": 0})
        spec = replace(
            spec_of(case), workers=RANKS, workers_per_node=RANKS, global_batch=RANKS * BATCH
        )
        drive(spec, folder, phase, names)

    @cache
    def read(name: str, phase: str = "first") -> Results:
        adapter = CASES[name].adapter
        if phase == "resumed":
            read(name)
        folder = once("three", lambda _: None)
        once(f"three-{adapter}-{phase}", lambda _: start(adapter, phase, folder))
        return [
            torch.load(folder / f"{name}-{phase}-{rank}.pt", weights_only=True)
            for rank in range(RANKS)
        ]

    return read


@pytest.mark.parametrize("name", NAMES)
def test_three_ranks_train_as_ddps_do_and_go_on(of_three, name):
    case = CASES[name]
    whole, resumed, ddps = (
        of_three(name),
        of_three(name, "resumed"),
        of_three(name_of("ddp", case.recipe, case.model)),
    )
    for mine, later, theirs in zip(whole, resumed, ddps, strict=True):
        assert mine["losses"] == pytest.approx(theirs["losses"], abs=1e-5)
        assert later["losses"] == pytest.approx(mine["losses"][case.save_at :], abs=1e-5)
        assert mine["skipped"] == later["skipped"] == (case.recipe == "fp16")
        for key, value in mine["weights"].items():
            assert torch.equal(value, whole[0]["weights"][key]), key  # on all ranks
            torch.testing.assert_close(later["weights"][key], value, atol=1e-5, rtol=0.0)
            torch.testing.assert_close(theirs["weights"][key], value, atol=1e-5, rtol=0.0)
