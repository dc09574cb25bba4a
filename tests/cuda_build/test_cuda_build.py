"""`make install GPU=1` from nothing, in a temporary folder, and what comes of it; no GPU is needed.

`DDLBENCH_SLOW=1 pytest tests/cuda_build`: 20 minutes on 2 cores, 4 GB of downloads, 20 GB of disk.
PYTHON says which Python (3.11 or 3.12), DALI which build of DALI (cuda120 or cuda130), as `make
install` does. DDLBENCH_CUDA_BUILD names a clone where `make install GPU=1` was done already: then
that one is tried, in a minute, and nothing is made.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.plan import launch
from ddlbench.settings.machine import load_machine

from tests.builders.plans import run_spec
from tests.conftest import copy_project

pytestmark = [pytest.mark.slow, pytest.mark.cuda_build]

DISK_GB = 20
# What DALI opens by name. Not those of the driver (libcuda, libnvcuvid), and not libcufile, which
# reads files past the file cache where a site has set that up.
OPENED = re.compile(rb"\0(lib(?:cufft|npp[a-z]+|nvcomp|nvimgcodec|nvjpeg[0-9a-z]*))\.so")
# pip as it comes: a machine may be set up to look at wheels of its own, builds for CPUs among them.
LOCAL_WHEELS = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Of everything that the tests start."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in LOCAL_WHEELS and name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME")
    }
    return kept | {"PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def installed(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Path]:
    """A copy of the project with .venv for GPUs, Horovod compiled anew; or the clone that is
    named.
    """
    if named := os.environ.get("DDLBENCH_CUDA_BUILD"):
        yield Path(named).absolute()
        return
    folder = tmp_path_factory.mktemp("cuda-build")
    free = shutil.disk_usage(folder).free / 1e9
    if free < DISK_GB:
        pytest.skip(f"{folder} has {free:.0f} GB free, and this needs {DISK_GB}")
    project = copy_project(folder / "project")
    own = environment | {"XDG_CACHE_HOME": str(folder / "cache"), "GPU": "1"}
    done = subprocess.run(
        ["make", "install", "GPU=1"], cwd=project, env=own, capture_output=True, text=True
    )
    if "could not be fetched" in done.stderr:
        pytest.skip(f"no network, or not all packages: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    yield project
    shutil.rmtree(folder)


def python(project: Path, environment: dict[str, str], program: str) -> str:
    """What the program prints under the environment for GPUs."""
    command = [str(project / ".venv/bin/python"), "-c", program]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_horovod_has_nccl_of_the_version_that_torch_has(
    installed: Path, environment: dict[str, str]
) -> None:
    program = (
        "import horovod.torch as h, torch; print(h.nccl_built(), torch.cuda.nccl.version(),"
        " torch.version.cuda)"
    )
    built, version, cuda = re.fullmatch(
        r"(\d+) \((\d+, \d+, \d+)\) (\d+)\.\d+", python(installed, environment, program)
    ).groups()
    major, minor, patch = map(int, version.split(", "))
    assert int(built) == 10_000 * major + 100 * minor + patch
    libraries = list((installed / ".venv").rglob("horovod/torch/mpi_lib_v2*.so"))
    linked = subprocess.run(["ldd", *map(str, libraries)], capture_output=True, text=True).stdout
    assert "not found" not in linked
    for name in ("libnccl.so.2", f"libcudart.so.{cuda}"):
        path = re.search(rf"{re.escape(name)} => (\S+)", linked)[1]
        assert Path(path).resolve().is_relative_to((installed / ".venv").resolve())


@pytest.mark.parametrize("framework", ["ddp", "horovod", "deepspeed"])
def test_two_ranks_train_on_cpus_with_that_build(
    installed: Path, environment: dict[str, str], framework: str, tmp_path: Path
) -> None:
    machine = replace(load_machine("local"), workers_per_node=2)
    spec = run_spec(framework=framework, workers=2, loader="dali-cpu", form="raw")
    binaries = str(installed / ".venv/bin")
    own = environment | {"PATH": f"{binaries}{os.pathsep}{environment['PATH']}"}
    prepare = [
        "python",
        "-m",
        "ddlbench.prepare",
        "mnist5k",
        "raw",
        str(tmp_path / "raw/manifest.json"),
    ]
    prepared = subprocess.run(prepare, cwd=installed, env=own, capture_output=True, text=True)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    command = [
        "python",
        "-m",
        "ddlbench.run",
        "--spec",
        spec.to_json(),
        "--folder",
        str(tmp_path / "run"),
    ]
    command += [
        "--manifest",
        str(tmp_path / "raw/manifest.json"),
        "--",
        *launch.command(spec, machine),
    ]
    done = subprocess.run(
        command, cwd=installed, env=own, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run/run.mllog").exists()


def test_every_library_that_dali_opens_is_there(
    installed: Path, environment: dict[str, str]
) -> None:
    """Those that it is linked with, and those that it opens by name when it computes on a GPU,
    along its own search path: LD_LIBRARY_PATH is not set.
    """
    folder = Path(python(installed, environment, "import nvidia.dali as d; print(d.__path__[0])"))
    libraries = sorted(folder.glob("libdali*.so"))
    opened = set()
    for library in libraries:
        assert "not found" not in output("ldd", str(library))
        where = re.search(r"RUNPATH.*\[(.*)\]", output("readelf", "-d", str(library)))
        path = [
            Path(part.replace("$ORIGIN", str(folder)))
            for part in where[1].split(":")
            if "/usr/local" not in part
        ]
        for name in sorted({found.decode() for found in OPENED.findall(library.read_bytes())}):
            files = [file for place in path for file in sorted(place.glob(f"{name}.so.*"))]
            assert files, f"{library.name} opens {name}, which is nowhere in {path}"
            python(installed, environment, f"import ctypes; ctypes.CDLL({str(files[0])!r})")
            opened.add(name)
    assert {"libcufft", "libnppicc", "libnppig"} <= opened


def output(*command: str) -> str:
    """What a command prints. Raises CalledProcessError."""
    own = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own).stdout
