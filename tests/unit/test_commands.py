"""The commands: what they read as Snakemake does, what they answer, their exit codes, and in one
line what is wrong.
"""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
from ddlbench.analysis import claim_verdicts
from ddlbench.commands import checks, configuration, main, of_study, snakefile, status
from ddlbench.core import gone, layout, living
from ddlbench.core.files import write_text
from ddlbench.plan import bill, first_guess, stale
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.run import hold, survivors
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Partition
from ddlbench.settings.study import load_study
from ddlbench.settings.workflow import check_config

from tests.builders.machines import LAPTOP
from tests.builders.records import write_record
from tests.conftest import ROOT
from tests.facts import missing
from tests.unit.spoiled import bad_input

SETTINGS = """
study: {study}
machine: workstation
checkpoint: {{minutes: 7}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project's configuration and profiles, in which nothing was made."""
    for name in ("config", "profiles"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    return tmp_path


def ended(*arguments: str) -> Any:
    """The exit code of a command, or its last line."""
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    return end.value.code


def test_the_configuration_is_snakemakes(here: Path) -> None:
    read = configuration.of_command_line
    assert read(None, []) | {"data": 0} == {"study": "demo", "machine": "local", "data": 0}
    assert (
        read("profiles/juwels", [])["machine"] == "juwels-booster"
    )  # which YTE makes of two files
    (here / "mine").mkdir()
    (here / "mine/config.yaml").write_text("configfile: mine/over.yaml\nconfig: {account: a}\n")
    (here / "mine/over.yaml").write_text(SETTINGS.format(study="frameworks"))
    mine = {
        "study": "frameworks",
        "machine": "workstation",
        "checkpoint": {"minutes": 7},
        "account": "a",
    }
    assert read("mine", []) == mine
    config = read("mine", ["study=demo", "checkpoint={silent: x}", "max_gpu_hours=1e3", "account="])
    assert config["study"] == "demo"
    assert config["checkpoint"] == {"minutes": 7, "silent": "x"}
    assert (config["max_gpu_hours"], config["account"]) == (1000.0, None)
    assert read("mine", ["study=demo"])["machine"] == "workstation" and "account" not in read(
        "mine", ["study=demo"]
    )


def test_values_are_what_snakemake_takes_them_for(here: Path) -> None:
    from snakemake.cli import parse_config

    entries = ["aa=1", "bb=1.5", "cc=True", "dd=no", "ee='x y'"]
    entries += ["ff=", "gg={a: [1, b]}", "hh=[", "ii=1e3", "jj=2024-13-45"]
    ours = configuration.of_command_line(None, entries)
    assert {key: ours[key] for key in parse_config(entries)} == parse_config(entries)


@pytest.mark.parametrize(("arguments", "facts"), bad_input("command"))
def test_what_people_get_wrong_is_one_line(
    here: Path, arguments: str, facts: tuple[str, ...]
) -> None:
    written = {
        "broken": "a: [",
        "odd": "configfile: odd/settings.yaml",
        "listed": "configfile: listed.yaml",
    }
    for name, text in written.items():
        (here / name).mkdir()
        (here / name / "config.yaml").write_text(text)
    (here / "listed.yaml").write_text("[1]\n")
    line = ended("plan", *arguments.split())
    assert missing(line, *facts) == [] and "\n" not in line


def test_a_command_that_is_none_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.main(["plna"])
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert missing(line, "plna: ", "plan?", "answer", "audit") == []


def test_elsewhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended("status").startswith("config/config.yaml: ")


def test_a_folder_that_may_not_be_written_is_one_line(here: Path) -> None:
    (here / "results").touch()
    assert re.search("^results.*: (Not a directory|File exists)", ended("plan"))


def test_a_plan_is_a_table_a_text_and_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        ended("plan", "--profile", "profiles/slurm", "--study", "demo", "--machine", "local") == 0
    )
    text = capsys.readouterr().out
    *lines, line = text.splitlines(keepends=True)
    assert line.endswith("snakemake --profile profiles/slurm --config study=demo machine=local\n")
    assert (here / "results/demo/local/tables/plan.txt").read_text() == "".join(lines)
    assert len((here / "results/demo/local/tables/plan.csv").read_text().splitlines()) == 28
    assert ended("plan", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 27 and {row["state"] for row in rows} == {"missing"}


def test_status_and_failures(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = configuration.read(configuration.of_command_line(None, [])).plan
    failed, stopped, *_ = plan.runs
    Path(layout.run(stopped), ".partial").mkdir(parents=True)
    left = Path(layout.run(failed), "failed")
    left.mkdir(parents=True)
    (left / "failure.json").write_text('{"cause": "out of memory", "message": "rank 0: no room"}')
    assert ended("status", "--json") == 0
    rows = {row["run"]: row for row in json.loads(capsys.readouterr().out)["runs"]}
    assert (rows[failed]["state"], rows[stopped]["words"], len(rows)) == (
        "failed",
        "was stopped",
        27,
    )
    assert ended("failures", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["cause"]) == (failed, "out of memory")
    with monkeypatch.context() as full:
        full.setattr(
            pd.DataFrame,
            "to_csv",
            Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")),
        )
        why = ended("failures")
    assert missing(why, "results/demo/local/tables/failures.csv: ", "No space left") == []
    assert (
        f"{failed}: rank 0: no room" in capsys.readouterr().out
    )  # though there is no room for the table
    assert ended("failures") == 0
    assert (here / "results/demo/local/tables/failures.csv").exists()


def test_work_is_named_while_there_is_some(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = configuration.read(configuration.of_command_line(None, [])).plan
    made = [job.outputs()[0] for job in plan.jobs.values()]
    for path in (*made, Path(layout.page(plan.home))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert ended("failures") == 0 and "snakemake" not in capsys.readouterr().out
    study = Path(snakefile.written(plan)[0])
    for remembers, works in ((None, True), (snakefile.said(plan), False), ("other", True)):
        os.utime(
            study, (time.time() + 9, time.time() + 9)
        )  # checked out anew; Snakemake remembers what it said
        notes = Path(".snakemake/metadata")
        notes.mkdir(parents=True, exist_ok=True)
        if remembers:
            name = urlsafe_b64encode(layout.page(plan.home).encode()).decode()
            (notes / name).write_text(json.dumps({"params": ["'more'", repr(remembers)]}))
        assert ended("failures") == 0
        assert ("snakemake" in capsys.readouterr().out) == works, remembers
    Path(layout.page(plan.home)).unlink()
    assert ended("failures") == 0 and "snakemake" in capsys.readouterr().out


def test_the_audit_reads_tables_and_says_how_to_make_them(here: Path) -> None:
    line = ended("audit", "--study", "frameworks")
    assert line.endswith("snakemake --profile profiles/local tables --config study=frameworks")


def test_sides_that_cannot_be_compared_are_one_line(here: Path) -> None:
    assert missing(ended("compare", "local", "local"), "after: 'local'", "another machine") == []
    assert missing(ended("compare", "local", "cluster"), "before: 'local'", "timed run") == []


def test_verify_ends_with_an_error_about_what_is_not_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("verify", "--processes", "1") == 1
    text = capsys.readouterr().out
    assert missing(text, "results/data/mnist5k/raw: ", "no manifest") == []
    command = text.splitlines()[-1].split()
    assert command[command.index("--force") + 1] == "results/data/mnist5k/raw/manifest.json"
    assert ended("verify", "elsewhere") == 1  # a folder that is named is of no study
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_nodes_of_no_records(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("nodes") == 0
    assert missing(capsys.readouterr().out, "0 runs", "local") == []
    assert ended("nodes", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_help_fits_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], *([name, "--help"] for name in of_study.members())):
        assert ended(*arguments) == 0
        text = capsys.readouterr().out
        assert len(text.splitlines()) <= 30 and max(map(len, text.splitlines())) <= 80


def test_a_reader_that_has_seen_enough_is_no_error(here: Path) -> None:
    """As `| head` is."""
    command = (
        f"set -o pipefail; {shlex.quote(sys.executable)} -m ddlbench.commands.main plan --json |"
        " true"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", gone.TARGETS)
def test_a_target_that_is_gone_names_what_took_its_place(name: str) -> None:
    with pytest.raises(SystemExit) as end:
        checks.check_gone(["--profile", "profiles/local", name, "--config", "study=demo"])
    assert end.value.code == f"{name}: {gone.TARGETS[name]}"
    checks.check_gone(["--profile", "profiles/local", "page", "--config", f"study={name}"])


def test_a_command_that_is_gone_names_what_took_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gone.COMMANDS, "foo", "plan, now")
    assert ended("foo", "--study", "demo") == 2
    assert capsys.readouterr().err == "foo: plan, now\n"
    assert not {*gone.COMMANDS} - {"foo"} & {*of_study.members(), "new"}


@pytest.mark.parametrize("name", ["target", "what_if"])
def test_a_key_that_is_gone_names_what_took_its_place(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_config({"study": "demo", "machine": "local", name: None})
    assert str(error.value) == f"config/config.yaml: {name}: {gone.KEYS[name]}"
    with pytest.raises(ConfigError, match=f"{name}s: unknown key; "):
        check_config({"study": "demo", "machine": "local", f"{name}s": None})


def test_the_clone_that_one_stands_in_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two clones share an environment, the program of the other one would read these records
    by its own code.
    """
    called: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: called.append(arguments))
    monkeypatch.setattr(sys, "argv", ["ddlbench", "plan"])
    monkeypatch.chdir(ROOT)
    main.use_package_of_clone()
    assert called == []
    (tmp_path / "workflow/ddlbench").mkdir(parents=True)
    (tmp_path / "workflow/ddlbench/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    main.use_package_of_clone()
    ((program, command, environment),) = called
    assert (program, command[1], command[3:]) == (sys.executable, "-c", ["plan"])
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "workflow")


def test_snakemakes_memory_of_a_run_is_read_from_its_files(here: Path) -> None:
    """As Snakemake wrote it, also under a name that is longer than a file's may be."""
    from snakemake.io import IOFile
    from snakemake.persistence import MetadataRecord
    from snakemake.persistence.file import FilePersistence

    snakemakes = FilePersistence(path=here / ".snakemake")
    for run in ("short", "long-" + 200 * "x", "forgotten"):
        log = Path(layout.run_log(run))
        log.parent.mkdir(parents=True)
        log.touch()
        if run != "forgotten":
            note = MetadataRecord(
                input=["a/manifest.json"], code=stale.COMMAND, input_checksums={"a": "sha256:1"}
            )
            snakemakes._write_record(snakemakes._get_key(IOFile(str(log))), note)
    found = stale.metadata_of(["short", "long-" + 200 * "x", "forgotten", "never made"])
    assert [*found] == ["short", "long-" + 200 * "x"]
    assert set(map(str, found.values())) == {
        str(stale.JobMetadata(("a/manifest.json",), {"a": "sha256:1"}, stale.COMMAND))
    }


def test_a_kept_state_outlives_what_it_was_made_from(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert missing(ended("keep", "2026-10"), "results/demo/local/index.html: ") == []
    run = next(iter(configuration.read(configuration.of_command_line(None, [])).plan.runs))
    log, page = Path(layout.run_log(run)), Path(layout.page("demo/local"))
    for file, text in ((log, "old"), (page, "a page"), (page.parent / "logs/x.log", "x")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert ended("keep", "2026-10") == 0
    assert "1 of 27 runs of demo" in capsys.readouterr().out
    kept = here / "results/kept/2026-10"
    assert (kept / "runs" / run / log.name).samefile(log)
    write_text(log, "new")  # as a run that is made again does
    page.write_text("another")
    assert (kept / "runs" / run / log.name).read_text() == "old"
    assert (kept / "demo/local/index.html").read_text() == "a page" and not (
        kept / "demo/local/logs"
    ).exists()
    assert "results/kept/2026-10" in ended("keep", "2026-10")
    assert missing(ended("keep", "../x"), "name: '../x'") == []


def test_verdicts_are_an_answer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing(ended("verdicts"), "results/demo/local/tables/verdicts.csv: ", "snakemake") == []
    table = here / "results/demo/local/tables/verdicts.csv"
    table.parent.mkdir(parents=True)
    row = dict.fromkeys(claim_verdicts.COLUMNS, "x") | {"verdict": claim_verdicts.NOT_TESTABLE}
    pd.DataFrame([row]).to_csv(table, index=False)
    assert ended("verdicts") == 0
    assert capsys.readouterr().out.startswith(
        "1 claims: 0 contradicted, 0 supported, 0 undecided, 1 "
    )


@pytest.mark.more
def test_the_answers_are_printed_at_any_time(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any run, from the records that are there, and as values for programs. No page is
    made.
    """
    assert ended("answer") == 0
    assert "framework" not in capsys.readouterr().out.splitlines()[0]
    planned = configuration.read(configuration.of_command_line(None, [])).plan
    for run in [name for name in planned.runs if "-bs64-" in name or "-bs128-" in name][:12]:
        write_record(here / "results/runs", planned.runs[run].spec, images=256)
    assert ended("answer", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["question"] for one in found["answers"]} >= {"workers"}
    assert found["choice"]["workers"] in (1, 2)
    assert ended("answer") == 0
    assert len(capsys.readouterr().out.splitlines()) > len(found["answers"])
    assert not (here / "results/demo").exists()


def test_a_terminal_gets_the_answer_and_a_pipe_all(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended("plan") == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ended("plan") == 0
    short = capsys.readouterr().out
    assert short.startswith("demo on local: ") and missing(short, "27 of 27") == []
    assert len(short.splitlines()) == 5 < 20 < len(whole.splitlines())
    assert ended("plan", "--all") == 0
    assert capsys.readouterr().out == whole
    assert ended("status") == 0
    said = capsys.readouterr().out.splitlines()
    assert missing(said[1], "27 runs", "0 done", "0 running", "27 waiting", "0 failed") == []
    assert missing(said[2], "expected end") == missing(said[3], "--all") == [] and len(said) == 5


def test_a_plan_says_first_what_stops_its_runs(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ended("plan", "--study", "aach2023-short", "--machine", "juwels-booster") == 0
    first, second, third, *_ = capsys.readouterr().out.splitlines()
    assert missing(first, "config/config.yaml", "data.sources.imagenet") == []
    assert missing(second, "config/config.yaml", "account") == []
    assert third.startswith("aach2023-short on juwels-booster: ")


IMAGES = {"mnist5k": 4000, "synthetic-imagenet": 2000}
NOW = 1_800_000_000.0


def small() -> Plan:
    plan = make_plan(load_study("demo"), LAPTOP, None, IMAGES)
    # Their data is of no interest here.
    return replace(
        plan, runs={run: replace(job, manifest=None) for run, job in list(plan.runs.items())[:4]}
    )


def screen(plan: Plan, results: Path, limit: float | None = None) -> str:
    rows = [
        replace(
            row,
            wall_s=60.0,
            wall_s_low=50.0,
            wall_s_high=90.0,
            gpu_hours=0.5,
            gpu_hours_low=0.4,
            gpu_hours_high=1,
        )
        for row in bill.rows(replace(plan, blocks={"all": tuple(plan.runs)}), IMAGES, results)
    ]
    # A record of two empty files will do here; whether records are whole is not the screen's to
    # say.
    rows = [
        replace(row, state="done") if (results / "runs" / row.run / "run.mllog").exists() else row
        for row in rows
    ]
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
    assert missing(text, "4 runs", "1 done", "1 running", "1 waiting", "1 failed") == []
    epochs = plan.runs[running].spec.epochs
    assert (
        f"  running {running}: epoch {min(2, epochs)} of {epochs}, " in text
        and f"process {os.getpid()}" in text
    )
    assert missing(text, f"  failed  {failed}: ", "out of memory") == []
    assert f"  waiting {stopped}: was stopped" in text
    # 20 s of the one that runs, 60 s of the other; 10 and 50, 50 and 90.
    ends = [
        status.datetime.fromtimestamp(NOW + s).strftime("%Y-%m-%d %H:%M") for s in (80, 60, 140)
    ]
    assert f": {ends[0]} ({ends[1]} to {ends[2]})" in text
    (hours,) = [line for line in text.splitlines() if "max_gpu_hours" in line]
    assert (
        missing(
            hours, "0.5 used", "1 for the others", "0.8 to 2", "0.0111 are used", "max_gpu_hours: 2"
        )
        == []
    )
    # Who held it has died: it runs no longer.
    dead = asdict(living.myself()) | {"born": "long ago"}
    (tmp_path / "runs" / running / hold.HOLDER).write_text(json.dumps(dead))
    assert "1 done, 0 running, 2 waiting, 1 failed" in screen(plan, tmp_path)


def test_a_queue_says_what_runs_and_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert missing(text, "4 runs", "0 done", "1 running", "3 waiting", "0 failed") == []
    assert (
        f"  running {first}: epoch 1 of {plan.runs[first].spec.epochs}, " in text
        and "job 7" in text
    )
    (held,) = [line for line in text.splitlines() if f"waiting {third}" in line]
    assert missing(held, "job 9", "JobHeldUser", "scontrol release 9") == []
    assert "  waiting " + second not in text  # it waits as all do
    (queue,) = [line for line in text.splitlines() if line.startswith("  queue ")]
    assert missing(queue, "2 of 3", "1 Priority", "1 JobHeldUser") == []
    assert missing(text, "queue", "1 node") == []
    assert len(asked) == 1  # SLURM is asked once

    def silent(comments: set[str], folder: Path) -> list[survivors.SlurmJob]:
        raise ConfigError("no answer")

    monkeypatch.setattr(survivors, "slurm_jobs", silent)
    assert screen(plan, tmp_path).splitlines()[3] == "squeue: no answer"


def test_an_end_that_nobody_knows_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_guess, "operations", lambda model: None)
    plan = small()
    assert "expected end: unknown" in screen(plan, tmp_path)
    rows = bill.rows(replace(plan, blocks={"all": tuple(plan.runs)}), IMAGES, tmp_path)
    states = {row.run: status.Now(status.RUNNING) for row in rows}
    text = "\n".join(status.lines(plan, rows, states, tmp_path, None))
    assert missing(text, "expected end: unknown", "4 of") == []
    assert "0 used" in text and "?" not in text.splitlines()[-1]


@pytest.mark.parametrize("count", [8, 9, 27])
def test_a_screen_names_eight_and_counts_the_others(tmp_path: Path, count: int) -> None:
    plan = make_plan(load_study("demo"), LAPTOP, None, IMAGES)
    plan = replace(
        plan,
        runs={run: replace(job, manifest=None) for run, job in list(plan.runs.items())[:count]},
    )
    for run in plan.runs:
        begin(tmp_path / "runs" / run)
    named = [
        line
        for line in screen(plan, tmp_path).splitlines()
        if line.startswith(("  waiting", "  ..."))
    ]
    shown = [f"  waiting {run}: was stopped" for run in [*plan.runs][:8]]
    assert named == shown + [f"  ... and {count - 8} more"] * (count > 8)
