"""`make gpu-check`: its summary, where it does not start, and that it needs neither Snakemake nor
every framework; and what its tiers say of waits, packages and compilers.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.facts import missing
from tests.gpu import conftest as check
from tests.pretended_gpu import build, compute
from tests.pretended_gpu import test_frameworks as tier
from tests.pretended_gpu.rank import STEADY, WAITS

# Says of these packages that they are not installed.
WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.dali" or name.partition(".")[0] in ("snakemake", "horovod", "deepspeed", "spdl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def gpu_check(folder: Path, device: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`make gpu-check DEVICE=...` of a Python without Snakemake, DALI, Horovod, DeepSpeed and
    spdl.
    """
    (folder / "sitecustomize.py").write_text(WITHOUT)
    told = {"DDLBENCH_GPU_TIER": device, "DDLBENCH_SLOW": "1", "CUDA_VISIBLE_DEVICES": ""}
    told["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-r", "N", "-p", "no:cacheprovider"]
    command += ["tests/gpu", "tests/pretended_gpu", *options]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True, timeout=600
    )


@pytest.mark.slow
def test_it_runs_without_what_is_not_there_and_says_so(tmp_path: Path) -> None:
    """Both tiers are imported; of what runs, one test passes and one cannot be asked."""
    some = "stream_goes_on and (native-webdataset or dali-cpu-raw)"
    done = gpu_check(tmp_path, "cpu", "-k", some)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert any(missing(line, "passed", "gpu: ", "[native-webdataset]") == [] for line in said)
    (not_asked,) = [line for line in said if line.startswith("not asked")]
    assert missing(not_asked, "[dali-cpu-raw]", "nvidia.dali", "not installed") == []
    assert "1 passed, 1 not asked, 0 failed" in said
    assert any(check.NO_GPU in line for line in said)


@pytest.mark.slow
def test_a_check_in_which_nothing_passed_fails(tmp_path: Path) -> None:
    done = gpu_check(tmp_path, "cpu", "-k", "stream_goes_on and dali-cpu-raw")
    assert done.returncode == 1, done.stdout
    assert "0 passed, 1 not asked, 0 failed" in done.stdout


@pytest.mark.more
@pytest.mark.parametrize(
    ("device", "says"), [("cuda", "sees no GPU"), ("gpu", "allowed: cuda, cpu")]
)
def test_it_does_not_start_where_it_would_say_nothing(
    device: str, says: str, tmp_path: Path
) -> None:
    done = gpu_check(tmp_path, device)
    assert done.returncode == 2
    assert says in done.stdout + done.stderr


