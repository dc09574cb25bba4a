"""Benchmarks still run, with the smallest sizes: their numbers then say nothing, so only a
traceback is an error.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm.conftest import PACKAGES

pytestmark = pytest.mark.slow
TINY = {
    "plan.py": ("--runs", "19", "--pairs", "1"),
    "intervals.py": ("--trials", "10"),
    "mlperf.py": ("--mib", "2"),
    "recorder.py": ("--steps", "100", "--rounds", "2"),
    "overhead.py": ("--frameworks", "ddp", "--workers", "1", "--starts", "1", "--epochs", "2"),
    "trainers.py": ("--starts", "1", "--epochs", "2", "--images", "128", "--size", "32"),
    "data.py": ("--images", "400", "--names", "2000", "--repeats", "1"),
    "page.py": ("--opens", "1", "--studies", "demo"),
    "prediction.py": ("--simulated", "2"),
    "loaders.py": (
        "--images",
        "128",
        "--rounds",
        "1",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--sides",
        "native",
        "timm",
    ),
    "decoding.py": ("--images", "20", "--rounds", "1"),
    "scale.py": ("--tiny",),
    "answers.py": ("--trials", "8"),
    "claims.py": ("--tries", "1"),
    "rounds.py": ("--trials", "400", "--studies", "1"),
    "pauses.py": ("--tries", "2"),
    "collecting.py": ("--runs", "20", "--pairs", "1"),
    "planted.py": ("--table",),
    "mutants.py": ("--modules", "core/schedule.py", "--sample", "2", "--out", "{folder}/out"),
    "slurm.py": ("--jobs", "1"),
}


@pytest.mark.parametrize("name", TINY)
def test_it_runs(name: str, tmp_path: Path) -> None:
    if name == "mutants.py" and find_spec("mutmut") is None:
        pytest.skip("no mutmut: bench/README.md says which")
    if name == "decoding.py" and not Path("/usr/include/jpeglib.h").exists():
        pytest.skip("no headers: apt-get install libjpeg62-turbo-dev")
    if name == "scale.py" and not shutil.which("strace"):
        pytest.skip("no strace: apt-get install strace")
    if name == "slurm.py" and (
        os.geteuid() != 0 or not shutil.which("slurmctld", path="/usr/sbin")
    ):
        pytest.skip(f"needs root, and: apt-get install {' '.join(PACKAGES)}")
    command = [
        sys.executable,
        str(ROOT / "bench" / name),
        *(text.format(folder=tmp_path) for text in TINY[name]),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=500
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert re.search(r"\d", done.stdout), done.stderr


def test_every_command_of_the_page_is_tried() -> None:
    page = (ROOT / "bench/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"python bench/(\w+\.py)", page)) == {*TINY}
