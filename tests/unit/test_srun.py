"""What srun says of a step's end, in lines that SLURM 22.05 wrote here or that others have
published.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.core import notes
from ddlbench.run.cause import diagnose
from ddlbench.run.watch import WatchResult
from ddlbench.slurm import srun_messages

from tests.facts import missing

AT = "CANCELLED AT 2026-11-22T03:04:05"
ENDS = [
    ("srun: error: node1: task 0: Killed", ("killed", 0, "node1", "was killed (Killed)")),
    (
        "srun: error: node1: task 3: Segmentation fault (core dumped)",
        ("killed", 3, "node1", "(core dumped)"),
    ),
    ("srun: error: node1: task 1: Aborted", ("killed", 1, "node1", "(Aborted)")),
    (
        "srun: error: node1: tasks 0-1: Exited with exit code 3",
        ("exited", 0, "node1", "exited with exit code 3"),
    ),
    ("srun: error: nid01934: tasks 2,4-5,7: Terminated", ("killed", 2, "nid01934", "(Terminated)")),
    ("srun: error: jwb0001.juwels: task 2: Killed", ("killed", 2, "jwb0001.juwels", "(Killed)")),
    ("srun: error: node[1-2]: tasks [0-3]: Killed", ("killed", 0, None, "(Killed)")),
    # As in a run whose rank 1 was killed, with --kill-on-bad-exit.
    (
        (
            "epoch 1: ...\nsrun: error: node2: task 1: Killed\nsrun: Terminating"
            f" StepId=8.0\nslurmstepd: error: *** STEP 8.0 ON node1 {AT} ***\nsrun: error: node1:"
            " task 0: Terminated"
        ),
        ("killed", 1, "node2", "(Killed)"),
    ),
    (
        (
            "slurmstepd-node2: error: couldn't chdir to `/p/my project': No such file or directory:"
            " going to /tmp instead\npython: can't open file '/tmp/x.py'\nsrun: error: node2: task"
            " 1: Exited with exit code 2\nsrun: error: node1: task 0: Terminated"
        ),
        (
            "launcher failed",
            1,
            "node2",
            "does not see /p/my project (No such file or directory): put the project where",
        ),
    ),
    (
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=113.0. Some of the step tasks"
            " have been OOM Killed.\nsrun: error: node3: task 5: Out Of Memory"
        ),
        ("out of memory", 5, "node3", "was killed for memory"),
    ),
    (
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 375.batch cgroup.",
        ("out of memory", None, None, "Detected 2 oom-kill"),
    ),
    (
        (
            "slurmstepd-node2: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your"
            " processes may have been killed by the cgroup out-of-memory handler."
        ),
        ("out of memory", None, "node2", "oom-kill"),
    ),
    (
        (
            "slurmstepd: error: StepId=8.0 exceeded memory limit (901120 > 460800), being killed\n"
            f"slurmstepd: error: *** STEP 8.0 ON node1 {AT} ***\nsrun: error: node1: task 0: Killed"
        ),
        ("out of memory", 0, "node1", "exceeded memory limit (901120 > 460800)"),
    ),
    (
        (
            f"slurmstepd: error: *** JOB 8 ON node1 {AT} DUE TO TIME LIMIT ***\nslurmstepd: error:"
            f" *** STEP 8.0 ON node1 {AT} DUE TO TIME LIMIT ***\nsrun: error: node1: task 0:"
            " Terminated"
        ),
        ("cancelled", None, None, "SLURM cancelled the step due to time limit"),
    ),
    (
        f"slurmstepd: error: *** STEP 8.0 ON node1 {AT} DUE TO PREEMPTION ***",
        ("cancelled", None, None, "preemption"),
    ),
    (
        f"slurmstepd: error: *** STEP 8.0 ON node1 {AT} DUE TO JOB REQUEUE ***",
        ("cancelled", None, None, "requeue"),
    ),
    (
        (
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nslurmstepd:"
            f" error: *** STEP 8.0 ON node1 {AT} ***\nsrun: error: node1: tasks 0-1: Terminated"
        ),
        ("cancelled", None, None, "SLURM cancelled the step"),
    ),
    (
        (
            "srun: error: Node failure on node3\nsrun: Job step aborted: Waiting up to 32 seconds"
            f" for job step to finish.\nslurmstepd: error: *** STEP 8.0 ON node1 {AT} DUE TO NODE"
            " FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ),
        ("node failed", None, "node3", "the node failed"),
    ),
    (
        (
            "slurmstepd: error: execve(): python: No such file or directory\n"
            "srun: error: node4: task 2: Exited with exit code 2"
        ),
        ("launcher failed", 2, "node4", "cannot be started: python: No such file or directory"),
    ),
    (
        "slurmstepd-node4: error: execve(): /venv/bin/python: Permission denied",
        (
            "launcher failed",
            None,
            "node4",
            "cannot be started: /venv/bin/python: Permission denied",
        ),
    ),
    (
        (
            "srun: error: Unable to create step for job 8: Requested node configuration is not"
            " available"
        ),
        ("launcher failed", None, None, "Unable to create step for job 8"),
    ),
    (
        (
            "srun: error: Task launch for StepId=8.0 failed on node node3: Communication connection"
            " failure\nsrun: error: Application launch failed: Communication connection"
            " failure\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish."
        ),
        ("launcher failed", None, None, "failed on node node3"),
    ),
]


@pytest.mark.parametrize(("text", "told"), ENDS)
def test_what_srun_says_is_the_cause(
    tmp_path: Path, text: str, told: tuple[str, int | None, str | None, str]
) -> None:
    text = f"rank 0: loss 1.2, task 9: Killed\n{text}\nmore that the run printed\n"
    failure = diagnose(tmp_path, 8, WatchResult(code=137, printed=text))
    assert (failure["cause"], failure["rank"], failure["host"]) == told[:3]
    assert told[3] in failure["message"]
    assert (f"rank {told[1]} " in failure["message"]) is (told[1] is not None)
    assert (f"(on {told[2]})" in failure["message"]) is (told[2] is not None)
    assert len(failure["message"].splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rank 1: loss 0.3",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "said the rank: srun: error: node1: task 0: Killed",  # not at the line's beginning
        "srun: warning: can't honor --ntasks-per-node",
    ],
)
def test_what_names_nothing_is_no_cause(tmp_path: Path, text: str) -> None:
    assert srun_messages.end(text, 8) is None
    assert (
        missing(
            diagnose(tmp_path, 8, WatchResult(code=3, printed=text))["message"],
            "launcher",
            "exit code 3",
        )
        == []
    )


def test_a_task_that_is_no_rank_is_not_named() -> None:
    end = srun_messages.end("srun: error: node1: task 9: Killed", 8)
    assert end is not None and (end.rank, end.host) == (None, "node1")


def test_a_ranks_own_reason_comes_first(tmp_path: Path) -> None:
    (tmp_path / "failure-1.json").write_text(
        json.dumps({"cause": "disk full", "message": "no space", "time": 1.0})
    )
    failure = diagnose(
        tmp_path,
        2,
        WatchResult(code=1, printed="srun: error: node1: task 1: Exited with exit code 1"),
    )
    assert (failure["cause"], failure["rank"]) == ("disk full", 1)


def test_a_rank_that_lost_another_one_is_not_blamed(tmp_path: Path) -> None:
    """As it happened on two nodes with Gloo: whoever srun names first."""
    (tmp_path / "failure-0.json").write_text(
        json.dumps(
            {
                "cause": "lost another rank",
                "message": "RuntimeError: Connection closed by peer",
                "time": 1.0,
            }
        )
    )
    lines = [
        "srun: error: node2: task 1: Killed",
        "srun: launch/slurm: _step_signal: Terminating StepId=128.0",
    ]
    lines += [
        "srun: error: node1: task 0: Exited with exit code 1",
        "srun: Force Terminated StepId=128.0",
    ]
    for text in (lines, lines[::-1]):
        failure = diagnose(tmp_path, 2, WatchResult(code=137, printed="\n".join(text)))
        assert (failure["cause"], failure["rank"], failure["host"]) == ("killed", 1, "node2")


def test_the_killed_rank_of_one_is_named_with_its_host(tmp_path: Path) -> None:
    """A launcher on this machine, too, which ends before anybody looks again."""
    (tmp_path / "rank-0.json").write_text(
        json.dumps({"host": "here", "pid": 1, "started": 0.0, "local_rank": 0})
    )
    failure = diagnose(tmp_path, 1, WatchResult(code=137))
    message = failure.pop("message")
    assert failure == {"cause": "killed", "rank": 0, "host": "here"}
    assert missing(message, "rank 0", "killed", "here") == []  # fmt: skip


def test_only_what_was_written_since_counts(tmp_path: Path) -> None:
    """Read from the file that standard error goes to, as in a job; of a pipe nothing can be
    read.
    """
    program = (
        "import sys\nfrom ddlbench.slurm import srun_messages\nat = srun_messages.log_position()\n"
    )
    program += (
        "print('new', file=sys.stderr, flush=True)\nprint(repr(srun_messages.written_since(at)))"
    )
    log = tmp_path / "train.log"
    log.write_text("old\n")
    with log.open("a") as file:
        done = subprocess.run(
            [sys.executable, "-c", program], stderr=file, stdout=subprocess.PIPE, text=True
        )
    assert done.stdout == "'new\\n'\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout == "''\n"


def test_the_rank_whose_loss_was_wrong_first_is_named(tmp_path: Path) -> None:
    """Its gradients spoil the weights of all ranks: the next step is wrong everywhere, and all
    ranks say so at once.
    """
    notes.report(tmp_path, 1, notes.LossError("the loss of step 3 is nan", 3))
    notes.report(tmp_path, 0, notes.LossError("the loss of step 2 is nan", 2))
    told = diagnose(tmp_path, 2, WatchResult(code=1))
    assert (told["cause"], told["rank"]) == ("loss is not finite", 0)
