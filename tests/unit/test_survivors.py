"""What a killed Snakemake left: which SLURM jobs are waited for, and when its lock goes."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import files, living
from ddlbench.run import survivors
from ddlbench.settings.config import ConfigError


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
