"""Who holds a run's folder, and what becomes of it when the holder dies."""

import json
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import living
from ddlbench.run import hold

HERE = socket.gethostname()


def leave(folder: Path, process: living.Process) -> Path:
    """A holder's file, as a process that was killed leaves it."""
    (folder / hold.HOLDER).write_text(json.dumps(asdict(process)))
    return folder


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_nothing_is_left_of_a_process_that_ended(tmp_path: Path) -> None:
    with hold.held(tmp_path / "run"):
        assert living.read(tmp_path / "run" / hold.HOLDER) == living.myself()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_living_process_keeps_it(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from ddlbench.run.hold import held\n"
    program += "with held(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "\n"
    with pytest.raises(hold.HeldError, match=f"being made by process {other.pid} on {HERE}"), hold.held(tmp_path):
        pass
    other.kill()
    other.communicate()
    assert (tmp_path / hold.HOLDER).exists()
    with hold.held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_later_process_with_that_number_is_another(tmp_path: Path) -> None:
    with hold.held(leave(tmp_path, replace(living.myself(), born="long ago"))):
        pass


@pytest.mark.parametrize(
    ("answer", "life"),
    [
        ("echo RUNNING", True),
        ("echo COMPLETING", True),
        ("echo PENDING", False),  # queued again: nothing of it runs
        ("true", False),  # finished, and still known
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", False),  # forgotten
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", None),
    ],
)
def test_of_a_process_on_another_node_slurm_is_asked(
    tmp_path: Path, command: Any, answer: str, life: bool | None
) -> None:
    command("squeue", answer)
    assert hold.alive(living.Process("elsewhere", 1, "then", "7")) is life


def test_our_own_job_was_queued_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert hold.alive(living.Process("elsewhere", 1, "then", "7")) is False


def test_who_cannot_be_asked_about_keeps_it(tmp_path: Path) -> None:
    leave(tmp_path, living.Process("elsewhere", 1, "then", ""))
    with pytest.raises(hold.HeldError, match=f"if it does not, remove {tmp_path / hold.HOLDER}"), hold.held(tmp_path):
        pass


def test_a_file_that_was_cut_off_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / hold.HOLDER).write_text('{"host": ')
    with hold.held(tmp_path):
        pass
