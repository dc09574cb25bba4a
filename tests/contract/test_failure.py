"""A run that fails ends soon and non-zero, leaves no process and nothing that looks like a record.

Ranks that are killed are in test_resume.py: their runs go on afterwards.
"""

import os
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from ddlbench.plan import launch
from ddlbench.slurm import step
from ddlbench.train.frameworks import _common

from tests.conftest import shared
from tests.contract import launches
from tests.contract.launches import FRAMEWORKS, TWO, on_two
from tests.disks import small_disk
from tests.facts import missing

ENDS_WITHIN_S = 60
# DataLoader's worker processes look for their parent every five seconds.
LINGER_S = 8


def assert_failed(outcome: launches.Outcome) -> None:
    assert_gone(outcome.marker)
    assert outcome.code != 0
    assert outcome.took_s < ENDS_WITHIN_S * shared()
    assert [p.name for p in outcome.folder.iterdir()] == ["failed"]
    assert (outcome.folder / "failed" / "assignment.json").is_file()


def assert_blamed(outcome: launches.Outcome, cause: str, rank: int | None) -> None:
    """The failure names the cause, the rank and its host, in its file and in the last line that
    people see.
    """
    told = outcome.failure
    assert (told["cause"], told["rank"]) == (cause, rank), told
    assert told["host"] == (None if rank is None else socket.gethostname())
    assert told["message"] in outcome.output.splitlines()[-1]


def assert_gone(marker: str) -> None:
    deadline = time.monotonic() + LINGER_S * shared()
    while (left := launches.survivors(marker)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:  # the test fails, and still leaves nothing behind
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == {}


@pytest.fixture
def launched(tmp_path, data):
    """`launched("ddp", "nan")`: what is left of a run of two ranks, of which one does that in its
    third step.
    """

    def execute(framework, misdeed="nothing", rank=1, data=data, **how):
        spec = launches.spec_of("plain", framework, 2)
        launches.need(spec)
        told = {"PROBE_FAILS": str(rank), "PROBE_DOES": misdeed} | how.pop("environment", {})
        return launches.execute(spec, tmp_path / framework / spec.id, data, environment=told, **how)

    return execute


@pytest.mark.parametrize("framework", on_two())
def test_a_rank_raises_while_others_wait(launched, framework):
    outcome = launched(framework, "raise")
    assert_failed(outcome)
    assert missing(outcome.output, "the probe fails") == []
    assert_blamed(outcome, "exception", 1)
    assert (outcome.folder / "failed" / "run.mllog").is_file()  # how far it came


@pytest.mark.more
@pytest.mark.parametrize("framework", on_two())
def test_a_run_is_interrupted(tmp_path, data, framework):
    """SIGINT, as from a person who wants it gone, in the midst of training: no checkpoint, no
    wait.
    """
    spec = replace(launches.spec_of("plain", framework, 2), epochs=10_000)
    launches.need(spec)
    folder = tmp_path / spec.id
    process, marker = launches.start(spec, folder, data)
    log, deadline = folder / ".partial" / "run.mllog", time.monotonic() + ENDS_WITHIN_S * shared()
    while not (log.is_file() and "epoch_start" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (
        len(launches.survivors(marker)) > spec.workers
    )  # the search finds processes while there are some
    process.send_signal(signal.SIGINT)
    outcome = launches.finish(spec, folder, process, marker)
    assert_failed(outcome)
    assert outcome.failure["cause"] == "ended by a signal"


@pytest.mark.slow
@pytest.mark.parametrize(
    "frameworks", [TWO, pytest.param(FRAMEWORKS, marks=pytest.mark.slow)], ids=["two", "all"]
)
def test_a_rank_is_stopped(launched, frameworks):
    """SIGSTOP: it holds its connections and says nothing. All frameworks at once: each run only
    waits.
    """
    for framework in frameworks:
        launches.need(launches.spec_of("plain", framework, 2))
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda framework: launched(framework, "stop"), frameworks))
    for outcome in outcomes:
        assert_gone(outcome.marker)
        assert outcome.code != 0
        stopped = (outcome.folder.parent / "misdeed").stat().st_mtime
        assert outcome.failure["time"] - stopped < ENDS_WITHIN_S * shared()
        assert_blamed(outcome, "stopped answering", 1)
        assert "SIGSTOP" in outcome.failure["message"]
        assert "Timed out" not in outcome.output, "the other rank ended first"


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_hangs(launched, framework):
    """It lives and sends heartbeats, and does not come to the collective of its third step."""
    machine = replace(launches.local_machine(), silent_s=5, start_timeout_s=30)
    outcome = launched(framework, "hang", machine=machine)
    waits_s = _common.timeout_s(outcome.spec, machine)
    assert_gone(outcome.marker)
    assert outcome.code != 0
    # Horovod looks every minute.
    assert 0.9 * waits_s < outcome.took_s < waits_s + 90 * shared()
    assert_blamed(outcome, "stopped answering", 1)
    assert missing(outcome.failure["message"], "rank 1", "collective") == []


