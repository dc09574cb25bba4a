"""Who holds a run's folder, which jobs a killed Snakemake left, and what becomes of both, and of
late jobs.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from ddlbench.core import files, living
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.patches import snakemake_outputs
from ddlbench.run import hold, infer, job, survivors
from ddlbench.run.facts import facts
from ddlbench.settings.config import ConfigError
from ddlbench.slurm import squeue
from snakemake.jobs import Job

from tests.builders.records import SPEC, edit_log, write_record
from tests.facts import missing, refuses

HERE = socket.gethostname()


def leave(folder: Path, process: living.Process) -> Path:
    """A holder's file, as a process that was killed leaves it."""
    (folder / hold.HOLDER).write_text(json.dumps(asdict(process)))
    return folder


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", hold.ASKED):  # the Snakefile's tests leave the second
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_left_of_a_process_that_ended(tmp_path: Path) -> None:
    with hold.held(tmp_path / "run"):
        assert living.read(tmp_path / "run" / hold.HOLDER) == living.myself()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_file_system_without_hard_links_has_one_holder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As exFAT, SMB and some FUSE file systems say it. A holder that has not written its name yet
    is waited for.
    """

    def none(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    monkeypatch.setattr(hold, "WRITTEN_S", 0.5)
    with hold.held(tmp_path):
        assert living.read(tmp_path / hold.HOLDER) == living.myself()
        with pytest.raises(hold.HeldError), hold.held(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []
    began = time.monotonic()
    (tmp_path / hold.HOLDER).touch()  # it was killed before it wrote
    with hold.held(tmp_path):
        assert time.monotonic() - began >= 0.4
        assert living.read(tmp_path / hold.HOLDER) == living.myself()


def test_a_living_process_keeps_it(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from ddlbench.run.hold import held\n"
    program += "with held(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "\n"
    with refuses(hold.HeldError, f"process {other.pid}", HERE), hold.held(tmp_path):
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


# What a colleague sees of process 1 and of one that has ended, where /proc hides others' processes.
COLLEAGUE = """
import json, os, sys
from dataclasses import replace
from ddlbench.core import living
living.lives(living.myself())  # imports what it needs: another user may not read the libraries
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
me = living.myself()
other = replace(me, pid=int(sys.argv[1]), born=me.born.split()[0] + " 1")
ended = replace(me, pid=4194303, born=other.born)
earlier = replace(other, born="another-boot 1")
print(json.dumps([living.lives(one) for one in (me, other, ended, earlier)]))
"""


def test_a_colleagues_process_that_the_system_hides_may_live() -> None:
    """Login nodes are often so (`hidepid`): nothing of it may be taken for a dead one's."""
    hidden = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", hidden, "sh", sys.executable, "-c", COLLEAGUE]
    done = subprocess.run([*argv, str(os.getpid())], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("unshare mounts no /proc here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, None, False, False]


@pytest.mark.parametrize(
    ("answer", "life"),
    [
        (f"echo '{squeue.marked('7', 'RUNNING')}'", True),
        (f"echo '{squeue.marked('7', 'COMPLETING')}'", True),
        (f"echo '{squeue.marked('7', 'PENDING')}'", False),  # queued again: nothing of it runs
        (f"echo '{squeue.marked('7', 'COMPLETED')}'", False),  # finished, and still known
        (f"echo Welcome; echo; echo '{squeue.marked('7', 'RUNNING')}'; echo '2 | jobs'", True),
        ("echo Welcome", None),  # nothing that can be read is no answer
        ("true", None),
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
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert hold.alive(living.Process("elsewhere", 1, "then", "7")) is False


def test_two_nodes_of_one_allocation_do_not_take_each_other_for_dead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    leave(tmp_path, living.Process("elsewhere", 1, "then", "7"))
    with refuses(hold.HeldError, f"remove {tmp_path / hold.HOLDER}"), hold.held(tmp_path):
        pass


def test_who_cannot_be_asked_about_keeps_it(tmp_path: Path) -> None:
    leave(tmp_path, living.Process("elsewhere", 1, "then", ""))
    with refuses(hold.HeldError, f"remove {tmp_path / hold.HOLDER}"), hold.held(tmp_path):
        pass


def test_a_file_that_was_cut_off_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / hold.HOLDER).write_text('{"host": ')
    with hold.held(tmp_path):
        pass


def test_only_jobs_of_this_folder_that_make_what_is_planned_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """Whatever the folder's name, and whatever else the site's squeue prints. SQUEUE_STATES would
    hide some; and without --all, those in hidden partitions are left out.
    """
    folder = tmp_path / "a|b c"
    folder.mkdir()
    lines = [
        "*** Welcome | quota 5 of 10 | see https://x/1 | all | is | well ***",
        "",
        squeue.marked("1", "RUNNING", "None", f"{folder}", "rule_train_wildcards_a-r1"),
        squeue.marked("6", "RUNNING", "None", f"{folder}", "mine\nin two lines"),
        squeue.marked(
            "2", "PENDING", "Resources", f"{folder}", "fs=work\nrule_train_wildcards_b-r1"
        ),
        squeue.marked("3", "RUNNING", "None", f"{folder}", "rule_train_wildcards_of-another-study"),
        squeue.marked("4", "RUNNING", "None", "/elsewhere", "rule_train_wildcards_a-r1"),
        squeue.marked("5", "RUNNING", "None", f"{folder}", "(null)"),
        "6 jobs",
    ]
    asked = 'case " $* " in *" --all "*) [ -n "$SQUEUE_STATES" ] ||'
    command("squeue", f"{asked} cat <<'END'\n" + "\n".join(lines) + "\nEND\nesac")
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    found = survivors.slurm_jobs({"rule_train_wildcards_a-r1", "rule_train_wildcards_b-r1"}, folder)
    assert [(job.id, job.state) for job in found] == [("1", "RUNNING"), ("2", "PENDING")]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (("RUNNING", "None"), ("1 SLURM jobs", "scancel 7", "have ended", "7 running: JOB\n")),
        # It would be waited for in vain.
        (
            ("PENDING", "JobHeldUser"),
            ("7 pending: JOB: ", "(JobHeldUser)", "scontrol release 7"),
        ),
    ],
)
def test_they_are_waited_for(
    tmp_path: Path, command: Any, capsys: Any, job: tuple[str, str], says: tuple[str, ...]
) -> None:
    line = squeue.marked("7", *job, str(tmp_path), "rule_train_wildcards_a")
    command(
        "squeue",
        f"cd {tmp_path}; [ $(ls calls* | wc -l) = 3 ] || {{ touch calls$$; echo '{line}'; }}",
    )
    survivors.wait({"rule_train_wildcards_a"}, tmp_path, every_s=0)
    said = capsys.readouterr().err.replace("rule_train_wildcards_a", "JOB")
    assert [text for text in says if said.count(text) != 1] == [], said


def test_supervisors_of_this_machine_are_waited_for(tmp_path: Path, capsys: Any) -> None:
    """An earlier Snakemake was killed; what it had begun goes on."""
    folders = [tmp_path / name for name in ("living", "dead", "none")]
    here = Path(hold.__file__).parents[2]
    holds = "import sys, time; from pathlib import Path; from ddlbench.run.hold import held\n"
    holds += "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(1)"
    process = subprocess.Popen(
        [sys.executable, "-c", holds, str(folders[0])],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(here)},
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    folders[1].mkdir()
    leave(folders[1], DEAD)
    survivors.wait_for_supervisors(folders, every_s=0.1)
    assert not (folders[0] / hold.HOLDER).exists()
    process.wait()
    said = capsys.readouterr().err
    assert (
        said.count("waiting for living") == 1
        and f"kill {process.pid}" in said
        and "dead" not in said
    )


def test_nothing_is_submitted_while_slurm_does_not_answer(tmp_path: Path, command: Any) -> None:
    command("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with refuses(ConfigError, "try again", "Unable to contact slurm"):
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
        ([ELSEWHERE], survivors.HEARTBEAT_S * survivors.MISSED_HEARTBEATS + 1, True),
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


MADE_S = 17.6  # when `write_record`'s runs end


def made(
    monkeypatch: pytest.MonkeyPatch, folder: Path, spec: RunSpec = SPEC, **environment: str
) -> bool:
    """Whether a job of this environment finds the run made."""
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", hold.ASKED):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return hold.finished(folder, spec)


def test_a_record_that_was_made_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = {hold.ASKED: str(MADE_S - 1)}, {hold.ASKED: str(MADE_S + 1)}
    assert not made(monkeypatch, tmp_path / SPEC.id, **before)  # nothing is made yet
    folder = write_record(tmp_path)
    assert made(monkeypatch, folder, **before)
    assert not made(monkeypatch, folder, **after)  # somebody wants it again
    assert made(monkeypatch, folder)  # no Snakemake does: the job's script was submitted by hand
    assert not made(
        monkeypatch, folder, replace(SPEC, recipe=replace(SPEC.recipe, base_lr=9.0)), **before
    )
    steps = (folder / STEPS).read_bytes()
    (folder / STEPS).unlink()
    assert not made(monkeypatch, folder, **before)
    for damaged in (steps[:-1], steps + b"0"):
        (folder / STEPS).write_bytes(damaged)
        assert not made(monkeypatch, folder, **before)
    (folder / STEPS).write_bytes(steps)
    (folder / MLLOG).write_text(
        (folder / MLLOG).read_text().replace('"value": 0.5', '"value": 0.6')
    )
    assert not made(monkeypatch, folder, **before)  # it is damaged


def test_only_the_job_that_was_queued_again_keeps_its_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    again = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", hold.ASKED: str(MADE_S + 1)}
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
        log.rename(hold.displaced_log(log)) if not hold.displaced_log(
            log
        ).exists() else log.unlink()
    command = [
        sys.executable,
        "-m",
        "ddlbench.run",
        f"--folder={folder}",
        "--spec",
        SPEC.to_json(),
        "--",
        *launcher,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=os.environ | environment
        )


def test_a_job_that_was_submitted_twice_takes_no_log(tmp_path: Path) -> None:
    folder = tmp_path / SPEC.id
    first = run(
        folder,
        "sh",
        "-c",
        f"echo trains; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo on; exit 3",
    )
    while not (folder / "train.log").exists() or "trains" not in (folder / "train.log").read_text():
        time.sleep(0.1)
        assert first.poll() is None
    second = run(folder, "true")
    assert second.wait() == 1
    assert "trains" in (folder / "train.log").read_text()
    (refused,) = folder.glob("refused-*.log")
    assert missing(refused.read_text(), f"process {first.pid}") == []
    (tmp_path / "go").touch()
    assert first.wait() == 3
    said = (folder / "train.log").read_text()
    assert "trains" in said and "\non\n" in said and "being made" not in said


def test_whether_a_run_is_made_is_asked_when_its_folder_is_held(tmp_path: Path) -> None:
    """Before that, the job that holds it may be about to finish it."""
    holding: list[bool] = []

    def is_made() -> bool:
        holding.append((tmp_path / hold.HOLDER).exists())
        return True

    with pytest.raises(SystemExit) as ended:
        job.run_alone(
            "one",
            tmp_path,
            tmp_path / "train.log",
            is_made,
            lambda: pytest.fail("it is made twice"),
        )
    assert (ended.value.code, holding) == (0, [True])


def test_a_late_job_leaves_the_finished_record_and_its_log(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    (folder / "train.log").write_text("it trained\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for asked in ({hold.ASKED: str(MADE_S - 1)}, {}):  # by a Snakemake, by hand
        assert run(folder, "false", **asked).wait() == 0
        (refused,) = folder.glob("refused-*.log")
        (line,) = refused.read_text().splitlines()
        assert missing(line, SPEC.id, "a record already") == []
        refused.unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (
        run(folder, "false", **{hold.ASKED: str(MADE_S + 1)}).wait() == 1
    )  # asked for anew: it is made again
    assert not (folder / MLLOG).exists() and (folder / "failed/failure.json").exists()


def test_a_job_of_inference_that_came_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "inference.json"
    record.write_text(json.dumps({"spec": {"batch": 1}}))
    for asked, spec, expected in ((1, 1, True), (1, 2, False), (-1, 1, False)):
        monkeypatch.setenv(hold.ASKED, str(time.time() - 60 * asked))
        assert infer.is_made(record, {"batch": spec}) is expected


def test_snakemake_still_removes_where_it_did() -> None:
    """The two methods of Snakemake that are replaced are there, and called with the same
    arguments.
    """
    for _ in range(2):
        snakemake_outputs.apply(("train",), hold.displaced_log, hold.print_refusals)
    assert [*signature(Job.remove_existing_output).parameters] == ["self"]
    assert [*signature(Job.cleanup).parameters] == ["self", "skip_outputs"]
