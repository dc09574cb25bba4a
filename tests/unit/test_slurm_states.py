"""What Snakemake's SLURM plugin is told of jobs that it would wait for in vain, and what it says of
those that fail.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ddlbench.patches import slurm_plugin
from ddlbench.slurm import sbatch_refusals
from ddlbench.slurm import squeue as slurm
from snakemake.sourcecache import SourceCache

from tests.facts import missing

Command = Callable[[str, str], None]
JOB = (
    "JobId=7 JobName=x JobState=FAILED StartTime=2026-11-22T08:00:00 NodeList=node[1-2]"
    " BatchHost=node1"
)


@pytest.fixture
def squeue(command: Command) -> Callable[[str], None]:
    """SLURM's: one refuses number 0, and one number that SLURM has forgotten (all but 7 and 8)."""
    refuse = (
        'case "$* " in *[=,]0[,\\ ]*|*--jobs=[!78]\\ *) echo "Invalid job id" >&2; exit 1;; esac\n'
    )
    return lambda script: command("squeue", refuse + script)


def test_a_state_is_its_first_word() -> None:
    said = {
        "1": "CANCELLED by 0",
        "2": "CANCELLED",
        "3": "RUNNING",
        "4": "COMPLETED",
        "5": "OUT_OF_MEMORY",
    }
    assert slurm_plugin.ended_states(said) == said | {"1": "CANCELLED"}


@pytest.mark.parametrize(
    ("script", "state"),
    [
        (f"echo '{slurm.marked('7', 'BeginTime')}'", "PREEMPTED"),  # queued again, or about to be
        ("true", "CANCELLED"),  # PreemptMode=CANCEL
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "PREEMPTED"),
    ],
)
def test_a_preempted_job_has_ended_when_it_left_the_queue(
    squeue: Any, script: str, state: str
) -> None:
    squeue(script)
    assert slurm_plugin.ended_states({"7": "PREEMPTED", "8": "RUNNING"}) == {
        "7": state,
        "8": "RUNNING",
    }


def test_a_job_whose_processes_still_run_has_not_ended(squeue: Any) -> None:
    """Its ranks write their checkpoint: the next job would find the run held."""
    squeue('case "$*" in *--states=COMPLETING*) echo "' + slurm.marked("7") + '";; esac')
    said = {"7": "CANCELLED by 0", "8": "CANCELLED by 0", "9": "FAILED"}
    assert slurm_plugin.ended_states(said) == {"7": "COMPLETING", "8": "CANCELLED", "9": "FAILED"}
    squeue("exit 1")
    assert slurm_plugin.ended_states(said) == {"7": "CANCELLED", "8": "CANCELLED", "9": "FAILED"}


