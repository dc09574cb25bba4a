"""Training on one real GPU. Skipped, with the reason, where there is none."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ddlbench import registry
from ddlbench.data import prepare
from ddlbench.plan import launch
from ddlbench.plan.runs import make_plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: torch.cuda.is_available() is false")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for form in ("raw", "tfrecord"):
        prepare.prepare("mnist5k", form, folder / form)
    return folder


@pytest.mark.parametrize("framework", registry.members("frameworks"))
@pytest.mark.parametrize(
    ("loader", "form"),
    [("native", "raw"), ("dali-cpu", "tfrecord"), ("dali-cpu", "raw"), ("dali-gpu", "tfrecord"), ("dali-gpu", "raw")],
)
def test_one_gpu_learns(framework: str, loader: str, form: str, data: Path, tmp_path: Path) -> None:
    for room, member in (("frameworks", framework), ("loaders", loader)):
        pytest.importorskip(registry.member(room, member).PACKAGE)
    machine = replace(load_machine("local"), device="cuda", workers_per_node=1)
    plan = make_plan(load_study("demo"), machine)
    spec = replace(next(iter(plan.runs.values())).spec, framework=framework, loader=loader, form=form, epochs=2)
    command = ["python", "-m", "ddlbench.run", "--spec", spec.to_json(), "--folder", str(tmp_path / "run")]
    command += ["--manifest", str(data / form / "manifest.json"), "--", *launch.command(spec, machine)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    loss = pq.read_table(tmp_path / "run/steps.parquet")["loss"].to_pylist()
    assert loss[-1] < loss[0] / 2
