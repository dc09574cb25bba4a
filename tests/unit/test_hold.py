"""Who holds a run's folder, which jobs a killed Snakemake left, and what becomes of both."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import files, living
from ddlbench.run import hold, survivors
from ddlbench.settings.config import ConfigError

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


def test_only_jobs_of_this_folder_that_make_what_is_planned_count(tmp_path: Path, command: Any) -> None:
    lines = [
        f"1|RUNNING|None|{tmp_path}|rule_train_wildcards_a-r1",
        f"2|PENDING|Resources|{tmp_path}|rule_train_wildcards_b-r1",
        f"3|RUNNING|None|{tmp_path}|rule_train_wildcards_of-another-study",
        "4|RUNNING|None|/elsewhere|rule_train_wildcards_a-r1",
        f"5|RUNNING|None|{tmp_path}|(null)",
    ]
    command("squeue", "cat <<'END'\n" + "\n".join(lines) + "\nEND")
    found = survivors.slurm_jobs({"rule_train_wildcards_a-r1", "rule_train_wildcards_b-r1"}, tmp_path)
    assert [(job.id, job.state) for job in found] == [("1", "RUNNING"), ("2", "PENDING")]


def test_they_are_waited_for(tmp_path: Path, command: Any, capsys: Any) -> None:
    line = f"7|RUNNING|None|{tmp_path}|rule_train_wildcards_a"
    command("squeue", f'cd {tmp_path}; [ "$(ls calls* | wc -l)" = 3 ] || {{ touch calls$$; echo "{line}"; }}')
    survivors.wait({"rule_train_wildcards_a"}, tmp_path, every_s=0)
    said = capsys.readouterr().err
    assert "waiting for 1 SLURM jobs" in said and "scancel 7" in said
    assert said.count("7 running: rule_train_wildcards_a") == 1
    assert "these jobs have ended" in said


def test_a_held_job_is_called_held(tmp_path: Path, command: Any, capsys: Any) -> None:
    """It would be waited for in vain."""
    line = f"7|PENDING|JobHeldUser|{tmp_path}|rule_train_wildcards_a"
    command("squeue", f'cd {tmp_path}; [ -e called ] || {{ touch called; echo "{line}"; }}')
    survivors.wait({"rule_train_wildcards_a"}, tmp_path, every_s=0)
    said = capsys.readouterr().err
    assert "7 pending: rule_train_wildcards_a: it is held (JobHeldUser) and will not start" in said
    assert "scontrol release 7" in said


def test_the_users_settings_of_squeue_hide_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """SQUEUE_STATES would; and without --all, those in hidden partitions are left out."""
    line = f"7|RUNNING|None|{tmp_path}|rule_train_wildcards_a"
    command("squeue", f'case " $* " in *" --all "*) [ -n "$SQUEUE_STATES" ] || echo "{line}";; esac')
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    assert [job.id for job in survivors.slurm_jobs({"rule_train_wildcards_a"}, tmp_path)] == ["7"]


def test_a_folder_may_have_a_hostile_name(tmp_path: Path, command: Any) -> None:
    folder = tmp_path / "a|b c"
    folder.mkdir()
    command("squeue", f"echo '7|RUNNING|None|{folder}|rule_train_wildcards_a'")
    assert [job.id for job in survivors.slurm_jobs({"rule_train_wildcards_a"}, folder)] == ["7"]


def test_nothing_is_submitted_while_slurm_does_not_answer(tmp_path: Path, command: Any) -> None:
    command("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ConfigError, match="try again later: Unable to contact slurm controller"):
        survivors.slurm_jobs({"x"}, tmp_path)


DEAD = living.Process(living.myself().host, 2**22 - 1, "then", "")
ELSEWHERE = living.Process("elsewhere", 1, "then", "")


def test_a_mark_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    with files.aside(tmp_path / "marks" / "other-7.json") as hidden:
        hidden.parent.mkdir()
        hidden.write_text('{"host": ')
        assert survivors.at_work(tmp_path / "marks") == []
    assert (tmp_path / "marks" / "other-7.json").exists()


@pytest.mark.parametrize(
    ("processes", "age_s", "removed"),
    [
        ([DEAD], 0, True),
        ([living.myself()], 10**6, False),
        ([ELSEWHERE], 10, False),  # its mark was touched a moment ago
        ([ELSEWHERE], survivors.BEAT_S * survivors.MISSED_BEATS + 1, True),
        ([DEAD, ELSEWHERE], 10, False),
        ([], 0, False),  # not ours to judge
    ],
)
def test_a_lock_goes_when_nobody_lives_who_holds_it(
    tmp_path: Path, processes: list[living.Process], age_s: float, removed: bool
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    locks = tmp_path / "locks"
    locks.mkdir()
    (locks / "0.output.lock").touch()
    for number, process in enumerate(processes):
        path = marks / f"{number}.json"
        path.write_text(json.dumps(asdict(process)))
        os.utime(path, (time.time() - age_s,) * 2)
    survivors.remove_dead_lock(locks, marks)
    assert (list(locks.iterdir()) == []) is removed