@pytest.mark.more
@pytest.mark.parametrize("framework", on_two(daily=("ddp",)))
def test_a_loss_is_no_number(launched, framework):
    outcome = launched(framework, "nan", rank=0)
    assert_failed(outcome)
    assert_blamed(outcome, "loss is not finite", 0)
    assert missing(outcome.failure["message"], "step 2", "nan") == []


@pytest.mark.slow
def test_a_crash_in_compiled_code_leaves_where_it_was(launched):
    outcome = launched("ddp", "abort")
    assert_failed(outcome)
    assert_blamed(outcome, "killed", 1)
    assert "Fatal Python error: Aborted" in outcome.output
    assert 'probe.py", line' in outcome.output


@pytest.mark.more
def test_out_of_memory(launched):
    outcome = launched("ddp", "memory")
    assert_failed(outcome)
    assert_blamed(outcome, "out of memory", 1)


@pytest.mark.more
def test_the_disk_is_full(tmp_path, data, run):
    """While a run logs; the record of another run on that disk stays whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, "400k"):
        earlier = run("plain", "ddp", 2)
        for name in ("run.mllog", "steps.parquet"):
            shutil.copy(earlier.folder / name, disk / name)
        spec = replace(earlier.spec, epochs=200)
        outcome = launches.execute(spec, disk / spec.id, data, checkpoint_minutes=1e-6)
        assert outcome.code not in (0, 75), outcome.output
        assert missing(outcome.output.lower(), "no space left") == []
        assert outcome.failure["cause"] == "disk full"
        assert outcome.seconds < 3 * ENDS_WITHIN_S * shared()
        for name in ("run.mllog", "steps.parquet"):
            assert (earlier.folder / name).read_bytes() == (disk / name).read_bytes()
        assert not (disk / spec.id / "run.mllog").exists()
        assert_gone(outcome.marker)


@pytest.mark.more
@pytest.mark.parametrize(("framework", "job"), [("ddp", "4711"), ("horovod", "4712")])
def test_a_port_is_in_use(launched, framework, job):
    """Under srun the ports follow from the job's id: another program may have one."""
    machine = replace(launches.local_machine(), launcher="slurm")
    with socket.socket() as taken, socket.socket() as taken_too:
        task = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": job}
        port = int(step.variables(task, "")["MASTER_PORT"])
        for number, one in enumerate((taken, taken_too)):
            one.bind(("", port + number))
            one.listen()
        outcome = launched(framework, machine=machine, environment={"SRUN_JOB_ID": job})
    assert_failed(outcome)
    assert_blamed(outcome, "port in use", 0)
    # The first port is torch.distributed's, the second that of Horovod's rendezvous.
    assert str(port + (framework == "horovod")) in outcome.failure["message"]


@pytest.mark.more
def test_data_is_missing(launched, tmp_path):
    outcome = launched("ddp", data=tmp_path / "nowhere")
    assert_failed(outcome)
    assert str(tmp_path / "nowhere" / "raw" / "manifest.json") in outcome.output


@pytest.mark.more
@pytest.mark.parametrize("framework", on_two(daily=("ddp",)))
def test_another_number_of_ranks_is_refused(launched, framework):
    alone = launch.command(launches.spec_of("plain", framework, 1), launches.local_machine())
    outcome = launched(framework, command=alone)
    assert_failed(outcome)
    assert missing(outcome.output, "expected 2 ranks", "started 1") == []
