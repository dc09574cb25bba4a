"""The screen about a study while it runs: states from files and squeue, and when all will be done."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.commands import status
from ddlbench.core import living
from ddlbench.plan import bill, first_guess
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.run import hold, survivors
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Partition
from ddlbench.settings.study import load_study

from tests.specs import LAPTOP

IMAGES = {"mnist5k": 4000}
NOW = 1_800_000_000.0


def small() -> Plan:
    plan = make_plan(load_study("demo"), LAPTOP, None, IMAGES)
    # Their data is of no interest here.
    return replace(plan, runs={run: replace(job, manifest=None) for run, job in list(plan.runs.items())[:4]})


def screen(plan: Plan, results: Path, limit: float | None = None) -> str:
    rows = [
        replace(row, wall_s=60.0, wall_s_low=50.0, wall_s_high=90.0, gpu_hours=0.5, gpu_hours_low=0.4, gpu_hours_high=1)
        for row in bill.rows(replace(plan, blocks={"all": tuple(plan.runs)}), IMAGES, results)
    ]
    # A record of two empty files will do here; whether records are whole is not the screen's to say.
    rows = [replace(row, state="done") if (results / "runs" / row.run / "run.mllog").exists() else row for row in rows]
    states, trouble = status.now(plan, rows, results, results)
    return "\n".join(status.lines(plan, rows, states, results, limit, trouble, lambda: NOW))


def begin(folder: Path, epochs: int = 1) -> None:
    (folder / ".partial").mkdir(parents=True)
    (folder / ".partial/assignment.json").write_text("{}")
    os.utime(folder / ".partial/assignment.json", (NOW - 40, NOW - 40))
    (folder / ".partial/run.mllog").write_text(':::MLLOG {"key": "epoch_stop"}\n' * epochs)


def test_a_screen_of_a_study_that_runs_here(tmp_path: Path) -> None:
    plan = small()
    done, running, failed, stopped = plan.runs
    (tmp_path / "runs" / done).mkdir(parents=True)
    for name in ("run.mllog", "steps.parquet"):
        (tmp_path / "runs" / done / name).touch()
    begin(tmp_path / "runs" / running)
    (tmp_path / "runs" / running / hold.HOLDER).write_text(json.dumps(asdict(living.myself())))
    (tmp_path / "runs" / failed / "failed").mkdir(parents=True)
    (tmp_path / "runs" / failed / "failed/failure.json").write_text('{"cause": "out of memory"}')
    begin(tmp_path / "runs" / stopped)
    text = screen(plan, tmp_path, 2.0)
    assert "4 runs: 1 done, 1 running, 1 waiting, 1 failed" in text
    epochs = plan.runs[running].spec.epochs
    assert f"  running {running}: epoch {min(2, epochs)} of {epochs}, process {os.getpid()}" in text
    assert f"  failed  {failed}: out of memory" in text
    assert f"  waiting {stopped}: was stopped" in text
    # 20 s of the one that runs, 60 s of the other; 10 and 50, 50 and 90.
    ends = [status.datetime.fromtimestamp(NOW + s).strftime("%Y-%m-%d %H:%M") for s in (80, 60, 140)]
    assert f"expected end: {ends[0]} ({ends[1]} to {ends[2]}), one run after another" in text
    assert "0.5 used by finished runs, 1 for the others (0.8 to 2), of which 0.0111 are used; max_gpu_hours: 2" in text
    # Who held it has died: it runs no longer.
    dead = asdict(living.myself()) | {"born": "long ago"}
    (tmp_path / "runs" / running / hold.HOLDER).write_text(json.dumps(dead))
    assert "1 done, 0 running, 2 waiting, 1 failed" in screen(plan, tmp_path)


def test_a_queue_says_what_runs_and_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small()
    plan = replace(plan, machine=replace(LAPTOP, partitions=(Partition("gpu", 1, 60),)))
    first, second, third, _ = plan.runs
    asked: list[Any] = []

    def jobs(comments: set[str], folder: Path) -> list[survivors.SlurmJob]:
        asked.append((comments, folder))
        return [
            survivors.SlurmJob("7", "RUNNING", "None", f"rule_train_wildcards_{first}"),
            survivors.SlurmJob("8", "PENDING", "Priority", f"rule_train_wildcards_{second}"),
            survivors.SlurmJob("9", "PENDING", "JobHeldUser", f"rule_train_wildcards_{third}"),
        ]

    monkeypatch.setattr(survivors, "slurm_jobs", jobs)
    begin(tmp_path / "runs" / first, epochs=0)
    text = screen(plan, tmp_path)
    assert "4 runs: 0 done, 1 running, 3 waiting, 0 failed" in text
    assert f"  running {first}: epoch 1 of {plan.runs[first].spec.epochs}, SLURM job 7" in text
    assert (
        f"  waiting {third}: SLURM job 9 is held (JobHeldUser) and will not start; to let it: scontrol release 9"
        in text
    )
    assert "  waiting " + second not in text  # it waits as all do
    assert "  queue   2 of 3 that wait have a SLURM job: 1 Priority, 1 JobHeldUser\n" in text
    assert "if the queue goes on giving 1 node" in text
    assert len(asked) == 1  # SLURM is asked once

    def silent(comments: set[str], folder: Path) -> list[survivors.SlurmJob]:
        raise ConfigError("SLURM does not answer, try again later")

    monkeypatch.setattr(survivors, "slurm_jobs", silent)
    assert screen(plan, tmp_path).splitlines()[3] == "squeue: SLURM does not answer, try again later"


def test_an_end_that_nobody_knows_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_guess, "operations", lambda model: None)
    plan = small()
    assert "expected end: nothing runs" in screen(plan, tmp_path)
    rows = bill.rows(replace(plan, blocks={"all": tuple(plan.runs)}), IMAGES, tmp_path)
    states = {row.run: status.Now(status.RUNNING) for row in rows}
    text = "\n".join(status.lines(plan, rows, states, tmp_path, None))
    assert "expected end: nobody knows how long 4 of the runs take" in text
    assert "? for the others" in text
