"""A run that was killed or told to stop goes on from its checkpoint: the same losses from there on,
to the last bit.
"""

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from ddlbench.core import notes

from tests.conftest import shared
from tests.contract import launches
from tests.contract.launches import on_two
from tests.contract.test_failure import ENDS_WITHIN_S, assert_gone

OFTEN = 1e-6  # minutes between checkpoints: at every agreement of the ranks
SLOWLY = {
    "PROBE_SLEEP_S": "1"
}  # a step: six of them are not over when a test that is late does what it came for


def assert_as_undisturbed(outcome: launches.Outcome, undisturbed: launches.Outcome) -> None:
    """Step by step and rank by rank, and in every parameter."""
    columns = ["epoch", "step", "rank", "images", "lr", "loss"]
    mine, theirs = (
        o.steps.sort_values(["step", "rank"])[columns].reset_index(drop=True)
        for o in (outcome, undisturbed)
    )
    assert mine.equals(theirs)
    assert outcome.values("tracked_stats") == undisturbed.values("tracked_stats")
    for state, other in zip(outcome.states(), undisturbed.states(), strict=True):
        assert [name for name in state if not torch.equal(state[name], other[name])] == []


def killed(spec, folder, data, rank: int, step: int) -> launches.Outcome:
    """What is left of a run, a rank of which kills itself in that step."""
    misdeed = {"PROBE_FAILS": str(rank), "PROBE_DOES": "kill", "PROBE_STEP": str(step)}
    return launches.execute(spec, folder, data, environment=misdeed, checkpoint_minutes=OFTEN)


def assert_goes_on(undisturbed: launches.Outcome, folder, data, **how) -> list[dict]:
    """Started again, the run in this folder ends as if nothing had been; from where it went on,
    each time.
    """
    again = launches.execute(undisturbed.spec, folder, data, **how)
    assert again.code == 0, again.output
    assert_as_undisturbed(again, undisturbed)
    assert not (folder / "failed").exists()
    return again.values("ddlbench_resumed")


# The case batch-norm reads with DALI, whose place in the data is its own; once is enough. It is the
# daily test.
@pytest.mark.more
@pytest.mark.parametrize(("framework", "case"), [*on_two("demo", daily=()), ("ddp", "batch-norm")])
def test_a_rank_is_killed_at_a_random_step(tmp_path, data, run, framework, case):
    undisturbed = run(case, framework, 2)
    folder = tmp_path / undisturbed.spec.id
    step = random.SystemRandom().randrange(1, undisturbed.steps["step"].nunique())
    died = killed(undisturbed.spec, folder, data, 1, step)
    assert died.code not in (0, notes.STOPPED), f"step {step}"
    assert died.took_s < ENDS_WITHIN_S * shared()
    assert_gone(died.marker)
    assert (died.failure["cause"], died.failure["rank"]) == ("killed", 1), (
        f"step {step}: {died.output}"
    )
    resumed = assert_goes_on(undisturbed, folder, data, checkpoint_minutes=OFTEN)
    # Ranks agree for the first time after their first step: killed within the second, there may be
    # no checkpoint yet.
    assert resumed or step == 1
    assert all(1 <= at["step"] <= step for at in resumed)


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "case"), [*on_two("demo", daily=()), ("ddp", "own")])
def test_a_study_interrupts_a_run(tmp_path, data, run, framework, case):
    """All ranks are killed after five of six steps, and the same call goes on from the checkpoint
    after the first epoch: two of its three steps would have been half, and before an epoch's last
    step nothing is written.
    """
    undisturbed = run(case, framework, 2)
    spec = replace(undisturbed.spec, interrupt_steps=5)
    again = launches.execute(spec, tmp_path / spec.id, data)
    assert again.code == 0, again.output
    # The user's own model has epochs of five steps: the checkpoint is of the half of its first one.
    assert [at["step"] for at in again.values("ddlbench_resumed")] == [2 if case == "own" else 3]
    (note,) = again.values("ddlbench_interrupted")
    assert note["step"] == 5
    assert 0 < note["checkpoint_s"] < ENDS_WITHIN_S
    assert_as_undisturbed(again, undisturbed)
    assert not list(again.folder.glob(".*"))
    assert not (again.folder / "failed").exists()


