"""How jobs are submitted and cancelled: the SLURM plugin itself, with our patches and pretended
commands of SLURM.
"""

import logging
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.patches import slurm_plugin
from ddlbench.slurm import squeue

from tests.conftest import until
from tests.facts import missing

REFUSAL = (
    "sbatch: error: {reason}\nsbatch: error: Batch job submission failed: Job violates"
    " accounting/QOS policy"
)
MOST = "AssocMaxSubmitJobLimit"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin with the patches, put back after the test."""
    of = pytest.importorskip(slurm_plugin.PLUGIN)
    for name in ("validate_or_get_slurm_job_id", "get_max_array_size", "get_submit_command"):
        monkeypatch.setattr(of, name, getattr(of, name))
    for name in (
        "run_job",
        "_report_job_error_threadsafe",
        "cancel_jobs",
        "format_job_exec",
        "get_python_executable",
    ):
        monkeypatch.setattr(of.Executor, name, getattr(of.Executor, name))
    monkeypatch.setattr(
        of.Executor,
        "report_job_submission",
        lambda self, info: self.jobs.append(info.external_jobid),
    )
    monkeypatch.setattr(
        of.Executor, "report_job_error", lambda self, info, msg: self.failed.append(msg)
    )
    monkeypatch.setattr(of.Executor, "get_account_arg", lambda self, job: iter([""]))
    monkeypatch.setattr(of.Executor, "format_job_exec", lambda self, job: self.command)
    monkeypatch.setattr(slurm_plugin, "WAIT_S", 0.01)
    slurm_plugin.patch_submission(of)
    return of


@pytest.fixture
def executor(module: Any, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin's executor; `command` is what its jobs execute. SLURM's commands are scripts of
    `command`.
    """
    monkeypatch.chdir(tmp_path)
    made = object.__new__(module.Executor)
    settings = SimpleNamespace(
        pass_command_as_script=False, requeue=True, qos=None, reservation=None
    )
    made.workflow = SimpleNamespace(
        executor_settings=settings,
        workdir_init=str(tmp_path),
        scheduler=SimpleNamespace(_user_kill=None),
    )
    made._main_event_loop, made._failed_nodes, made._submitted_job_clusters = None, set(), set()
    made._partitions, made._fallback_partition = None, None
    made._job_submission_executor = ThreadPoolExecutor(2)
    made.logger, made.run_uuid, made.slurm_logdir = (
        logging.getLogger(),
        "ddlbench_7",
        tmp_path / "logs",
    )
    made.jobs, made.failed, made.command = [], [], "true"
    command("scancel", f"echo $* >> {tmp_path}/cancelled")
    command("squeue", "true")
    return made


def job(run: str = "r1") -> Any:
    resources = {"runtime": 5, "mem_mb": 100, "slurm_partition": "booster"}
    rule = SimpleNamespace(name="train")
    return SimpleNamespace(
        name="train",
        jobid=1,
        threads=1,
        rule=rule,
        wildcards=[run],
        is_group=lambda: False,
        resources=Resources(resources),
    )


def test_a_sites_comment_stands_before_the_name_of_the_run(
    executor: Any, tmp_path: Path, command: Any
) -> None:
    """And our own jobs are still known by theirs."""
    command("sbatch", f'printf "%s\\n" "$@" > {tmp_path}/asked; echo 17')
    of = job()
    executor.run_job(of)
    assert "rule_train_wildcards_r1" in (tmp_path / "asked").read_text().splitlines()
    of.resources["site_comment"] = "fs=work,power=low"
    executor.run_job(of)
    assert (
        "fs=work,power=low rule_train_wildcards_r1" in (tmp_path / "asked").read_text().splitlines()
    )
    assert (
        squeue.own_comment("fs=work,power=low rule_train_wildcards_r1") == "rule_train_wildcards_r1"
    )
    assert squeue.own_comment("two\nlines rule_all") == squeue.own_comment("rule_all") == "rule_all"
    assert squeue.own_comment("") == ""


class Resources(dict[str, Any]):
    """Of a job; values are attributes, too."""

    __getattr__ = dict.get


