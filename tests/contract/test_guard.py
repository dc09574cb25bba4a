"""When ranks agree what comes next, and that they wait for each other. No GPU: time and collectives
are pretended.
"""

import os
import signal
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddlbench.core.notes import STOP_SIGNALS, LossError
from ddlbench.train import guard
from ddlbench.train.loop import Training
from ddlbench.train.setup import Setup

from tests.contract.engine_cases import Case, spec_of
from tests.facts import missing, refuses


class Time:
    """A clock that only the test moves."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch, handlers):
    pretended = Time()
    monkeypatch.setattr(guard, "time", pretended)
    return pretended


def alone(first: int = 0) -> guard.Guard:
    return guard.Guard(lambda tensor: tensor[None], None, first)


def agreements(clock: Time, step_s: float, steps: int, first: int = 0) -> list[int]:
    """The steps, counted from 0, after which a process agrees that begins after `first` steps of
    the run.
    """
    watching, agreed, losses = alone(first), [], []
    for step in range(steps):
        clock.now_s += step_s
        losses.append(torch.tensor(1.0))
        if watching.due(first + step):
            agreed.append(step)
            assert not watching.agree(0, losses, first)
    return agreed


def test_quick_steps_of_a_first_epoch_are_hardly_interrupted(clock):
    assert agreements(clock, 0.001, 1000, 5000) == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]


@pytest.mark.parametrize("first", [0, 777])
def test_long_first_epochs_hear_a_signal_in_time(clock, first):
    # 0.4 s a step: by powers of two alone a signal after step 1023 would be heard 400 s later, and
    # SLURM waits 120.
    times = agreements(clock, 0.4, 2000, first)
    gaps = [(after - before) * 0.4 for before, after in pairwise(times)]
    assert max(gaps) <= 1.1 * guard.AGREE_S
    assert len(times) < 1.1 * 2000 * 0.4 / guard.AGREE_S + 10


def test_a_loss_that_is_no_number_ends_the_run_and_names_its_step(clock):
    losses = [torch.tensor(value) for value in (1.0, float("nan"), 2.0)]
    with refuses(LossError, "step 11", "nan"):
        alone().agree(0, losses, 10)


def test_what_one_rank_wants_all_of_them_do(clock):
    """Rank 0 writes a checkpoint when it is due; any rank's signal stops all; another's bad loss
    ends all.
    """
    others = {
        "signal": [True, False, False, 1.0],
        "due": [False, True, False, 1.0],
        "loss": [False, False, True, 1.0],
    }

    def agreed(word: str) -> tuple[bool, bool]:
        other = torch.tensor(others[word], dtype=torch.float64)
        watching = guard.Guard(lambda mine: torch.stack([other, mine]), None)
        return watching.agree(1, [torch.tensor(1.0)], 0), watching.stop

    assert agreed("signal") == (True, True)
    assert agreed("due") == (True, False)
    with pytest.raises(RuntimeError, match="another rank"):
        agreed("loss")


def test_a_checkpoint_is_due_after_minutes_of_training(clock):
    watching = guard.Guard(lambda tensor: tensor[None], 2.0)
    due = []
    for _ in range(5):
        clock.now_s += 59.0
        due.append(watching.agree(0, [torch.tensor(1.0)], 0))
    assert due == [False, False, True, False, False]  # after 177 s, and not 118 s later


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_that_asks_to_stop_is_heard(handlers: None, number: int) -> None:
    watching = alone()
    assert signal.getsignal(number) is not signal.SIG_DFL  # which would end all tests
    os.kill(os.getpid(), number)
    assert watching.signal == number
    assert watching.agree(0, [torch.tensor(1.0)], 0) and watching.stop


def test_meeting_others_waits_for_them():
    read = []

    class Gathered:
        """A collective's result. On a GPU it is there when the stream has come so far."""

        def cpu(self) -> None:
            read.append(True)

    ranks: Any = SimpleNamespace(
        framework=SimpleNamespace(gather=lambda _: Gathered()), device=torch.device("cpu")
    )
    ranks.gather = lambda tensor: Setup.gather(ranks, tensor)
    Setup.meet(ranks)
    assert read == [True]


@pytest.mark.parametrize("compression", ["1-bit-adam", "none"])
def test_a_loss_that_is_no_number_names_the_option_that_can_diverge(
    clock: Time, compression: str
) -> None:
    spec = spec_of(Case("deepspeed", "deepspeed", "adamw", options={"compression": compression}))
    setup: Any = SimpleNamespace(guard=alone(), rank=0, spec=spec)
    training: Any = SimpleNamespace(
        setup=setup, taken=[SimpleNamespace(loss=torch.tensor(float("nan")), step=8)]
    )
    with pytest.raises(LossError) as caught:
        Training.agree(training)
    said, _, why = str(caught.value).partition("; ")
    assert missing(said, "step 8", "nan") == [] and caught.value.step == 8
    assert bool(why) == (compression != "none")
    assert not why or missing(why, "compression", "1-bit-adam", "freeze_step") == []
