"""A real install without a network: what `make wheelhouse` brings is enough for `make install`, and
for a dry run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, copy_project


@pytest.mark.slow
def test_an_install_in_a_network_without_a_route(tmp_path: Path) -> None:
    if (
        os.geteuid() != 0
        or shutil.which("unshare") is None
        or not (ROOT / ".venv/.installed").exists()
    ):
        pytest.skip("needs root, unshare and an installed .venv")
    here, there = (
        copy_project(tmp_path / "with network"),
        copy_project(tmp_path / "without network"),
    )
    (here / ".venv").symlink_to(ROOT / ".venv")
    wheels = tmp_path / "my wheels"
    subprocess.run([here / "envs/wheelhouse.sh", wheels], check=True, stdout=subprocess.DEVNULL)
    apart = [
        "unshare",
        "--net",
        "make",
        "install",
        f"WHEELHOUSE={wheels}",
        f"PYTHON={sys.executable}",
    ]
    done = subprocess.run(apart, cwd=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    dry_run = [".venv/bin/snakemake", "-n", "--workflow-profile", "none", "--config", "study=demo"]
    planned = subprocess.run(
        ["unshare", "--net", *dry_run], cwd=there, capture_output=True, text=True, check=False
    )
    assert planned.returncode == 0, planned.stdout
