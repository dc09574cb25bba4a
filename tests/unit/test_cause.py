"""Why a run failed: what ended a rank, in words that tables can count, and what Snakemake says of
it first.
"""

import json
import logging
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.analysis import failures
from ddlbench.core import living, notes
from ddlbench.plan import stale
from ddlbench.run import hold, reason
from ddlbench.run.cause import diagnose
from ddlbench.run.reason import ReasonFirst
from ddlbench.run.watch import WatchResult
from snakemake.logging import DefaultFormatter
from snakemake_interface_logger_plugins.common import LogEvent

from tests.facts import missing


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (notes.LossError("the loss of step 3 is nan", 3), "loss is not finite"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (OSError(28, "No space left on device"), "disk full"),
        (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1234"), "lost another rank"),
        # A launcher that ends all processes of the other ranks (srun): a rank in its backward pass
        # hears of its loader's first.
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated. "),
            "lost another rank",
        ),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "exception"),
        (SystemExit("ended by its launcher (SIGTERM)"), "lost another rank"),
        (ValueError("no such thing"), "exception"),
    ],
)
def test_cause(error: BaseException, cause: str) -> None:
    assert notes.cause(error) == cause


def test_what_comes_of_a_full_disk_is_its_cause() -> None:
    """PyTorch's writer says something else when the file under it cannot be written."""
    with pytest.raises(RuntimeError) as caught:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise RuntimeError(
                "[enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598"
            ) from error
    assert notes.cause(caught.value) == "disk full"


GLOO = RuntimeError(
    "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 120000ms for recv operation"
)
HOROVOD = RuntimeError(
    "Horovod has been shut down. This was caused by an exception on one of the ranks"
)
# One line of PyTorch's of each rank that waited, which it then aborts.
NCCL = (
    "[rank{0}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective"
    " operation timeout: W"
)
ABORTED = "\nsrun: error: node1: tasks 0,2: Aborted\n"


@pytest.mark.parametrize(
    ("failed", "said", "absent"),
    [
        ({0: GLOO, 2: GLOO}, "", "rank 1 did"),
        ({2: GLOO}, "", "ranks 0, 1 did"),
        ({0: GLOO, 1: GLOO, 2: GLOO}, "", "all ranks waited for each other"),
        (
            {0: TimeoutError("timed out waiting 120 s for other ranks"), 2: HOROVOD},
            "",
            "rank 1 did",
        ),
        ({}, NCCL.format(0) + "\n" + NCCL.format(2), "rank 1 did"),
        ({}, NCCL.format(0) + "\n" + NCCL.format(2) + ABORTED, "rank 1 did"),
        # Reasons of their own come first.
        ({0: HOROVOD, 2: HOROVOD}, "", None),
        ({0: GLOO, 1: ValueError("no such thing"), 2: GLOO}, "", None),
        ({0: GLOO, 2: GLOO}, "srun: error: Node failure on node2\n", None),
    ],
)
def test_who_did_not_come_to_a_collective(
    tmp_path: Path, failed: dict[int, Exception], said: str, absent: str | None
) -> None:
    for rank, error in failed.items():
        notes.report(tmp_path, rank, error)
    told = diagnose(
        tmp_path, 3, WatchResult(code=1, printed=said, gone=[0, 2] if not failed else [])
    )
    hung = " for as long as ranks wait (start_timeout_s in the machine's file)"
    assert (hung in told["message"]) == (absent is not None)
    if absent:
        assert told["message"].startswith(absent) and told["cause"] == "stopped answering"
        assert told["rank"] == next(iter(map(int, re.findall(r"\d", absent))), None)


def test_of_several_causes_the_first_in_the_list_is_said(tmp_path: Path) -> None:
    """Each is taken away in turn, and the next one is said."""
    seen = WatchResult(
        code=1, damaged=["a file"], silent={0: "did not answer"}, signal=15, gone=[1]
    )
    notes.report(tmp_path, 2, ValueError("no such thing"))
    found = [diagnose(tmp_path, 3, seen)["cause"]]
    for change in ({"damaged": []}, {"silent": {}}):
        seen = replace(seen, **change)
        found.append(diagnose(tmp_path, 3, seen)["cause"])
    for note in tmp_path.glob("failure-*.json"):
        note.unlink()
    for change in ({}, {"signal": None}, {"gone": []}):
        seen = replace(seen, **change)
        found.append(diagnose(tmp_path, 3, seen)["cause"])
    expected = [
        "data damaged",
        "stopped answering",
        "exception",
        "ended by a signal",
        "killed",
        "launcher failed",
    ]
    assert found == expected


@pytest.mark.parametrize("first", [0, 1])
def test_of_ranks_that_failed_the_first_one_is_said(tmp_path: Path, first: int) -> None:
    """Whatever its number is."""
    for rank in (0, 1):
        notes.report(tmp_path, rank, ValueError("no such thing"))
        note = tmp_path / f"failure-{rank}.json"
        at_s = 1e9 if rank == first else 1e9 + 5
        note.write_text(json.dumps(json.loads(note.read_text()) | {"time": at_s}))
    assert diagnose(tmp_path, 2, WatchResult(code=1))["rank"] == first


SPEC = "x" * 1500


