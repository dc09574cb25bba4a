"""A SLURM job that had made its run and was queued again keeps the record; a new job makes the run again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench import layout
from ddlbench.run import requeued
from ddlbench.run.facts import facts
from ddlbench.spec import RunSpec

from tests.unit.records import SPEC, write_record

LAUNCH = ["env"]


def end(monkeypatch: pytest.MonkeyPatch, spec: RunSpec = SPEC, **environment: str) -> bool:
    """Whether a job's Snakemake ends at once."""
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        requeued.end_if_finished(SPEC.id, spec)
    except SystemExit as ended:
        assert ended.code == 0
        return True
    return False


def test_only_the_job_that_made_it_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    again = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    assert not end(monkeypatch, **again)  # nothing is made yet
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    folder = write_record(Path(layout.run("x")).parent, facts=facts(SPEC, LAUNCH))
    assert folder == Path(layout.run(SPEC.id))
    assert end(monkeypatch, **again)
    assert "this job had made it before it was queued again" in capsys.readouterr().err
    assert not end(monkeypatch, **again | {"SLURM_JOB_ID": "8"})  # --forcerun: another job
    assert not end(monkeypatch, SLURM_JOB_ID="7")  # not queued again
    assert not end(monkeypatch, SLURM_JOB_ID="7", SLURM_RESTART_COUNT="0")
    assert not end(monkeypatch)
    assert not end(monkeypatch, replace(SPEC, recipe=replace(SPEC.recipe, base_lr=9.0)), **again)
    (folder / "steps.parquet").unlink()
    assert not end(monkeypatch, **again)


def test_a_record_without_an_end_or_of_an_older_version_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    again = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    folder = write_record(Path(layout.run("x")).parent)  # says no job
    assert not end(monkeypatch, **again)
    shutil.rmtree(folder)
    told = facts(SPEC, LAUNCH)
    assert json.loads(json.dumps(told))["slurm_job_id"] == "7"
    write_record(Path(layout.run("x")).parent, status="aborted", facts=told)
    assert not end(monkeypatch, **again)
