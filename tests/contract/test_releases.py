"""The contract on other releases of PyTorch and of DeepSpeed than the pinned ones, each in an environment of its own.

`DDLBENCH_SLOW=1 pytest tests/contract/test_releases.py`: of each release some 10 minutes and 6 GB of disk. It is what
`make install TORCH=site` makes of a PyTorch that lies elsewhere. DDLBENCH_TORCH="2.14.1 0.29.1 3.13" names a release of
torch, its torchvision and a Python in place of those below, DDLBENCH_DEEPSPEED="0.19.8" a release of DeepSpeed;
DDLBENCH_RELEASES a folder that keeps the environments.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT, copy_project

pytestmark = pytest.mark.slow

UV = Path(sys.executable).with_name("uv")
DISK_GB = 8
# Each framework trains on two ranks as one process does, and all alike; every loader shows every picture; every patch
# does what it says, or refuses by name.
SUBSET = (
    "tests/contract/test_training.py",
    "tests/contract/test_samples.py::test_every_sample_once_an_epoch",
    "tests/contract/test_samples.py::test_loaders_give_the_same_pictures",
    "tests/contract/test_precision.py",
    "tests/unit/test_patches.py",
)


class Release(NamedTuple):
    """What belongs together."""

    torch: str
    torchvision: str
    python: str


RELEASES = [
    Release("2.11.0", "0.26.0", "3.12"),
    Release("2.14.1", "0.29.1", "3.13"),
]  # the oldest, and the newest
if named := os.environ.get("DDLBENCH_TORCH"):
    RELEASES = [Release(*named.split())]
DEEPSPEED = os.environ.get("DDLBENCH_DEEPSPEED", "0.19.8")  # the newest
# All stages of ZeRO train as one process does, go on from a saved state by the bit, and leave a whole record.
OF_DEEPSPEED = ("tests/contract/test_frameworks.py", "tests/contract/test_training.py")


def ran(*command: str | Path, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """A command without this environment's own paths."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "DDLBENCH_SLOW")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = {
        name: value for name, value in environment.items() if not name.startswith("PYTEST_")
    }
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def site(release: Release, folder: Path) -> Path:
    """Return the Python of a site: it has PyTorch of that release, and nothing of ours."""
    made = ran(UV, "venv", "--quiet", "--seed", "--python", release.python, folder)
    if made.returncode:
        pytest.skip(f"Python {release.python}: {made.stdout.strip()}")
    where = "import json, sys; sys.path.insert(0, 'envs'); import locked; print(json.dumps(locked.places()))"
    places = json.loads(ran(sys.executable, "-c", where).stdout)
    wanted = (f"torch=={release.torch}", f"torchvision=={release.torchvision}")
    python = folder / "bin/python"
    done = ran(UV, "pip", "install", "--quiet", "--python", python, *places, *wanted)
    if done.returncode:
        pytest.skip(f"{' '.join(wanted)}: {done.stdout.strip()[-500:]}")
    return python


@pytest.mark.parametrize(
    "release", RELEASES, ids=lambda release: f"torch{release.torch}-python{release.python}"
)
def test_the_contract_holds_on_other_releases_of_pytorch(release: Release, tmp_path: Path) -> None:
    """By the tests of the pinned one, under an environment that keeps the PyTorch that it finds."""
    if not UV.exists():
        pytest.skip("uv is not installed beside this Python: make install")
    folder = (
        Path(os.environ.get("DDLBENCH_RELEASES", tmp_path))
        / f"torch{release.torch}-python{release.python}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free / 1e9
    python = folder / "site/bin/python"
    if not python.exists():
        if free < DISK_GB:
            pytest.skip(f"{folder} has {free:.0f} GB free, and this needs {DISK_GB}")
        python = site(release, folder / "site")
    project = copy_project(folder / "project")
    installed = ran("make", "install", "TORCH=site", f"PYTHON={python}", cwd=project)
    assert installed.returncode == 0, installed.stdout
    own = project / ".venv/bin/python"
    found = ran(
        own, "-c", "import torch; print(torch.__version__, torch.__file__)", cwd=project
    ).stdout.split()
    assert found[0].partition("+")[0] == release.torch
    assert Path(found[1]).is_relative_to(folder / "site")
    options = ("-q", "-p", "no:cacheprovider", "-r", "sf", "--basetemp", folder / "tests")
    tested = ran(own, "-m", "pytest", *options, *SUBSET, cwd=project)
    print(tested.stdout[-3000:])
    assert tested.returncode == 0, tested.stdout[-20000:]


def test_a_newer_deepspeed_does_all_but_the_options_that_it_lost(tmp_path: Path) -> None:
    """Beside the pinned packages, in whose place it is found first. Cases of options that it lost
    are left out by their patches' guards (`engine_cases.py`).
    """
    folder = Path(os.environ.get("DDLBENCH_RELEASES", tmp_path)) / f"deepspeed{DEEPSPEED}"
    if not (folder / "packages/deepspeed").exists():
        options = ("--no-deps", "--no-build-isolation", "--target", folder / "packages")
        command = (UV, "pip", "install", "--quiet", "--python", sys.executable, *options)
        done = ran(*command, f"deepspeed=={DEEPSPEED}", DS_BUILD_OPS="0")
        if done.returncode:
            pytest.skip(f"deepspeed=={DEEPSPEED}: {done.stdout.strip()[-500:]}")
    found_first = {"PYTHONPATH": str(folder / "packages")}
    version = ran(
        sys.executable, "-c", "import deepspeed; print(deepspeed.__version__)", **found_first
    )
    assert version.stdout.split()[-1] == DEEPSPEED
    # 0.19.8 looks at the norm of gradients on the host in each step of ZeRO 1 to 3: one wait more.
    chosen = "(deepspeed or zero or offload) and not makes_the_host_wait"
    options = ("-q", "-p", "no:cacheprovider", "-k", chosen)
    basetemp = f"--basetemp={folder / 'tests'}"
    tested = ran(sys.executable, "-m", "pytest", *options, basetemp, *OF_DEEPSPEED, **found_first)
    print(tested.stdout[-3000:])
    assert tested.returncode == 0, tested.stdout[-20000:]