def said(
    folder: Path,
    rule: str = "train",
    message: str | None = None,
    by: ReasonFirst | None = None,
    cause: str = "",
) -> str | None:
    """How Snakemake prints the error of a rule's job in this folder; None if it is dropped."""
    about: dict[str, Any] = {
        "rule_name": rule,
        "rule_msg": message,
        "jobid": 3,
        "input": [],
        "indent": False,
    }
    about |= {"output": [f"{folder}/run.mllog"], "log": [f"{folder}/train.log"], "conda_env": None}
    about |= {"by": by, "aux": {"cause": cause} if cause else {}}
    about |= {"shellcmd": f"python -m ddlbench.run --spec '{SPEC}'", "event": LogEvent.JOB_ERROR}
    return printed("Error in rule", **about)


def printed(text: str, by: ReasonFirst | None = None, **about: Any) -> str | None:
    record = logging.makeLogRecord({"msg": text, "levelno": logging.ERROR, **about})
    return (
        DefaultFormatter(quiet=None).format(record)
        if (by or ReasonFirst()).filter(record)
        else None
    )


def failed(folder: Path, when: float | str) -> Path:
    (folder / "failed").mkdir(parents=True)
    report = {
        "cause": "loss is not finite",
        "message": "Traceback\nrank 0: loss is not finite",
        "time": when,
    }
    (folder / "failed/failure.json").write_text(json.dumps(report))
    return folder


def test_the_reason_comes_first_and_a_file_stands_for_the_command(tmp_path: Path) -> None:
    folder = failed(tmp_path / "mini-r1", 4e9)
    text = said(folder, message="SLURM-job '7' failed.")
    assert text is not None
    lines = text.splitlines()[1:]  # the time goes first
    assert lines[:3] == [
        "Error in rule train:",
        "    message: mini-r1: rank 0: loss is not finite",
        "    SLURM-job '7' failed.",
    ]
    assert any(missing(line, "command: ", f"{folder}/train.log") == [] for line in lines)
    assert SPEC not in text
    alone = said(folder)
    assert alone is not None
    assert "    message: mini-r1: rank 0: loss is not finite\n    jobid" in alone


def started(folder: Path) -> ReasonFirst:
    """Our filter, which has heard that the job of this folder was started."""
    by = ReasonFirst()
    by.filter(logging.makeLogRecord({"rule_name": "train", "output": [f"{folder}/run.mllog"]}))
    return by


def told(folder: Path) -> dict[str, Any]:
    """The row of `ddlbench failures` about this folder, and what the terminal says of the job."""
    row: dict[str, Any]
    (row,) = failures.failures([folder])
    assert reason.end_of(folder) == (True, failures.why(row))
    return row


def test_the_reason_of_an_earlier_try_is_not_said(tmp_path: Path) -> None:
    """SLURM did not take the job, or it ended before its run began; whatever the clocks of nodes
    say.
    """
    folder = failed(tmp_path / "mini-r1", 4e9)
    text = said(
        folder, message="invalid partition: x", by=started(folder), cause="refused by SLURM"
    )
    assert text is not None
    assert "not finite" not in text and SPEC not in text and "cause:" not in text
    assert told(folder)["cause"] == "refused by SLURM"
    assert told(folder)["message"] == "invalid partition: x"


def test_a_supervisor_that_was_killed_is_said(tmp_path: Path) -> None:
    """Without a word of its own; it left its mark, and what it printed."""
    folder = tmp_path / "mini-r1"
    (folder / ".partial").mkdir(parents=True)
    (folder / "train.log").write_text("step 7\n")
    by = started(folder)
    dead = living.Process(living.myself().host, 2**22 - 1, "then")
    (folder / hold.HOLDER).write_text(json.dumps(asdict(dead)))
    assert "step 7" in str(said(folder, by=by))
    assert told(folder)["cause"] == "killed"
    assert stale.unfinished(folder)[0] == stale.FAILED


def test_a_job_that_another_makes_or_that_was_stopped_has_not_failed(tmp_path: Path) -> None:
    at_work, stopped, made = (tmp_path / name for name in ("work", "stopped", "made"))
    for folder in (at_work, stopped, made):
        by = started(folder)
        (folder / ".partial").mkdir(parents=True)
        if folder == at_work:
            (folder / hold.HOLDER).write_text(json.dumps(asdict(living.myself())))
        elif folder == stopped:
            (folder / ".partial/stopped").touch()
        else:
            (folder / "run.mllog").touch()
        said(folder, by=by)
        assert failures.failures([folder]) == []
        assert not reason.end_of(folder).failed


def test_a_run_that_is_asked_for_again_and_refused_has_failed(tmp_path: Path) -> None:
    """Though its earlier record is there."""
    folder = tmp_path / "mini-r1"
    folder.mkdir()
    (folder / "run.mllog").touch()
    os.utime(folder / "run.mllog", (1, 1))
    said(folder, message="invalid partition: x", by=started(folder), cause="refused by SLURM")
    assert told(folder)["cause"] == "refused by SLURM"


def test_what_left_no_reason_and_other_rules_are_said_as_ever(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    assert "message: gone: SLURM is\n" in str(said(tmp_path / "gone", message="SLURM is"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.log").write_text("Traceback\nImportError: no module a\n")
    assert "    message: run: ImportError: no module a\n    jobid" in str(said(tmp_path / "run"))
    assert told(tmp_path / "run")["cause"] == "did not begin"
    assert SPEC in str(said(tmp_path, rule="prepare"))
    assert printed(f"CalledProcessError\nCommand 'python -m ddlbench.run --spec {SPEC}'") is None
    assert printed("CalledProcessError\nCommand 'python -m ddlbench.prepare'") is not None
    assert printed("MissingInputException") is not None