@pytest.mark.parametrize(
    ("reason", "facts"),
    [
        ("JobHeldUser", ("held", "scontrol release 7", "scancel 7")),
        ("JobHeldAdmin", ("held", "administrator", "scancel 7")),
        ("launch failed requeued held", ("held",)),
        ("job requeued in held state", ("held",)),
        ("BadConstraints", ("not start", "no node", "scancel 7")),
        ("PartitionDown", ("not start",)),
        ("AssocMaxWallDurationPerJobLimit", ("not start", "one job", "account")),
        ("QOSMaxGRESPerJob", ("not start", "one job", "account", "QOS")),
        ("AssocMaxCpuMinutesPerJobLimit", ("not start", "one job")),
        ("QOSMinCpuNotSatisfied", ("not start", "one job")),
        ("AssocGrpCPUMinutesLimit", ("not start", "the time", "account")),
        ("AssocGrpBillingMinutes", ("not start", "the time")),
        ("QOSGrpWallLimit", ("not start", "the time", "used up")),
        ("AssocGrpNodeLimit", ("waits", "other jobs", "never starts")),
        ("AssocGrpCPURunMinutesLimit", ("waits", "other jobs")),
        ("QOSMaxCpuPerUserLimit", ("waits", "other jobs", "never starts")),
        ("ReqNodeNotAvail, Reserved for maintenance", ("maintenance",)),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", ("maintenance",)),
        ("AssocGrpJobsLimit", ()),
        ("QOSMaxJobsPerUserLimit", ()),
        ("Priority", ()),
        ("Resources", ()),
        ("None", ()),
    ],
)
def test_a_job_that_waits_for_a_person_is_named_once(
    squeue: Any, capsys: Any, reason: str, facts: tuple[str, ...]
) -> None:
    squeue(f"echo '{slurm.marked('7', reason)}'")
    told: set[str] = set()
    for _ in range(2):
        slurm_plugin.say_held(["7", "8"], told)
    err = capsys.readouterr().err
    assert (
        missing(
            err, *facts, *(["SLURM job 7", reason] if facts and "Reserved" not in reason else [])
        )
        == []
    )
    assert err.count("SLURM job") == bool(facts)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin with the patches, put back after the test."""
    of = pytest.importorskip(slurm_plugin.PLUGIN)
    ours = (
        "query_job_status",
        "is_query_tool_available",
        "validate_account",
        "get_account",
        "delete_empty_dirs",
    )
    for name in ours:
        monkeypatch.setattr(of, name, getattr(of, name))
    monkeypatch.setattr(
        slurm_plugin, "patch_submission", lambda module: None
    )  # test_slurm_submission.py
    for name in ("report_job_error", "report_job_submission"):
        monkeypatch.setattr(
            of.Executor, name, lambda self, *args, **more: self.heard.append((args, more))
        )
    monkeypatch.setattr(of.Executor, "_failed_nodes", None, raising=False)
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SACCT_FORMAT", "JobID")
    return of


def said_of(patched: Any, job: Any, told: str, *own_logs: Path) -> str:
    """What the plugin's executor reports of job 7 that failed, told this."""
    executor = SimpleNamespace(heard=[])
    patched.Executor.report_job_error(
        executor,
        SimpleNamespace(external_jobid="7", job=job),
        msg=told,
        aux_logs=[*map(str, own_logs)],
    )
    ((_, more),) = executor.heard
    return str(more["msg"])


def test_the_plugin_itself_sees_it(patched: Any) -> None:
    ask = "printf '7|CANCELLED by 0\\n8|RUNNING\\n'"
    logger = logging.getLogger()
    before, _ = asyncio.run(patched.query_job_status(ask, logger))
    assert before == {
        "7": "CANCELLED by 0",
        "8": "RUNNING",
    }  # if this fails, the plugin has been patched: remove ours
    for _ in range(2):
        slurm_plugin.patch_plugin()
        after, _ = asyncio.run(patched.query_job_status(ask, logger))
        assert after == {"7": "CANCELLED", "8": "RUNNING"}
    assert asyncio.run(patched.query_job_status("false", logger)) == ({}, 0.0)
    assert "SQUEUE_STATES" not in os.environ and "SACCT_FORMAT" not in os.environ


def test_squeue_is_asked_for_hidden_jobs_and_may_forget_those_that_ended(
    patched: Any, squeue: Any
) -> None:
    slurm_plugin.patch_plugin()
    executor = SimpleNamespace(heard=[])
    for job in ("7", "8"):
        patched.Executor.report_job_submission(
            executor, SimpleNamespace(external_jobid=job), register_job=False
        )
    assert len(executor.heard) == 2
    squeue('[ "$1" != --all ] || echo "8|RUNNING"')
    states, _ = asyncio.run(patched.query_job_status("squeue --name x", logging.getLogger()))
    assert states == {"7": "UNKNOWN", "8": "RUNNING"}


