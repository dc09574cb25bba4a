"""Each way to serve answers as the plain model does; and a job of two ranks leaves a whole record.

Daily the two that start quickly; DeepSpeed, the compiler and real ranks in the slow tier.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddlbench import registry
from ddlbench.inference import InferSpec, Way, _measure
from ddlbench.inference._record import RECORD
from ddlbench.plan import launch
from ddlbench.rank import models
from ddlbench.record import WEIGHTS
from ddlbench.settings.machine import load_machine

from tests.contract import launches
from tests.specs import run_spec

QUICK = ("plain", "int8")
SPLITTING = [name for name in registry.members("inference") if registry.member("inference", name).SPLITS]
ALONE = [name for name in registry.members("inference") if name not in SPLITTING]
# Of scores of about 1: rounding in 32 bits, and of 8-bit integers.
TOLERANCE = {"int8": 0.1}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ALONE], ids=lambda n: n
)
def test_a_way_answers_as_the_plain_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    way: Way = registry.member("inference", name)
    assert way.lacks("cpu") is None
    torch.manual_seed(1)
    model = models.build("lenet", 10, 32).eval()
    plain_bytes = _measure.weights_bytes(model)
    images = torch.randn(8, 3, 32, 32)
    with torch.inference_mode():
        wanted = model(images)
        served = way.ready(copy.deepcopy(model))
        for batch in (1, 8):
            torch.testing.assert_close(served(images[:batch]), wanted[:batch], rtol=0, atol=TOLERANCE.get(name, 1e-5))
    held = _measure.weights_bytes(served)
    assert held < 0.4 * plain_bytes if name == "int8" else held == plain_bytes


def job(spec: InferSpec, folder: Path, data: Path, *trained: str) -> subprocess.CompletedProcess[str]:
    """What rule `infer` calls."""
    command = launch.command(spec, load_machine("local"), ("python", "-m", "ddlbench.inference"))
    given = ["--folder", str(folder), "--spec", spec.to_json(), "--manifest", str(data / "mnist5k/raw/manifest.json")]
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "ddlbench.run.infer", *given, *trained, "--", *command],
        env=os.environ | {"PATH": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLITTING)
def test_two_ranks_share_a_model_and_answer_alike(name: str, data: Path, tmp_path: Path) -> None:
    run = run_spec(machine="local", model="lenet")
    trained = tmp_path / "run"
    trained.mkdir()
    torch.manual_seed(7)  # other weights than those of the run's seed
    torch.save(models.build("lenet", 10, 32).state_dict(), trained / WEIGHTS)
    spec = InferSpec(run=run, trained=True, member=name, workers=2, workers_per_node=2, batches=(1, 5), repeat=1)
    done = job(spec, tmp_path / "job", data, "--trained", str(trained / "run.mllog"))
    assert done.returncode == 0, done.stdout
    assert [path.name for path in (tmp_path / "job").iterdir()] == [RECORD]
    record = json.loads((tmp_path / "job" / RECORD).read_text())
    assert InferSpec.from_json(json.dumps(record["spec"])) == spec
    assert record["images"] == launches.IMAGES["val"]
    assert record["other_answers"] == 0
    assert record["largest_difference"] < 1e-5
    assert record["correct"] == record["plain_correct"]
    assert record["weights_bytes"] == record["plain_weights_bytes"] / 2
    assert [row["batch"] for row in record["batches"]] == [1, 5]
    assert all(len(row["latencies_s"]) >= _measure.AT_LEAST for row in record["batches"])
    initial = job(InferSpec(**{**vars(spec), "trained": False}), tmp_path / "initial", data)
    assert initial.returncode == 0, initial.stdout
    other = json.loads((tmp_path / "initial" / RECORD).read_text())
    assert other["weights_sha256"] != record["weights_sha256"]
    shutil.rmtree(trained)
    done = job(spec, tmp_path / "job", data, "--trained", str(trained / "run.mllog"))
    assert done.returncode == 1
    assert f"{trained / WEIGHTS}: is missing" in done.stdout
