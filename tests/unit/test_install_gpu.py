"""`make install GPU=1`: what it asks of the pins, of pip and of the compiler; nothing is installed
here.

tests/cuda_build does all of it for real.
"""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from ddlbench.core import registry
from ddlbench.settings.machine import load_machine

from tests.conftest import ROOT
from tests.facts import missing
from tests.unit.test_envs import LOCKED, REQUIREMENTS, pins
from tests.unit.test_install import executable, install, project  # noqa: F401  (a fixture)

GPU_FILES = ("gpu.txt", "dali-cuda120.txt", "dali-cuda130.txt")


def make(folder: Path, *words: str) -> str:
    """What `make install` would execute."""
    done = subprocess.run(
        ["make", "-n", "install", *words], cwd=folder, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", GPU_FILES)
def test_what_gpus_add_is_pinned(file: str) -> None:
    lines = [
        line for line in (ROOT / "envs" / file).read_text().splitlines() if not line.startswith("#")
    ]
    assert lines
    assert [line for line in lines if not re.search(r"^[\w-]+==\S+", line)] == []
    pinned = pins("\n".join(lines))
    assert pinned.items() <= LOCKED.items()
    assert not pinned.keys() & REQUIREMENTS.keys()


def test_both_builds_of_dali_are_of_one_version() -> None:
    other = pins((ROOT / "envs/dali-cuda130.txt").read_text())
    assert other["nvidia-dali-cuda130"] == REQUIREMENTS["nvidia-dali-cuda120"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "missing: g++. On Debian or Ubuntu: apt-get install g++\n"),
        (
            {"PYTHON": "/bin/false"},
            "needs Python 3.11, 3.12 or 3.13 ('/bin/false' is none of them)",
        ),
        ({"GPU": "yes"}, "GPU=yes: allowed: 1"),
        ({"GPU": "1", "DALI": "cuda110"}, "DALI=cuda110: allowed: cuda120, cuda130"),
        ({"DALI": "cuda130"}, "DALI=cuda130: allowed with GPU=1 only"),
        ({"HOROVOD": "no"}, "HOROVOD=no: allowed: 0, 1"),
    ],
)
def test_what_is_wrong_is_said_first(project: Path, variables: dict[str, str], said: str) -> None:  # noqa: F811
    done = install(project, **variables)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(
    ("version", "good"),
    [("3, 10", False), ("3, 11", True), ("3, 12", True), ("3, 13", True), ("3, 14", False)],
)
def test_three_versions_of_python_will_do(project: Path, version: str, good: bool) -> None:  # noqa: F811
    lie = f'exec {sys.executable} -c "import sys; sys.version_info = ({version}, 1)"$\'\\n\'"$2"'
    executable(project / "bin/python", f"#!/bin/bash\n{lie}\n")
    executable(project / "bin/g++", "#!/bin/bash\n")
    executable(project / ".venv/bin/python", '#!/bin/bash\n[ "$4" = --version ]\n')
    done = install(project, "python")
    assert done.returncode == 1
    assert ("needs Python 3.11, 3.12 or 3.13" in done.stderr) is not good
    assert bool(re.search("step 2|headers", done.stderr)) is good


def test_a_torch_without_cuda_stops_it_before_anything_is_compiled(
    project: Path,  # noqa: F811
) -> None:
    executable(project / "bin/g++", "#!/bin/bash\n")
    # pip does what it is told; torch says that it was built without CUDA
    executable(project / ".venv/bin/python", '#!/bin/bash\n[ "$1" = -c ] && exit 1\nexit 0\n')
    done = install(project, GPU="1")
    assert done.returncode == 1
    assert [line[:11] for line in done.stdout.splitlines()] == ["install 1/7", "install 2/7"]
    assert missing(done.stderr, "torch", "without CUDA") == []
    assert "make clean" in done.stderr
    assert not (project / ".venv/.installed-gpu").exists()