@pytest.mark.parametrize(
    ("asked", "queue", "accounts", "state"),
    [
        (
            "false",
            "",
            "exit 1",
            "UNKNOWN",
        ),  # sacct is refused, and SLURM has forgotten the job: it has ended
        ("false", slurm.marked("7", "RUNNING"), "exit 1", "RUNNING"),
        (
            "echo '9|RUNNING'",
            slurm.marked("7", "COMPLETED"),
            "exit 1",
            "COMPLETED",
        ),  # the site renames jobs
        ("echo '9|RUNNING'", "", "echo '7|FAILED'", "FAILED"),
        ("false", None, "exit 1", None),  # nobody answers
        ("echo '7|RUNNING'", None, "exit 1", "RUNNING"),
    ],
)
def test_a_job_that_no_answer_names_is_said_and_asked_for_by_its_number(
    patched: Any,
    command: Any,
    squeue: Any,
    capsys: Any,
    monkeypatch: Any,
    asked: str,
    queue: Any,
    accounts: str,
    state: Any,
) -> None:
    squeue("exit 1" if queue is None else f"echo '{queue}'")
    command("sacct", accounts)
    slurm_plugin.patch_plugin()
    patched.Executor.report_job_submission(
        SimpleNamespace(heard=[]), SimpleNamespace(external_jobid="7")
    )
    logger = logging.getLogger()
    states, _ = asyncio.run(patched.query_job_status("false", logger))
    assert states == {} and capsys.readouterr().err == ""  # it was just submitted
    monkeypatch.setattr(slurm_plugin, "SILENT_S", 0.2)
    time.sleep(0.3)
    states, _ = asyncio.run(patched.query_job_status(asked, logger))
    assert states.get("7") == state
    named = "7" in asked
    assert capsys.readouterr().err.count("SLURM jobs 7: sacct ") == (not named)
    time.sleep(0.3)
    asyncio.run(patched.query_job_status(asked, logger))
    assert capsys.readouterr().err == ""  # it is said once


@pytest.mark.parametrize(
    ("by_list", "by_number", "seen"),
    [
        ("exit 1", "exit 1", {}),  # the controller restarts
        ("echo '8|RUNNING'", "exit 1", {"8": "RUNNING"}),
        ("exit 1", f"echo '{slurm.marked('7', 'RUNNING')}'", {"7": "RUNNING"}),
        ("true", f"echo '{slurm.marked('7', 'RUNNING')}'", {"7": "RUNNING", "8": "UNKNOWN"}),
        ("echo '7|RUNNING'", "true", {"7": "RUNNING", "8": "UNKNOWN"}),
    ],
)
@pytest.mark.parametrize("silent", [True, False])
def test_a_job_has_not_ended_because_squeue_is_away_for_a_moment(
    patched: Any,
    command: Any,
    monkeypatch: Any,
    by_list: str,
    by_number: str,
    seen: dict[str, str],
    silent: bool,
) -> None:
    """Snakemake took it for ended, and submitted it again beside the one that ran."""
    command("squeue", f'if [ "$1" = --all ]; then {by_list}; else {by_number}; fi')
    command("sacct", "exit 1")
    monkeypatch.setattr(slurm_plugin, "SILENT_S", 0.0 if silent else 60.0)
    slurm_plugin.patch_plugin()
    for job in ("7", "8"):
        executor, info = SimpleNamespace(heard=[]), SimpleNamespace(external_jobid=job)
        patched.Executor.report_job_submission(executor, info)
    states, _ = asyncio.run(patched.query_job_status("squeue --name x", logging.getLogger()))
    answered = by_list != "exit 1"
    expected = seen if answered or silent else {}
    if silent and by_number.startswith("echo"):  # of silent jobs, number 8 is not known any more
        expected = {"8": "UNKNOWN"} | seen
    assert states == expected


def test_a_job_is_not_forgotten_while_slurm_does_not_answer(
    patched: Any, command: Any, monkeypatch: Any
) -> None:
    command("sacct", "exit 1")
    monkeypatch.setattr(patched, "get_min_job_age", lambda: 300)
    monkeypatch.setattr(patched, "is_query_tool_available", lambda tool: True)
    slurm_plugin.patch_plugin()
    settings = SimpleNamespace(status_attempts=2, init_seconds_before_status_checks=1)
    executor = MagicMock(
        run_uuid="x", workflow=SimpleNamespace(executor_settings=settings), _status_query_calls=0
    )
    executor.get_status_command.return_value = "sacct"
    executor._status_query_failures = executor._status_query_total_seconds = 0
    executor._status_query_min_seconds = executor._status_query_max_seconds = 0.0
    executor.next_seconds_between_status_checks = 1
    job = SimpleNamespace(external_jobid="7", aux={})

    async def still_active() -> list[Any]:
        return [one async for one in patched.Executor.check_active_jobs(executor, [job])]

    assert asyncio.run(still_active()) == [job]
    executor.report_job_success.assert_not_called()
    executor.report_job_error.assert_not_called()


