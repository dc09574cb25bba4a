"""Each way to serve answers as the plain model does; and a job of two ranks leaves a whole record.

Daily the two that start quickly; DeepSpeed, the compiler and real ranks in the slow tier.
"""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from ddlbench.core import heartbeats, notes, registry
from ddlbench.core.record import WEIGHTS
from ddlbench.plan import launch
from ddlbench.run.job import FAILURE
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.train import models
from ddlbench.train.inference import AT_LEAST, InferSpec, Way, _measure
from ddlbench.train.inference_record import FAILED, PARTIAL, RECORD

from tests.builders.plans import infer_spec, run_spec
from tests.conftest import PATHS, shared, until
from tests.contract import launches

QUICK = ("plain", "int8")
SPLITTING = [
    name for name in registry.members("inference") if registry.member("inference", name).SPLITS
]
ALONE = [name for name in registry.members("inference") if name not in SPLITTING]
# Of scores of about 1: rounding in 32 bits, in bf16, and of 8-bit integers.
TOLERANCE = {"fp32": 1e-5, "bf16": 0.03}
INT8_TOLERANCE = 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ALONE],
    ids=lambda n: n,
)
def test_a_way_answers_as_the_plain_model(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    way: Way = registry.member("inference", name)
    assert way.lacks("cpu") is None
    torch.manual_seed(1)
    model = models.build("lenet", 10, 32).eval()
    kind = _measure.take_precision(model, precision)
    plain_bytes = _measure.weights_bytes(model)
    assert (
        plain_bytes
        == sum(p.numel() for p in model.parameters()) * {"fp32": 4, "bf16": 2}[precision]
    )
    images = torch.randn(8, 3, 32, 32).to(kind)
    tolerance = INT8_TOLERANCE if name == "int8" else TOLERANCE[precision]
    with torch.inference_mode():
        wanted = model(images)
        served = way.ready(copy.deepcopy(model))
        for batch in (1, 8):
            torch.testing.assert_close(
                served(images[:batch]), wanted[:batch], rtol=0, atol=tolerance
            )
    held = _measure.weights_bytes(served)
    eighth = {"fp32": 0.4, "bf16": 0.7}[precision]  # convolutions stay as they were
    assert held < eighth * plain_bytes if name == "int8" else held == plain_bytes


def start(spec: InferSpec, folder: Path, data: Path, *trained: str) -> subprocess.Popen[str]:
    """What rule `infer` calls."""
    command = launch.command(
        spec, load_machine("local"), ("python", "-m", "ddlbench.train.inference")
    )
    given = [
        "--folder",
        str(folder),
        "--spec",
        spec.to_json(),
        "--manifest",
        str(data / "raw/manifest.json"),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "ddlbench.run.infer", *given, *trained, "--", *command],
        env=os.environ | {"PATH": PATHS["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def job(
    spec: InferSpec, folder: Path, data: Path, *trained: str
) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    process = start(spec, folder, data, *trained)
    said, _ = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, said)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", SPLITTING)
def test_two_ranks_share_a_model_and_answer_alike(
    name: str, precision: str, data: Path, tmp_path: Path
) -> None:
    recipe = replace(load_recipe("demo").at(64), precision=precision)
    run = run_spec(machine="local", model="lenet", recipe=recipe)
    trained = tmp_path / "run"
    trained.mkdir()
    torch.manual_seed(7)  # other weights than those of the run's seed
    torch.save(models.build("lenet", 10, 32).state_dict(), trained / WEIGHTS)
    spec = infer_spec(run=run, member=name, workers=2, workers_per_node=2, batches=(1, 5))
    done = job(spec, tmp_path / "job", data, "--trained", str(trained / "run.mllog"))
    assert done.returncode == 0, done.stdout
    assert [path.name for path in (tmp_path / "job").iterdir()] == [RECORD]
    record = json.loads((tmp_path / "job" / RECORD).read_text())
    assert record["took_s"] > 1
    assert InferSpec.from_json(json.dumps(record["spec"])) == spec
    assert record["images"] == launches.IMAGES["val"]
    if precision == "fp32":
        assert record["other_answers"] == 0
        assert record["correct"] == record["plain_correct"]
    assert record["largest_difference"] < TOLERANCE[precision]
    weights = sum(p.numel() for p in models.build("lenet", 10, 32).parameters())
    assert record["plain_weights_bytes"] == weights * {"fp32": 4, "bf16": 2}[precision]
    assert record["weights_bytes"] == record["plain_weights_bytes"] / 2
    assert [row["batch"] for row in record["batches"]] == [1, 5]
    assert all(len(row["latencies_s"]) >= AT_LEAST for row in record["batches"])
    initial = job(replace(spec, trained=False), tmp_path / "initial", data)
    assert initial.returncode == 0, initial.stdout
    other = json.loads((tmp_path / "initial" / RECORD).read_text())
    assert other["weights_sha256"] != record["weights_sha256"]
    shutil.rmtree(trained)
    done = job(spec, tmp_path / "again", data, "--trained", str(trained / "run.mllog"))
    assert done.returncode == 1
    assert f"{trained / WEIGHTS}: is missing" in done.stdout


@pytest.mark.slow
def test_a_model_of_the_users_answers_with_its_trained_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", f"{launches.HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    run = launches.spec_of("own", "ddp", 1)
    torch.manual_seed(7)
    torch.save(
        models.build(run.model, 10, 32, sha256=run.model_sha256).state_dict(), tmp_path / WEIGHTS
    )
    spec = infer_spec(run=run, batches=(1,))
    done = job(spec, tmp_path / "job", data, "--trained", str(tmp_path / "run.mllog"))
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "job" / RECORD).read_text())["other_answers"] == 0