@pytest.fixture
def nccl(tmp_path: Path) -> Path:
    """A folder with the build scripts, a Python whose torch has CUDA 13, its wheels, and Horovod
    built for one kind of GPU; pip writes down what it installs, and has no network.
    """
    site, (tag, cuda) = tmp_path / "site", ("cp311", "13")
    for folder in ("nvidia/nccl/lib", "nvidia/cu13/lib", "nvidia/cu13/bin"):
        (site / folder).mkdir(parents=True)
    (site / "nvidia/nccl/lib/libnccl.so.2").touch()
    executable(
        site / "nvidia/cu13/bin/nvcc",
        "#!/bin/bash\necho Cuda compilation tools, release 13.0, V13.0.88\n",
    )
    answers = (
        f'case "$2" in *torch.version.cuda*) echo {cuda};; *purelib*) echo {site};; *platform*)'
        f" echo {tag};; esac"
    )
    pip = (
        f'case "$3" in install) echo "$@" >>{tmp_path}/installed;; *) echo no network >&2; exit 7;;'
        " esac"
    )
    executable(
        tmp_path / "python", f'#!/bin/bash\nif [ "$1" = -c ]; then {answers}; else {pip}; fi\n'
    )
    cached = tmp_path / "cache/ddlbench/horovod-0.28.1-includes-origin-cp311-NCCL-cc80+90-gloo"
    cached.mkdir(parents=True)
    (cached / "horovod-0.28.1.whl").touch()
    return tmp_path


def build(
    nccl: Path, script: str = "build-horovod-nccl.sh", **variables: str
) -> subprocess.CompletedProcess[str]:
    own = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(nccl / "cache"), **variables}
    command = [str(ROOT / "envs" / script), str(nccl / "python")]
    return subprocess.run(command, env=own, capture_output=True, text=True)