@pytest.mark.parametrize(
    ("sacct", "why"),
    [
        (
            "echo 'Slurm accounting storage is disabled' >&2; exit 1",
            "sacct: Slurm accounting storage is disabled",
        ),
        (None, "sacct is not installed"),
        (
            "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1",
            None,
        ),
        ("true", None),
    ],
)
def test_a_site_without_accounting_is_seen_at_once(
    patched: Any, command: Any, capsys: Any, monkeypatch: Any, sacct: str | None, why: str | None
) -> None:
    if sacct:
        command("sacct", sacct)
    else:
        monkeypatch.setenv("PATH", os.environ["PATH"].split(":")[0])
    settings = SimpleNamespace(status_command="sacct")
    slurm_plugin.settle_accounting(settings)
    said = capsys.readouterr().err
    if why is None:
        assert (settings.status_command, said) == ("sacct", "")
        return
    (line,) = said.splitlines()
    assert missing(line, why, "squeue") == []
    assert settings.status_command == "squeue"
    assert patched.validate_account("mine", logging.getLogger()) == "mine"
    assert not patched.is_query_tool_available("sacct")


@pytest.mark.parametrize(
    ("log", "facts"),
    [
        (
            "/var/spool/slurmd/job00007/slurm_script: 4: /venv/bin/python: not found\n",
            ("/venv/bin/python: not found", "that node"),
        ),
        ("/bin/python: No module named snakemake\n", ("/bin/python", "snakemake", "node1")),
        (
            "slurm_script: line 4: /v/python: No such file or directory\n",
            ("/v/python", "No such file"),
        ),
        ("OSError: [Errno 28] No space left on device: 'x'\n", ("No space left", "disk space")),
        ("config/studies/demo.yaml: models: nothing\n", ("node1", "7.log")),
    ],
)
def test_a_job_that_fails_before_its_run_began(
    patched: Any, command: Any, tmp_path: Path, log: str, facts: tuple[str, ...]
) -> None:
    """Python is not there on its node: named are the node, what is missing and the log of this
    try.
    """
    slurm_plugin.patch_plugin()
    command("scontrol", f"echo '{JOB}'")
    own, of_run = tmp_path / "7.log", tmp_path / "train.log"
    own.write_text(log)
    of_run.write_text("an earlier try\n")
    os.utime(of_run, (1, 1))
    job, failed = SimpleNamespace(log=[str(of_run)]), "SLURM-job '7' failed."
    told = said_of(patched, job, failed, own)
    assert told.startswith(failed) and missing(told, "before its run", "node1", *facts) == []
    assert missing(told, own, of_run, "earlier") == []
    os.utime(of_run)  # the run did begin: its own log says why it failed
    assert said_of(patched, job, failed, own) == failed


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        ("sbatch: error: invalid partition specified: nowhere", "partitions"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "constraint"),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid",
            "max_minutes",
        ),
        ("sbatch: error: Memory specification can not be satisfied", "memory_mb_per_worker"),
        (
            (
                "sbatch: error: Batch job submission failed: Requested node configuration is not"
                " available"
            ),
            "workers_per",
        ),
        (
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition"
                " combination"
            ),
            "sacctmgr",
        ),
        ("sbatch: error: by our own rules, no", sbatch_refusals.OTHER_TODO),
        ("a plugin of the site died", sbatch_refusals.OTHER_TODO),
    ],
)
def test_what_slurm_refuses_is_its_sentence_and_what_to_do(
    patched: Any, said: str, todo: str
) -> None:
    slurm_plugin.patch_plugin()
    executor = SimpleNamespace(heard=[])
    told = (
        f"SLURM sbatch failed. The error message was '{said}'.\n    sbatch call:\n        sbatch"
        " --wrap=x\n"
    )
    patched.Executor.report_job_error(
        executor, SimpleNamespace(external_jobid=None, job=None), msg=told
    )
    ((_, more),) = executor.heard
    sentence = said.removeprefix("sbatch: error: ")
    assert sentence in more["msg"] and todo in more["msg"]
    assert "--wrap" not in more["msg"] and "\n" not in more["msg"]
    assert more["cause"] == "refused by SLURM"


