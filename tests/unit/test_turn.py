"""Timed runs of one computer take turns, whichever study or terminal they are of."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ddlbench.run import turn

from tests.conftest import PATHS

TAKES = """
import sys, time
from ddlbench.run.turn import turn
with turn(sys.argv[1], timed=sys.argv[2] == "timed"):
    print("has it", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(turn.FOLDER, str(tmp_path / "turns"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path / "turns"


def taking(what: str, kind: str = "timed", **environment: str) -> subprocess.Popen[str]:
    """A process that takes its turn, says so, and ends when it is told to."""
    return subprocess.Popen(
        [sys.executable, "-c", TAKES, what, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | PATHS | environment,
    )


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_waits_and_says_for_whom_until_the_first_was_killed() -> None:
    first = taking("run-a")
    assert heard(first) == "has it"
    second = taking("run-b")
    assert second.stderr is not None
    said = second.stderr.readline()
    assert "run-b" in said and "run-a" in said and str(first.pid) in said
    assert turn.holder() == {"pid": first.pid, "what": "run-a", "where": str(Path.cwd())}
    first.send_signal(signal.SIGKILL)
    assert heard(second) == "has it"
    assert turn.holder()["pid"] == second.pid
    assert second.communicate("\n")[1] == "" and second.returncode == 0
    first.communicate()
    assert turn.holder() == {}


@pytest.mark.parametrize(
    ("kind", "environment"),
    [("untimed", {}), ("timed", {"SLURM_JOB_ID": "7"}), ("timed", {turn.FOLDER: ""})],
    ids=["untimed", "a job of SLURM", "switched off"],
)
def test_others_do_not_wait(kind: str, environment: dict[str, str]) -> None:
    with turn.turn("run-a"):
        second = taking("run-b", kind, **environment)
        assert heard(second) == "has it"
        assert second.communicate("\n")[1] == ""


def test_a_place_where_nothing_can_be_written_keeps_no_run_from_training(
    locks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locks.write_text("a file, and no folder")
    with turn.turn("run-a"):
        assert turn.holder() == {}
    assert "run-a" in capsys.readouterr().err
