"""Training on one GPU. Skipped, with the reason, where there is none."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ddlbench.core import registry
from ddlbench.data import prepare
from ddlbench.plan import launch
from ddlbench.preflight import nodes, scout, screen
from ddlbench.settings.machine import load_machine

from tests.gpu import DEVICE, needs
from tests.specs import run_spec

pytestmark = needs()
ROOM = registry.members("loaders")
READERS = [(loader, form) for loader in ROOM for form in registry.member("loaders", loader).FORMS]
# Each framework and each loader once: every pair would take ten minutes.
PAIRS = [
    (framework, *reader)
    for framework in registry.members("frameworks")
    for reader in READERS
    if framework == "ddp" or reader == ("native", "raw")
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for form in registry.members("forms"):
        prepare.prepare("mnist5k", form, folder / form)
    return folder


@pytest.mark.parametrize(("framework", "loader", "form"), PAIRS)
def test_one_gpu_learns(framework: str, loader: str, form: str, data: Path, tmp_path: Path) -> None:
    for room, member in (("frameworks", framework), ("loaders", loader)):
        if not registry.importable(registry.member(room, member).PACKAGE):
            pytest.skip(f"{member} is not installed")
    if registry.member("loaders", loader).DEVICE not in (None, DEVICE):
        pytest.skip(f"loader {loader} needs another device")
    machine = replace(load_machine("local"), device=DEVICE, workers_per_node=1)
    further = registry.member("loaders", loader).FORMS[1:]  # the first is what a loader reads unless it is told
    spec = run_spec(framework=framework, loader=loader, form=form if form in further else None, device=DEVICE, epochs=4)
    assert spec.reads == form
    command = ["python", "-m", "ddlbench.run", "--spec", spec.to_json(), "--folder", str(tmp_path / "run")]
    command += ["--manifest", str(data / form / "manifest.json"), "--", *launch.command(spec, machine)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    loss = pq.read_table(tmp_path / "run/steps.parquet")["loss"].to_pylist()
    assert loss[-1] < loss[0] / 2


@needs("cuda")
def test_this_gpu_is_screened() -> None:
    """Put under load as the preflight does it."""
    facts = scout.gpus(0)
    seen = screen.look("cuda", facts)
    screen.strain(seen, "cuda", facts)
    (row,) = nodes.rows([seen])
    assert row["verdict"] in (nodes.PASS, nodes.FAIL)  # it may be a faulty one; then `why` says so
    assert bool(row["why"]) == (row["verdict"] == nodes.FAIL)
    assert row["kind"] == facts["gpu"]["name"]
    assert row["matmul_flops_per_s"] > 1e12  # any GPU that has bf16
    assert row["memory_bytes_per_s"] > 5e10
