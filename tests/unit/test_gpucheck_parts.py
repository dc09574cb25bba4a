"""The whole check of one GPU, on a CPU with small sizes: as somebody would start it."""

import json
import subprocess
from pathlib import Path

import pytest
from ddlbench.commands.gpucheck import FAIL, PARTS, VERDICTS

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    folder = tmp_path / "check"
    command = ["make", "gpu-check", "DEVICE=cpu", f"CHECK=--folder {folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = json.loads((folder / "gpu-check.json").read_text())
    assert [row for row in said["rows"] if row["verdict"] == FAIL] == []
    assert (done.returncode, said["verdict"]) == (0, "PASS"), done.stdout + done.stderr
    assert {row["part"] for row in said["rows"]} == set(PARTS)
    assert {row["verdict"] for row in said["rows"]} <= set(VERDICTS)
    assert said["note"] in done.stdout
    for row in said["rows"]:
        assert row["compared"]
        assert row["what"] in done.stdout
