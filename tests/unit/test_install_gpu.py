"""`make install GPU=1`: what it asks of the pins, of pip and of the compiler; nothing is installed here.

tests/cuda_build does all of it for real.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from ddlbench import registry
from ddlbench.settings.machine import load_machine

from tests.conftest import ROOT
from tests.unit.test_envs import CONSTRAINTS, REQUIREMENTS, pins
from tests.unit.test_install import executable, project  # noqa: F401  (a fixture)

GPU_FILES = ("gpu.txt", "dali-cuda120.txt", "dali-cuda130.txt")


def make(folder: Path, *words: str) -> str:
    """What `make install` would execute."""
    done = subprocess.run(["make", "-n", "install", *words], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def install(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(folder / "bin"), **variables}
    return subprocess.run([str(folder / "envs/install.sh")], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("file", GPU_FILES)
def test_what_gpus_add_is_pinned_with_its_reason(file: str) -> None:
    lines = [line for line in (ROOT / "envs" / file).read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.search(r"^[\w-]+==\S+ +# \w", line)] == []
    pinned = pins("\n".join(lines))
    assert pinned.items() <= CONSTRAINTS.items()
    assert not pinned.keys() & REQUIREMENTS.keys()


def test_both_builds_of_dali_are_of_one_version() -> None:
    other = pins((ROOT / "envs/dali-cuda130.txt").read_text())
    assert other["nvidia-dali-cuda130"] == REQUIREMENTS["nvidia-dali-cuda120"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"GPU": "yes"}, "GPU=yes: allowed: 1"),
        ({"GPU": "1", "DALI": "cuda110"}, "DALI=cuda110: allowed: cuda120, cuda130"),
        ({"DALI": "cuda130"}, "DALI=cuda130: allowed with GPU=1 only"),
    ],
)
def test_other_values_are_refused(project: Path, variables: dict[str, str], said: str) -> None:  # noqa: F811
    done = install(project, **variables)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(("version", "good"), [("3, 10", False), ("3, 11", True), ("3, 12", True), ("3, 13", False)])
def test_two_versions_of_python_will_do(project: Path, version: str, good: bool) -> None:  # noqa: F811
    lie = f'exec {sys.executable} -c "import sys; sys.version_info = ({version}, 1)"$\'\\n\'"$2"'
    executable(project / "bin/python", f"#!/bin/bash\n{lie}\n")
    executable(project / "bin/g++", "#!/bin/bash\n")
    executable(project / ".venv/bin/python", '#!/bin/bash\n[ "$4" = --version ]\n')
    done = install(project, PYTHON="python")
    assert done.returncode == 1
    assert ("needs Python 3.11 or 3.12" in done.stderr) is not good
    assert bool(re.search("install stopped at step 2|headers are missing", done.stderr)) is good


def test_a_torch_without_cuda_stops_it_before_anything_is_compiled(project: Path) -> None:  # noqa: F811
    executable(project / "bin/g++", "#!/bin/bash\n")
    # pip does what it is told; torch says that it was built without CUDA
    executable(project / ".venv/bin/python", '#!/bin/bash\n[ "$1" = -c ] && exit 1\nexit 0\n')
    done = install(project, PYTHON=sys.executable, GPU="1")
    assert done.returncode == 1
    assert [line[:11] for line in done.stdout.splitlines()] == ["install 1/7", "install 2/7"]
    assert "the torch that pip gives here is a build without CUDA" in done.stderr
    assert "make clean" in done.stderr
    assert not (project / ".venv/.installed-gpu").exists()


def test_an_environment_for_gpus_is_asked_for_by_name(tmp_path: Path) -> None:
    """Make knows whether what is there was installed for GPUs."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert "install.sh" not in make(tmp_path)
    assert "install.sh" in make(tmp_path, "GPU=1")
    (tmp_path / ".venv/.installed-gpu").touch()
    assert "install.sh" not in make(tmp_path, "GPU=1")


def test_a_record_names_the_dali_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the default one where none is, as on a login node."""
    there = {"nvidia-dali-cuda130": "2.4.0"}

    def version(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(registry, "version", version)
    both = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
    assert registry.installed(*both) == "nvidia-dali-cuda130"
    there.clear()
    assert registry.installed(*both) == "nvidia-dali-cuda120"
    assert registry.member("loaders", "dali-gpu").DISTRIBUTION in both


def test_juwels_loads_no_second_cuda() -> None:
    """The wheels bring CUDA, cuDNN and NCCL of one release; a module's cuDNN beside them ends in
    CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH."""
    modules = load_machine("juwels-booster").modules
    assert [name for name in modules if re.search("cuda|cudnn|nccl", name, re.I)] == []
    assert {"GCC", "OpenMPI"} <= set(modules)