def test_a_build_is_kept_by_the_gpus_that_it_is_for(nccl: Path) -> None:
    done = build(nccl)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NCCL-cc80+90-gloo/horovod-0.28.1.whl" in (nccl / "installed").read_text()
    other = build(nccl, HOROVOD_BUILD_CUDA_CC_LIST="70")
    assert (other.returncode, other.stderr) == (7, "no network\n")
    site = nccl / "site/nvidia"
    assert (site / "nccl/lib/libnccl.so").readlink() == Path("libnccl.so.2")
    assert (site / "cu13/lib/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (site / "cu13/lib64").readlink() == Path("lib")


def test_without_the_nccl_of_torchs_wheels_horovod_is_to_be_left_out(nccl: Path) -> None:
    """The site's PyTorch may bring one elsewhere, or none."""
    (nccl / "site/nvidia/nccl/lib/libnccl.so.2").unlink()
    done = build(nccl)
    assert done.returncode == 1 and missing(done.stderr, "NCCL", "HOROVOD=0") == []


@pytest.mark.parametrize(("operations", "tail"), [("", "cpu-gloo"), ("NCCL", "NCCL-gloo")])
def test_a_build_without_nccl_wants_no_cuda(nccl: Path, operations: str, tail: str) -> None:
    """Beside a torch with CUDA and an nvcc it wanted all of CUDA, and failed. The release has only
    what is fixed.
    """
    asked, release = (
        "(torch.version.cuda is not None) and (CUDA_HOME is not None)",
        nccl / "horovod-0.28.1",
    )
    for file in re.findall(r'"\$source/(\S+)"', (ROOT / "envs/build-horovod.sh").read_text()):
        executable(release / file, f"print({asked})\n")
    subprocess.run(["tar", "czf", f"{release}.tar.gz", release.name], cwd=nccl, check=True)
    download = f'download) mkdir "${{@: -3:1}}"; cp {release}.tar.gz "${{@: -3:1}}";;'
    wheel = (
        'wheel) mkdir "${@: -2:1}"; cp "${@: -1}"/cmake/Modules/* "${@:'
        f' -2:1}}/{release.name}.whl";;'
    )
    executable(
        nccl / "python", f'#!/bin/bash\ncase "$3" in\n{download}\n{wheel}\n"") echo cp311;;\nesac\n'
    )
    assert build(nccl, "build-horovod.sh", HOROVOD_GPU_OPERATIONS=operations).returncode == 0
    (built,) = (nccl / "cache/ddlbench").glob(f"*-{tail}/*.whl")
    assert built.read_text() == f"print({asked if operations else 'False'})\n"


@pytest.mark.parametrize(("guard", "standard"), [("201703L", 17), ("202002L", 20)])
def test_horovod_is_compiled_by_the_standard_that_torchs_headers_ask_for(
    nccl: Path, guard: str, standard: int
) -> None:
    """From torch 2.14 on they refuse C++17. The release has only what is fixed."""
    release, torch = nccl / "horovod-0.28.1", nccl / "torch"
    for file in re.findall(r'"\$source/(\S+)"', (ROOT / "envs/build-horovod.sh").read_text()):
        executable(release / file, "set(CMAKE_CXX_STANDARD 14)\n")
    subprocess.run(["tar", "czf", f"{release}.tar.gz", release.name], cwd=nccl, check=True)
    executable(torch / "include/ATen/ATen.h", f"#if __cplusplus < {guard}\n")
    download = f'download) mkdir "${{@: -3:1}}"; cp {release}.tar.gz "${{@: -3:1}}";;'
    lists = '"${@: -1}"/CMakeLists.txt "${@: -1}"/horovod/torch/CMakeLists.txt'
    wheel = f'wheel) mkdir "${{@: -2:1}}"; cat {lists} >"${{@: -2:1}}/{release.name}.whl";;'
    asks = f'case "$2" in *submodule_search_locations*) echo {torch};; *) echo cp313;; esac'
    executable(
        nccl / "python", f'#!/bin/bash\ncase "$3" in\n{download}\n{wheel}\n"") {asks};;\nesac\n'
    )
    assert build(nccl, "build-horovod.sh").returncode == 0
    (built,) = (nccl / "cache/ddlbench").glob("*cp313*/*.whl")
    assert built.read_text() == 2 * f"set(CMAKE_CXX_STANDARD {standard})\n"


def test_a_toolkit_of_another_release_is_refused(nccl: Path) -> None:
    executable(
        nccl / "cuda/bin/nvcc", "#!/bin/bash\necho Cuda compilation tools, release 12.6, V12.6.20\n"
    )
    done = build(nccl, CUDA_HOME=str(nccl / "cuda"))
    assert done.returncode == 1
    assert missing(done.stderr, f"CUDA_HOME={nccl}/cuda", "nvcc", "CUDA 13") == []
    assert not (nccl / "installed").exists()


def test_a_torch_without_cuda_is_refused(nccl: Path) -> None:
    executable(nccl / "python", "#!/bin/bash\necho\n")
    done = build(nccl)
    assert done.returncode == 1
    assert missing(done.stderr, "torch", "without CUDA") == []


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
    assert all("/" in name for name in modules)  # pinned
    assert {"GCC", "OpenMPI"} <= {name.partition("/")[0] for name in modules}


def test_a_wheelhouse_for_gpus_is_made_of_an_environment_for_gpus(tmp_path: Path) -> None:
    """Of one for CPUs alone it would have neither torch's CUDA nor Horovod's NCCL."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()

    def commands(*words: str) -> list[str]:
        command = ["make", "-n", "wheelhouse", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return re.findall(r"envs/\w+\.sh", done.stdout)

    assert commands() == commands("GPU=0") == ["envs/wheelhouse.sh"]
    assert commands("GPU=1") == ["envs/install.sh", "envs/wheelhouse.sh"]
    (tmp_path / ".venv/.installed-gpu").touch()
    assert commands("GPU=1") == ["envs/wheelhouse.sh"]