# What only a run's own checkpoint holds together: states of several kinds, of which other ranks
# leave out what is as rank 0's. Engines alone are resumed in test_frameworks.py.
OF_DEEPSPEED = {
    "1-bit-lamb": ({"compression": "1-bit-lamb", "freeze_step": 2}, "lamb", {}),
    "0/1-adam": ({"compression": "0/1-adam", "freeze_step": 2}, "adamw", {}),
    "dropping": (
        {"progressive_layer_dropping": True, "layer_dropping_gamma": 0.5},
        "adamw",
        {"accumulation": 2},
    ),
    "offload-3": ({"zero_stage": 3, "offload": "parameters"}, "adamw", {"accumulation": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", OF_DEEPSPEED)
def test_what_deepspeed_alone_keeps_goes_on(tmp_path, data, variant):
    """A small vision transformer, killed after five of six steps; it goes on from step 3, when bits
    are sent.
    """
    options, optimizer, more = OF_DEEPSPEED[variant]
    plain = launches.spec_of("demo", "deepspeed", 2)
    recipe = replace(
        plain.recipe,
        optimizer=optimizer,
        base_lr=1e-3,
        accumulation=1,
        clip_norm=None,
        precision="fp32",
    )
    spec = replace(
        plain,
        model="test_vit",
        recipe=replace(recipe, **more),
        options=tuple(sorted(options.items())),
    )
    spec = replace(spec, options=(("framework", "deepspeed"), *spec.options))
    launches.need(spec)
    undisturbed = launches.execute(spec, tmp_path / "undisturbed" / spec.id, data)
    assert undisturbed.code == 0, undisturbed.output
    again = launches.execute(replace(spec, interrupt_steps=5), tmp_path / "killed" / spec.id, data)
    assert again.code == 0, again.output
    assert [at["step"] for at in again.values("ddlbench_resumed")] == [3]
    assert_as_undisturbed(again, undisturbed)


@pytest.mark.slow
def test_a_rank_that_has_no_image_left_had_the_same_one_before(tmp_path, data, run):
    """In an epoch's last step, where rank 1 is killed, it takes part with what it had last: in its
    batch norm too.
    """
    undisturbed = run("none-left", "ddp", 2)
    folder, last = (
        tmp_path / undisturbed.spec.id,
        int(undisturbed.steps.query("epoch == 0")["step"].max()),
    )
    died = killed(undisturbed.spec, folder, data, 1, last)
    assert died.failure["cause"] == "killed", died.output
    assert assert_goes_on(undisturbed, folder, data, checkpoint_minutes=OFTEN)


@pytest.mark.more
@pytest.mark.parametrize(
    ("framework", "number"), [*on_two(signal.SIGUSR1, daily=()), ("ddp", signal.SIGTERM)]
)
def test_told_to_stop(tmp_path, data, run, framework, number):
    """SIGUSR1 is SLURM's warning before the time limit. SIGTERM is a pre-empted job's, to every
    process of the step: to the loaders' workers too.
    """
    undisturbed = run("demo", framework, 2)
    spec, folder = undisturbed.spec, tmp_path / undisturbed.spec.id
    process, marker = launches.start(spec, folder, data, environment=SLOWLY)
    log = folder / ".partial" / "run.mllog"
    while not (log.is_file() and "epoch_start" in log.read_text(errors="replace")):
        assert process.poll() is None, "the run ended before"
        time.sleep(0.05)
    time.sleep(0.5)
    if number == signal.SIGTERM:
        step = [pid for pid, command in launches.survivors(marker).items() if " -m " not in command]
        assert len(step) > spec.workers
        for pid in step:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    else:
        process.send_signal(number)
    stopped = launches.finish(spec, folder, process, marker)
    assert stopped.code == notes.STOPPED, stopped.output
    assert_gone(marker)
    assert not (folder / "failed").exists()
    assert len(assert_goes_on(undisturbed, folder, data)) == 1


def test_the_supervisor_is_killed(tmp_path, data, run):
    """kill -9 of what watches the ranks: they end on their own, or the next try ends them."""
    undisturbed = run("demo", "ddp", 2)
    spec, folder = undisturbed.spec, tmp_path / undisturbed.spec.id
    process, marker = launches.start(
        spec, folder, data, environment=SLOWLY, checkpoint_minutes=OFTEN
    )
    while not list(folder.glob(".partial/checkpoint/0*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert assert_goes_on(undisturbed, folder, data, checkpoint_minutes=OFTEN)
    for pid in launches.survivors(marker):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        pytest.fail("a rank of the killed supervisor is still there")


@pytest.mark.slow
def test_another_recipe_does_not_go_on_from_this_ones_checkpoint(tmp_path, data, run):
    undisturbed = run("plain", "ddp", 2)
    folder = tmp_path / undisturbed.spec.id
    killed(run("demo", "ddp", 2).spec, folder, data, 0, 4)
    assert list((folder / "failed").glob("checkpoint/0*"))
    assert assert_goes_on(undisturbed, folder, data) == []
