"""Every framework trains what a bare PyTorch loop does: losses, parameters, accuracy, learning
rates.

The native loader's order does not depend on the number of ranks: 1 and 2 see the same global
batches.
"""

from typing import Any

import pytest
import torch
from ddlbench.core.schedule import learning_rate

from tests.contract.launches import FRAMEWORKS, IMAGES

# Ranks differ from the control in the order of float32 sums: two of them add up in halves.
LOSS_TOLERANCE = 1e-6  # relative; seen: 2e-7
PARAMETER_TOLERANCE = 3e-7  # absolute; seen: 3e-8, where parameters are of the order of 0.1

AGAINST_CONTROL = [("plain", 1), ("plain", 2), ("demo", 2), ("own", 2)]
BETWEEN_FRAMEWORKS = [*AGAINST_CONTROL, ("batch-norm", 2)]


def of_each(cases: list[tuple[str, int]], without: str = "") -> list[Any]:
    """Parameters (case, workers, framework). Daily every framework trains `plain` on two ranks; the
    other cases, whose loop is the same, DDP alone: `own` and `batch-norm` are left to `make
    test-more`. The slow tier trains all by all.
    """

    def marks(case: str, workers: int, framework: str) -> list[pytest.MarkDecorator]:
        if framework != "ddp" and (case, workers) != ("plain", 2):
            return [pytest.mark.slow]
        return [pytest.mark.more] if case in ("own", "batch-norm") else []

    return [
        pytest.param(case, workers, f, marks=marks(case, workers, f))
        for case, workers in cases
        for f in FRAMEWORKS
        if f != without
    ]


@pytest.mark.parametrize(("case", "workers", "framework"), of_each(AGAINST_CONTROL))
class TestControl:
    def test_losses(self, run, controlled, case, workers, framework):
        assert run(case, framework, workers).losses() == pytest.approx(
            controlled(case).losses, rel=LOSS_TOLERANCE
        )

    def test_final_parameters(self, run, controlled, case, workers, framework):
        state, expected = run(case, framework, workers).states()[0], controlled(case).state
        assert state.keys() == expected.keys()
        for name, value in state.items():
            torch.testing.assert_close(
                value, expected[name], rtol=0, atol=PARAMETER_TOLERANCE, msg=name
            )

    def test_validation(self, run, controlled, case, workers, framework):
        """Every validation image counts once, and as many are right as in the control."""
        seen = [
            (v["correct"], v["seen"]) for v in run(case, framework, workers).values("tracked_stats")
        ]
        assert seen == [(n, IMAGES["val"]) for n in controlled(case).correct]


def test_control_would_notice_clipping(controlled):
    """DeepSpeed clips gradient norms at 1.0 unless told otherwise: the runs above must have larger
    ones.
    """
    assert max(controlled("plain").gradient_norms) > 2


@pytest.mark.parametrize(
    ("case", "workers", "framework"), of_each(BETWEEN_FRAMEWORKS, without="ddp")
)
def test_frameworks_agree_to_the_last_bit(run, case, workers, framework):
    one, other = run(case, "ddp", workers), run(case, framework, workers)
    assert one.steps["loss"].tolist() == other.steps["loss"].tolist()
    assert one.values("tracked_stats") == other.values("tracked_stats")
    for mine, theirs in zip(one.states(), other.states(), strict=True):
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


@pytest.mark.more
@pytest.mark.parametrize(
    ("case", "workers", "framework"), of_each([c for c in BETWEEN_FRAMEWORKS if c[1] > 1])
)
def test_all_ranks_end_with_the_same_parameters(run, case, workers, framework):
    """Batch norm's running statistics too: they are averaged before validation."""
    first, *others = run(case, framework, workers).states()
    for other in others:
        assert [name for name in first if not torch.equal(first[name], other[name])] == []


@pytest.mark.parametrize(("case", "workers", "framework"), of_each(BETWEEN_FRAMEWORKS))
def test_learning_rate_is_the_recipes(run, case, workers, framework):
    outcome = run(case, framework, workers)
    steps = -(-IMAGES["train"] // outcome.spec.global_batch)
    for row in outcome.steps.itertuples():
        assert row.epoch == row.step // steps
        assert row.lr == learning_rate(outcome.spec, row.epoch + row.step % steps / steps)
    assert outcome.steps["lr"].nunique() > 2  # a rate that never moved would prove nothing