@pytest.mark.parametrize(
    ("reason", "limits", "limit"),
    [
        (MOST, {"assoc user=* format=MaxSubmitJobs": "4"}, ": at most 4"),
        (MOST, {"assoc user=* format=MaxSubmitJobs": "4\n\n10\n4"}, ": at most 4 or 10"),
        ("AssocGrpSubmitJobsLimit", {"assoc format=GrpSubmitJobs": "40"}, ": at most 40"),
        ("QOSGrpSubmitJobsLimit", {"qos format=GrpSubmitJobs": "20"}, ": at most 20"),
        ("QOSMaxSubmitJobPerUserLimit", {"qos format=MaxSubmitJobsPerUser": "7"}, ": at most 7"),
        ("QOSMaxSubmitJobPerUserLimit", {}, ""),
        (
            "Unable to contact slurm controller (connect failure)",
            {"assoc user=* format=MaxSubmitJobs": "4"},
            "",
        ),
    ],
)
def test_a_job_that_slurm_takes_later_is_submitted_later(
    executor: Any,
    tmp_path: Path,
    command: Any,
    capsys: Any,
    reason: str,
    limits: dict[str, str],
    limit: str,
) -> None:
    """`MaxSubmitJobs`: the first three tries are refused. None of them counts as a failure, and it
    is said once, with the limit's number where SLURM tells it.
    """
    cases = "".join(
        f"*'show {asked.replace('*', chr(39) + '*' + chr(39))}') echo '{n}';; "
        for asked, n in limits.items()
    )
    command("sacctmgr", f'case "$*" in {cases}*) exit 1;; esac')
    refusal = REFUSAL.format(reason=reason)
    command("refused", f'echo "{refusal}" >&2; exit 1')
    command("sbatch", "echo x >> tries; [ $(wc -l < tries) -gt 3 ] && echo 17 || refused")
    command("squeue", f"echo '{squeue.marked('9')}'")
    executor.run_job(job())
    assert (executor.jobs, executor.failed) == (["17"], [])
    assert missing(capsys.readouterr().err, f"({reason}{limit})") == []


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("Invalid account", None),
        (MOST, "no job of this user is in the queue"),
        (MOST, "Snakemake was told to stop"),
    ],
)
def test_a_job_that_slurm_never_takes_fails(
    executor: Any, tmp_path: Path, command: Any, reason: str, why: str | None
) -> None:
    command("sbatch", f'echo "{REFUSAL.format(reason=reason)}" >&2; exit 1')
    if why and "told" in why:
        executor.workflow.scheduler._user_kill = "graceful"
    executor.run_job(job())
    (failed,) = executor.failed
    assert reason in failed and executor.jobs == []


@pytest.mark.parametrize(
    "said",
    [
        "17",
        "17;juwels",
        "Welcome to 2 clusters of 2026\n17",
        "17\nQuota: 5 of 10 used; see https://x/1",
        " 3 jobs run\n17\n",
    ],
)
def test_a_banner_hides_no_job(executor: Any, tmp_path: Path, command: Any, said: str) -> None:
    command("sbatch", f"echo '{said}'")
    executor.run_job(job())
    assert (executor.jobs, executor.failed) == (["17"], [])


def test_a_job_of_which_nobody_knows_the_number_is_cancelled(
    executor: Any, tmp_path: Path, command: Any
) -> None:
    """Else it would run beside the next try of the same run."""
    command("sbatch", "echo 'job 17 of 2026'")
    jobs = [
        squeue.marked("16", "rule_train_wildcards_r2"),
        squeue.marked("17", "rule_train_wildcards_r1"),
    ]
    command("squeue", f"echo Welcome; printf '%s\\n' '{jobs[0]}' '{jobs[1]}'")
    executor.run_job(job())
    assert executor.jobs == [] and len(executor.failed) == 1
    assert (tmp_path / "cancelled").read_text() == "17\n"


