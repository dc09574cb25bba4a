"""Jobs that come late: a record that is there by then stays, and the log of who makes the run, too."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.mends import snakemake_outputs
from ddlbench.run import infer, late
from ddlbench.run.facts import facts
from snakemake.jobs import Job

from tests.unit.records import SPEC, edit_log, write_record

MADE_S = 31.5  # when `write_record`'s runs end


def made(monkeypatch: pytest.MonkeyPatch, folder: Path, spec: RunSpec = SPEC, **environment: str) -> bool:
    """Whether a job of this environment finds the run made."""
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", late.ASKED):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return late.made(folder, spec)


def test_a_record_that_was_made_meanwhile_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, after = {late.ASKED: str(MADE_S - 1)}, {late.ASKED: str(MADE_S + 1)}
    assert not made(monkeypatch, tmp_path / SPEC.id, **before)  # nothing is made yet
    folder = write_record(tmp_path)
    assert made(monkeypatch, folder, **before)
    assert not made(monkeypatch, folder, **after)  # somebody wants it again
    assert made(monkeypatch, folder)  # no Snakemake does: the job's script was submitted by hand
    assert not made(monkeypatch, folder, replace(SPEC, recipe=replace(SPEC.recipe, base_lr=9.0)), **before)
    steps = (folder / STEPS).read_bytes()
    (folder / STEPS).unlink()
    assert not made(monkeypatch, folder, **before)
    for damaged in (steps[:-1], steps + b"0"):
        (folder / STEPS).write_bytes(damaged)
        assert not made(monkeypatch, folder, **before)
    (folder / STEPS).write_bytes(steps)
    (folder / MLLOG).write_text((folder / MLLOG).read_text().replace('"value": 0.5', '"value": 0.6'))
    assert not made(monkeypatch, folder, **before)  # it is damaged


def test_only_the_job_that_was_queued_again_keeps_its_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    again = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", late.ASKED: str(MADE_S + 1)}
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    folder = write_record(tmp_path, facts=facts(SPEC, ["env"]))
    assert made(monkeypatch, folder, **again)
    assert not made(monkeypatch, folder, **again | {"SLURM_JOB_ID": "8"})  # --forcerun: another job
    assert not made(monkeypatch, folder, **again | {"SLURM_RESTART_COUNT": "0"})
    edit_log(folder, '"slurm_job_id": "7"', '"slurm_job_id": null')
    assert not made(monkeypatch, folder, **again)
    shutil.rmtree(folder)
    folder = write_record(tmp_path, status="aborted", facts=facts(SPEC, ["env"]))
    assert made(monkeypatch, folder, **again) is False


def run(folder: Path, *launcher: str, **environment: str) -> subprocess.Popen[bytes]:
    """`ddlbench.run` as rule train starts it, with what Snakemake does to the log before."""
    log = folder / "train.log"
    if log.exists():
        log.rename(late.earlier(log)) if not late.earlier(log).exists() else log.unlink()
    command = [sys.executable, "-m", "ddlbench.run", f"--folder={folder}", "--spec", SPEC.to_json(), "--", *launcher]
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | environment)


def test_a_job_that_was_submitted_twice_takes_no_log(tmp_path: Path) -> None:
    folder = tmp_path / SPEC.id
    first = run(
        folder, "sh", "-c", f"echo it trains; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo on; exit 3"
    )
    while not (folder / "train.log").exists() or "it trains" not in (folder / "train.log").read_text():
        time.sleep(0.1)
        assert first.poll() is None
    second = run(folder, "true")
    assert second.wait() == 1
    assert "it trains" in (folder / "train.log").read_text()
    (refused,) = folder.glob("refused-*.log")
    assert f"is being made by process {first.pid}" in refused.read_text()
    (tmp_path / "go").touch()
    assert first.wait() == 3
    said = (folder / "train.log").read_text()
    assert "it trains" in said and "\non\n" in said and "being made" not in said


def test_a_late_job_leaves_the_finished_record_and_its_log(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    (folder / "train.log").write_text("it trained\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for asked in ({late.ASKED: str(MADE_S - 1)}, {}):  # by a Snakemake, by hand
        assert run(folder, "false", **asked).wait() == 0
        (refused,) = folder.glob("refused-*.log")
        assert refused.read_text() == f"{SPEC.id}: is already made; that record stays\n"
        refused.unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert run(folder, "false", **{late.ASKED: str(MADE_S + 1)}).wait() == 1  # asked for anew: it is made again
    assert not (folder / MLLOG).exists() and (folder / "failed/failure.json").exists()


def test_a_job_of_inference_that_came_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "inference.json"
    record.write_text(json.dumps({"spec": {"batch": 1}}))
    for asked, spec, expected in ((1, 1, True), (1, 2, False), (-1, 1, False)):
        monkeypatch.setenv(late.ASKED, str(time.time() - 60 * asked))
        assert infer.is_made(record, {"batch": spec}) is expected


def test_snakemake_still_removes_where_it_did() -> None:
    """The two methods of Snakemake that are replaced are there, and called with the same arguments."""
    for _ in range(2):
        snakemake_outputs.mend(("train",), late.earlier, late.print_refusals)
    assert [*signature(Job.remove_existing_output).parameters] == ["self"]
    assert [*signature(Job.cleanup).parameters] == ["self", "skip_outputs"]