@pytest.fixture
def slicing(data: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], list[psutil.Process], Path]:
    """A job of two ranks that is asking: its supervisor, its ranks, its folder."""
    run = run_spec(machine="local", model="vgg16")  # slow enough to be hit
    spec = infer_spec(
        run=run,
        trained=False,
        member="tensor-slicing",
        workers=2,
        workers_per_node=2,
        batches=(64,),
    )
    folder = tmp_path / "job"
    supervisor = start(spec, folder, data)
    until(
        lambda: (
            (folder / PARTIAL / "beat-0").exists()
            and len(notes.read(folder / PARTIAL, "rank")) == 2
        ),
        120,
    )
    time.sleep(8 * shared())  # both ranks have beaten by now
    ranks = [
        psutil.Process(who["pid"])
        for _, who in sorted(notes.read(folder / PARTIAL, "rank").items())
    ]
    return supervisor, ranks, folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hit", "soon_s", "cause", "says"),
    [
        (signal.SIGKILL, 20.0, "killed", "rank 1 was killed without an error message"),
        (
            signal.SIGSTOP,
            heartbeats.noticed_s(heartbeats.SILENT_S, 1) + 15,
            "stopped answering",
            "is stopped (SIGSTOP)",
        ),
    ],
)
def test_a_rank_that_dies_or_stops_ends_the_job_with_one_message(
    hit: signal.Signals,
    soon_s: float,
    cause: str,
    says: str,
    slicing: tuple[subprocess.Popen[str], list[psutil.Process], Path],
) -> None:
    supervisor, ranks, folder = slicing
    ranks[1].send_signal(hit)
    began = time.monotonic()
    said, _ = supervisor.communicate(timeout=200)
    assert time.monotonic() - began < soon_s * shared()
    assert supervisor.returncode != 0
    message = said.splitlines()[-1]
    assert " failed: rank 1 " in message
    assert says in message
    report = json.loads((folder / FAILED / FAILURE).read_text())
    assert (report["cause"], report["rank"]) == (cause, 1)
    assert not any(_lives(rank) for rank in ranks)
    assert [path.name for path in folder.iterdir()] == [FAILED]


@pytest.mark.slow
def test_ranks_end_with_a_supervisor_that_is_killed(
    slicing: tuple[subprocess.Popen[str], list[psutil.Process], Path],
) -> None:
    supervisor, ranks, folder = slicing
    supervisor.kill()
    supervisor.wait()
    until(lambda: not any(_lives(rank) for rank in ranks), 4 * heartbeats.HEARTBEAT_S)
    assert not (folder / RECORD).exists()


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