def test_what_slurm_does_not_say_hides_no_failure(patched: Any, command: Any) -> None:
    slurm_plugin.patch_plugin()
    command("scontrol", "exit 1")
    assert slurm.where("7") is None
    assert said_of(patched, None, "failed") == "failed"


def test_later_jobs_avoid_one_node_and_never_words_that_are_none(patched: Any) -> None:
    """sacct says `None assigned` of a job that waits again; `sbatch --exclude="n1,None assigned"`
    submits nothing.
    """
    slurm_plugin.patch_plugin()
    executor = object.__new__(patched.Executor)
    executor._failed_nodes = {"of-the-user[1-2]"}
    for said in (
        "node3",
        "None assigned",
        "None",
        "Unknown",
        "node[1-256]",
        "node1,node2",
        "jwb0001.juwels",
    ):
        executor._failed_nodes.add(said)
    assert executor._failed_nodes == {"of-the-user[1-2]", "node3", "jwb0001.juwels"}


def test_a_call_that_ends_leaves_the_folders_of_jobs_that_wait(
    patched: Any, tmp_path: Path
) -> None:
    """`ddlbench status` beside a study; SLURM fails a job whose log it cannot open."""
    slurm_plugin.patch_plugin()
    waiting, old = tmp_path / "rule_train/waiting", tmp_path / "rule_train/done/7.log"
    waiting.mkdir(parents=True)
    old.parent.mkdir()
    old.touch()
    os.utime(old, (0, 0))
    settings = SimpleNamespace(delete_logfiles_older_than=30, keep_successful_logs=False)
    workflow = SimpleNamespace(executor_settings=settings)
    ended = SimpleNamespace(workflow=workflow, slurm_logdir=tmp_path, logger=logging.getLogger())
    patched.Executor.clean_old_logs(ended)
    assert waiting.is_dir() and not old.exists()


def test_caches_lie_in_the_projects_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without home folders: Snakemake's jobs read its cache of source files, and make one of
    their own.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "/home/me/.cache")
    (tmp_path / "home").mkdir()
    workflow = SimpleNamespace(sourcecache=SourceCache(tmp_path / "home"))
    slurm_plugin.keep_caches_here(workflow)
    here = str(tmp_path / ".snakemake/cache")
    assert os.environ["XDG_CACHE_HOME"] == here
    assert os.environ["TRITON_CACHE_DIR"].startswith(here)
    assert workflow.sourcecache.runtime_cache_path.startswith(here)
    workflow = SimpleNamespace(sourcecache=SourceCache(tmp_path / "home", tmp_path / "mine"))
    slurm_plugin.keep_caches_here(workflow)
    assert workflow.sourcecache.runtime_cache_path == tmp_path / "mine"  # the user's choice


def test_a_limit_that_jobs_share_is_named_once_for_all(squeue: Any, capsys: Any) -> None:
    lines = (slurm.marked(job, "AssocGrpNodeLimit") for job in ("7", "8"))
    squeue(f"printf '%s\\n' '{next(lines)}' '{next(lines)}'")
    slurm_plugin.say_held(["7", "8"], set())
    assert capsys.readouterr().err.count("SLURM job") == 1


def test_a_node_that_does_not_see_the_project_is_named(
    patched: Any, command: Any, tmp_path: Path
) -> None:
    """slurmd cannot open the job's log there. What SLURM 22.05 said of such a job."""
    slurm_plugin.patch_plugin()
    command("scontrol", f"echo '{JOB} Reason=JobLaunchFailure ExitCode=0:53'")
    told = said_of(
        patched, SimpleNamespace(log=[str(tmp_path / "train.log")]), "FAILED.", tmp_path / "7.log"
    )
    assert missing(told, "node1", "does not see", Path.cwd(), "exclude_nodes") == []
    assert "7.log" not in told  # there is none