def test_make_asks_both_tiers_of_a_gpu_and_one_of_a_cpu() -> None:
    def told(device: str) -> str:
        return subprocess.run(
            ["make", "-n", "gpu-check", f"DEVICE={device}", "CHECK=-k native"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    for device in ("cuda", "cpu"):
        assert f"DDLBENCH_GPU_TIER={device} DDLBENCH_SLOW=1" in told(device)
        assert "-k native" in told(device)
        assert ("tests/pretended_gpu" in told(device)) == (device == "cuda")


def report(
    test: str, longrepr: Any = None, when: str = "call", **properties: object
) -> SimpleNamespace:
    return SimpleNamespace(
        nodeid=test, longrepr=longrepr, when=when, user_properties=[*properties.items()]
    )


def test_each_test_is_one_line() -> None:
    crash = SimpleNamespace(reprcrash=SimpleNamespace(message="assert {'a': 1}\n == {}"))
    stats = {
        "passed": [
            report(
                "tests/pretended_gpu/test_frameworks.py::test_waits[ddp-bf16]", waits={"a": 1.0}
            ),
            report("tests/pretended_gpu/test_frameworks.py::test_waits[ddp-bf16]", when="teardown"),
            report("tests/unit/test_files.py::test_files"),
        ],
        "failed": [report("tests/gpu/test_gpu.py::test_late", crash)],
        "error": [
            report("tests/gpu/test_gpu.py::test_early", "fixture 'x' not found", when="setup")
        ],
        "skipped": [
            report(
                "tests/gpu/test_gpu.py::test_other",
                ("test_gpu.py", 3, "Skipped: no such loader"),
                "setup",
            )
        ],
    }
    tried = list(check.results(stats))
    assert tried == [
        check.Tried("pretended_gpu: waits [ddp-bf16]", check.PASSED, "waits: {'a': 1.0}"),
        check.Tried("gpu: late", check.FAILED, "assert {'a': 1} == {}"),
        check.Tried("gpu: early", check.FAILED, "fixture 'x' not found"),
        check.Tried("gpu: other", check.NOT_ASKED, "no such loader"),
    ]
    printed = check.lines(tried)
    assert [line.split("  ")[0] for line in printed[:-1]] == [
        "passed",
        "not asked",
        "failed",
        "failed",
    ]
    assert printed[-1] == "1 passed, 1 not asked, 2 failed"


# --- waits


@pytest.mark.parametrize("real", [True, False])
def test_counts_that_are_not_as_promised_are_in_the_message(
    real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour on a GPU brings numbers home: which calls waited, where, and how often a step."""
    monkeypatch.setattr(tier, "REAL", real)
    steps = 2 * STEADY
    place = "cudaStreamSynchronize < torch/x.py:f"
    counted = {WAITS: {"waits": {"step": {place: 3 * (steps - STEADY)}}}}
    record = SimpleNamespace(value=counted.__getitem__, steps=pd.DataFrame({"step": range(steps)}))
    seen: dict[str, object] = {}
    with pytest.raises(AssertionError) as error:
        tier.test_a_rank_waits_as_often_as_is_known(
            lambda *_, **__: record, "ddp", "bf16", seen.__setitem__
        )
    assert "{'cudaStreamSynchronize" in str(error.value)
    assert "3.0" in str(error.value)
    assert seen == {"waits per step": {place: 3.0}}


def test_calls_are_added_up_over_functions() -> None:
    counted = {"cudaFree < a.py:f": 1.0, "cudaFree < b.py:g": 0.5, "cudaMalloc < a.py:f": 2.0}
    assert tier.by_call(counted) == {"cudaFree": 1.5, "cudaMalloc": 2.0}


@pytest.mark.parametrize(
    "site", ["lib/python3/dist-packages", "target", "lib/python3.12/site-packages"]
)
def test_a_file_is_known_by_the_folder_of_its_package(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / site / "foreign_library/runtime"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "utils.py").write_text("import sys\n\n\ndef waits():\n    return sys._getframe()\n")
    monkeypatch.syspath_prepend(folder.parents[1])
    for name in [name for name in sys.modules if name.startswith("foreign_library")]:
        monkeypatch.delitem(sys.modules, name)
    frame = importlib.import_module("foreign_library.runtime.utils").waits()
    assert compute.place(frame) == "foreign_library/runtime/utils.py:waits"


# --- what the tiers need


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`installed("cuda_runtime_api.h", ...)`: a CUDA build of torch, and these headers in NVIDIA's
    wheels.
    """
    (tmp_path / "torch/lib").mkdir(parents=True)
    (tmp_path / "torch/lib/libtorch_cuda.so").touch()
    include = tmp_path / "nvidia/cu13/include"
    packages = {
        "torch": SimpleNamespace(origin=str(tmp_path / "torch/__init__.py")),
        "nvidia": SimpleNamespace(
            submodule_search_locations=[str(tmp_path / "elsewhere"), str(tmp_path / "nvidia")]
        ),
    }
    monkeypatch.setattr(build.importlib.util, "find_spec", packages.get)
    monkeypatch.setattr(build.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-toolkit"))
    monkeypatch.setattr(build, "TOOLKIT", str(tmp_path / "none"))

    def make(*headers: str) -> None:
        for header in headers:
            (include / header).parent.mkdir(parents=True, exist_ok=True)
            (include / header).touch()

    return make


def test_both_headers_are_looked_for(installed: Callable[..., None]) -> None:
    """With torch's own wheels the second is missing; the reason names it and the cure."""
    first, second = build.HEADERS
    assert all(name in str(build.lacks()) for name in (first, second))
    installed(first)
    reason = str(build.lacks())
    assert second in reason and first not in reason
    assert "pip install nvidia-cuda-crt" in reason
    installed(second)
    assert build.lacks() is None
    assert [f"-I{folder}" for folder in build.includes()] == build.compiler()[-1:]


def test_a_toolkit_has_the_headers_too(
    installed: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for header in build.HEADERS:
        (tmp_path / "toolkit/include" / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toolkit/include" / header).touch()
    assert build.lacks() is not None
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert build.lacks() is None


def test_a_real_gpu_needs_no_nm(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(*build.HEADERS)
    monkeypatch.setattr(build.shutil, "which", lambda name: None if name == "nm" else name)
    assert "no nm" in str(build.lacks())
    assert build.lacks(pretended=False) is None