def test_ctrl_c_cancels_every_job_of_this_call_and_submits_no_more(
    executor: Any, tmp_path: Path, command: Any
) -> None:
    """Also one that is just being submitted, and none that waits to be. Snakemake's own list is
    often empty.
    """
    command("sbatch", "touch submitting; sleep 0.3; echo 17")
    jobs = f"'{squeue.marked('16', 'a')}' '{squeue.marked('17', 'b')}'"
    command("squeue", f"case \"$*\" in *--name=ddlbench_7*) printf '%s\\n' {jobs};; esac")
    pool = executor._job_submission_executor
    waiting = [pool.submit(executor.run_job, job(run)) for run in ("r1", "r2", "r3", "r4")]
    until(lambda: (tmp_path / "submitting").exists(), 20)
    executor.cancel_jobs([])
    assert all(one.done() for one in waiting)
    assert executor.jobs == ["17", "17"] and executor.failed == []
    assert (tmp_path / "cancelled").read_text() == "16 17\n"


def test_a_command_reaches_the_job_as_it_is(executor: Any, tmp_path: Path, command: Any) -> None:
    """The plugin writes it between double quotes."""
    executor.command = """cd '/p$HOME `id` "x"' && a\\$b \\" end"""
    command("sbatch", f'for word in "$@"; do :; done; printf %s "$word" > {tmp_path}/word; echo 17')
    executor.run_job(job())
    assert (tmp_path / "word").read_text() == f"--wrap={executor.command}"


def test_a_per_cent_sign_in_the_projects_path_is_no_pattern(
    executor: Any, tmp_path: Path, command: Any
) -> None:
    executor.slurm_logdir = tmp_path / "100%u"
    command("sbatch", f'printf "%s\\n" "$@" > {tmp_path}/asked; echo 17')
    executor.run_job(job())
    asked = (tmp_path / "asked").read_text()
    assert f"{tmp_path}/100%%u/" in asked and "%j.log" in asked and "%%j" not in asked


def test_python_is_called_by_its_path(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/p $x/bin/python")
    said = subprocess.run(
        ["sh", "-c", f"echo {module.Executor.get_python_executable(None)}"], capture_output=True
    )
    assert said.stdout == b"/p $x/bin/python\n"


def test_a_site_without_arrays_starts_jobs(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`MaxArraySize=0`, as `scontrol show config` says it, stopped the plugin."""
    assert module.get_max_array_size() >= 2


@pytest.mark.parametrize(
    ("resources", "array", "here"),
    [
        ({"mpi": "srun"}, False, True),
        ({"mpi": ""}, False, True),
        ({"threads": 1}, False, False),
        ({"mpi": ""}, True, False),
    ],
)
def test_within_a_job_snakemake_starts_once_for_what_starts_ranks(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], array: bool, here: bool
) -> None:
    """Anything else is wrapped in srun by the plugin, which starts Snakemake again in it."""
    jobstep = pytest.importorskip(f"{slurm_plugin.PLUGIN}_jobstep")
    done: list[str] = []
    monkeypatch.setattr(jobstep.Executor, "run_job", lambda self, job: done.append("again"))
    monkeypatch.setattr(jobstep.Executor, "get_python_executable", None)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SRUN_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in (
        "SLURM_JOB_ID",
        "SLURM_SUBMIT_DIR",
        "SLURM_RESTART_COUNT",
        "SLURM_NTASKS",
        "SRUN_CPUS_PER_TASK",
        "SBATCH_GRES",
    ):
        monkeypatch.setenv(name, "3")
    slurm_plugin.patch_jobstep()
    slurm_plugin.patch_jobstep()  # each Snakefile that includes ours
    local = SimpleNamespace(run_job=lambda job: done.append("here"))
    executor = object.__new__(jobstep.Executor)
    executor.workflow = SimpleNamespace(scheduler=SimpleNamespace(_local_executor=local))
    executor.job_array_task = array
    executor.run_job(SimpleNamespace(resources=resources, is_group=lambda: False))
    assert done == ["here" if here else "again"]
    left = {name for name in os.environ if name.startswith(("SLURM_", "SRUN_", "SBATCH_"))}
    if here:  # what the plugin keeps: orders for the whole job are none for its steps
        assert left == {"SLURM_JOB_ID", "SLURM_SUBMIT_DIR", "SLURM_RESTART_COUNT"}
