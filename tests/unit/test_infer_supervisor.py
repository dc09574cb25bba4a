"""The supervisor of a job of inference, with stand-ins for launcher and ranks: what it keeps, and
whom it blames.

Real ranks: tests/contract/test_inference.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ddlbench.core.record import MLLOG, WEIGHTS
from ddlbench.data.prepare import write_form
from ddlbench.run import infer
from ddlbench.run.hold import held
from ddlbench.settings.config import ConfigError

from tests.builders.plans import infer_spec, run_spec
from tests.builders.records import seal_again, write_record
from tests.facts import missing, refuses
from tests.sources import some

# A launcher of two ranks, which ends when one of them does; rank 1 does what the case says.
LAUNCHER = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
folder, does, rank = Path(sys.argv[-1]), sys.argv[1], os.environ.get("RANK")
if rank is None:
    ranks = [subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=os.environ | {"RANK": str(r)}) for r in (0, 1)]
    while not any(codes := [r.poll() for r in ranks]) and None in codes: time.sleep(0.05)
    sys.exit(any(codes))
from ddlbench.core import heartbeats, notes
told = json.loads((folder / "assignment.json").read_text())
notes.introduce(folder, int(rank), int(rank))
heartbeats.keep_beating(folder, int(rank), int(rank), 1, told["silent_s"])
if rank == "1":
    time.sleep(0.5)
    if does == "stops": os.kill(os.getpid(), signal.SIGSTOP)
    if does == "raises": notes.report(folder, 1, ValueError("no such picture")); os._exit(1)
if does in ("stops", "raises"): time.sleep(60)
if rank == "0" and does == "answers":
    (folder / "inference.json").write_text(json.dumps({"format": 1, "spec": told["spec"], "facts": told["facts"]}))
heartbeats.end(folder, int(rank))
"""


@dataclass(frozen=True)
class Job:
    """A job's folder and what its supervisor left there."""

    folder: Path
    code: int
    output: str

    @property
    def left(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def execute(tmp_path: Path, does: str, silent_s: float = 40.0) -> Job:
    """In a process of its own, because it takes over signals; a failure of an earlier try lies
    there.
    """
    spec = infer_spec(
        trained=False, member="tensor-slicing", workers=2, workers_per_node=2, batches=(1,)
    )
    folder, data = tmp_path / "job", tmp_path / "data"
    write_form(lambda: some(12, 6), "mnist5k", "raw", data)
    if does == "has no picture":
        shutil.rmtree(data / "val")
    (folder / "failed").mkdir(parents=True)
    (folder / "failed" / "failure.json").write_text(json.dumps({"cause": "disk full"}))
    (folder / "inference.json").write_text("the record of an earlier job")
    code = "import json, sys; from pathlib import Path; from ddlbench.run import infer; "
    code += "spec = infer.InferSpec.from_json(sys.argv[1]); job, data = map(Path, sys.argv[2:4]); "
    code += (
        "sys.exit(infer.execute(spec, job, data, None, json.loads(sys.argv[4]),"
        " float(sys.argv[5])))"
    )
    launcher = json.dumps([sys.executable, "-c", LAUNCHER, does])
    argv = [
        sys.executable,
        "-c",
        code,
        spec.to_json(),
        str(folder),
        str(data),
        launcher,
        str(silent_s),
    ]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    return Job(folder, done.returncode, done.stdout)


@pytest.mark.parametrize(
    "what", ["weights are gone", "weights are others", "no seal", "another seal"]
)
def test_weights_that_are_not_those_of_a_sealed_run_are_not_asked(
    tmp_path: Path, what: str
) -> None:
    trained = write_record(tmp_path)
    log, weights = trained / MLLOG, trained / WEIGHTS
    weights.write_bytes(b"weights")
    seal_again(trained)
    if what == "weights are gone":
        weights.unlink()
    elif what == "weights are others":
        weights.write_bytes(b"others")
    elif what == "no seal":
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    else:
        log.write_text(log.read_text().replace("run_stop", "run_stap"))
    blamed = weights if "weights" in what else log
    with pytest.raises(
        ConfigError, match=rf"^{re.escape(str(blamed))}: .*{re.escape(str(trained))}"
    ):
        infer.execute(infer_spec(), tmp_path / "job", tmp_path / "data", trained, [], 1.0)
    assert not (tmp_path / "job").exists()


def test_what_ranks_leave_becomes_the_record(tmp_path: Path) -> None:
    job = execute(tmp_path, "answers")
    assert job.code == 0, job.output
    assert job.left == {"inference.json"}
    record = json.loads((job.folder / "inference.json").read_text())
    assert record["format"] == 1
    assert record["facts"]["host"]
    assert 0.2 < record["took_s"] < 100


@pytest.mark.parametrize(
    ("does", "cause", "facts"),
    [
        pytest.param(
            "raises", "exception", ("rank 1", "ValueError: no such picture"), marks=pytest.mark.slow
        ),
        ("stops", "stopped answering", ("rank 1", "7 s", "SIGSTOP")),
    ],
)
def test_a_rank_that_fails_ends_the_job_and_is_named(
    does: str, cause: str, facts: tuple[str, ...], tmp_path: Path
) -> None:
    job = execute(
        tmp_path, does, 7.0
    )  # ranks send heartbeats every 5 s, and late where the machine is busy
    assert job.code != 0
    message = job.output.splitlines()[-1]
    assert missing(message, " failed: ", *facts) == [] and " (on " in message
    assert missing(message, f"{job.folder}/failed") == []
    assert job.left == {"failed"}  # neither a record of before, nor that of another try
    report = json.loads((job.folder / "failed/failure.json").read_text())
    assert (report["cause"], report["rank"]) == (cause, 1)


@pytest.mark.slow
def test_a_launcher_that_ends_well_without_a_record_is_a_failure(tmp_path: Path) -> None:
    job = execute(tmp_path, "nothing")
    assert job.code == 1
    assert missing(job.output, "inference.json") == []
    assert job.left == {"failed"}


def test_only_one_supervisor_makes_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = infer_spec(run=run_spec(machine="local"), trained=False)
    given = [
        "--folder",
        str(tmp_path),
        "--spec",
        spec.to_json(),
        "--manifest",
        str(tmp_path / "manifest.json"),
    ]
    monkeypatch.setattr(sys, "argv", ["infer", *given, "--", "true"])
    with held(tmp_path), refuses(SystemExit, f"process {os.getpid()}"):
        infer.main()


def test_damaged_pictures_are_named_before_a_rank_starts(tmp_path: Path) -> None:
    job = execute(tmp_path, "has no picture")
    assert (job.code, job.left) == (1, {"failed"})
    failure = json.loads((job.folder / "failed/failure.json").read_text())
    assert failure["cause"] == "data damaged"
    assert missing(failure["message"], f"{tmp_path}/data: val/class0/: ", "No such file") == []
