"""Memory under the stages of ZeRO, against the numbers of the paper."""

import pytest
from ddlbench.analysis.zero import held_bytes, optimizer_bytes


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_papers_example(stage: int, gigabytes: float) -> None:
    """Figure 1: 7.5 billion parameters on 64 GPUs with K = 12."""
    held = held_bytes(7.5e9, stage, 64, optimizer_bytes=12, weight_bytes=2, gradient_bytes=2)
    assert held / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_on_one_worker_stages_are_alike() -> None:
    assert {held_bytes(1000, stage, 1, 8) for stage in range(4)} == {16_000}
    with pytest.raises(ValueError, match="stage 4: allowed: 0, 1, 2, 3"):
        held_bytes(1000, 4, 1, 8)


@pytest.mark.parametrize(
    ("optimizer", "momentum", "k"), [("sgd", 0.9, 4), ("sgd", 0, 0), ("lars", 0, 4), ("adamw", 0, 8)]
)
def test_the_optimizers_state(optimizer: str, momentum: float, k: float) -> None:
    assert optimizer_bytes(optimizer, momentum) == k
