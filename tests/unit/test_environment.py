"""What a job has in its environment: a machine's variables, shown only where they explain a speed,
its modules, and no packages of another Python.
"""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ddlbench.commands.snakefile import shell_prefix
from ddlbench.plan import launch
from ddlbench.preflight import scout
from ddlbench.preflight.promise import PreflightRanks
from ddlbench.run.job import reveal
from ddlbench.run.watch import watch
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine, load_machine

from tests.builders.machines import JUWELS
from tests.facts import missing, refuses

SECRETS = {
    "HF_TOKEN": "hf_S3CRET",
    "HOSTILE": "a b'c\"d $(touch x) `id`; {y} \\ \n=...",
    "DOTS": "...",
    "EMPTY": "",
}
OPEN = {
    "NCCL_SOCKET_IFNAME": "ib0",
    "GLOO_SOCKET_IFNAME": "ib0",
    "UCX_RC_TIMEOUT": "4s",
    "OMP_NUM_THREADS": "3",
}
RANKS = PreflightRanks(2, 2)


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    """A folder with machine `with-token`."""
    local = {"launcher": "local", "device": "cpu", "device_name": "core", "workers_per_node": 2}
    (tmp_path / "with-token.yaml").write_text(
        yaml.safe_dump(local | {"environment": SECRETS | OPEN})
    )
    return tmp_path


@pytest.fixture
def machine(machines: Path) -> Machine:
    return load_machine("with-token", machines)


def test_command_lines_show_what_explains_a_speed_and_no_secret(machine: Machine) -> None:
    argv = launch.command(RANKS, machine)
    assert {f"{name}=..." for name in SECRETS} | {
        f"{name}={value}" for name, value in OPEN.items()
    } <= set(argv)
    assert "S3CRET" not in shlex.join(argv)


def test_ranks_get_every_value(machine: Machine, machines: Path) -> None:
    argv, hidden = reveal(launch.command(RANKS, machine), "with-token", machines)
    assert hidden == SECRETS
    open_ones = tuple((name, value) for name, value in machine.environment if name in OPEN)
    assert argv == launch.command(RANKS, replace(machine, environment=open_ones))


def test_a_variable_of_the_framework_wins(machine: Machine, machines: Path) -> None:
    """As on the command line, where the last setting of a name holds."""
    mine = replace(machine, environment=(("DS_ACCELERATOR", "S3CRET"),))
    argv = launch.command(PreflightRanks(2, 2, "deepspeed"), mine)
    assert f"DS_ACCELERATOR={machine.device}" in argv
    assert reveal(argv, "with-token", machines) == (argv, {})


@pytest.mark.parametrize(
    "argv", [["env", "A=1", "python", "X=..."], ["python", "A=..."], ["env"], []]
)
def test_without_hidden_values_no_file_is_needed(argv: list[str]) -> None:
    assert reveal(argv, "no-such-machine") == (argv, {})


def test_a_variable_that_has_gone_is_named(machines: Path) -> None:
    with refuses(ConfigError, "with-token.yaml: environment: WANDB_KEY: ", "missing"):
        reveal(["env", "WANDB_KEY=...", "python"], "with-token", machines)
    with refuses(ConfigError, "gone.yaml: ", "no such file"):
        reveal(["env", "WANDB_KEY=...", "python"], "gone", machines)


@pytest.mark.usefixtures("handlers")
def test_they_are_in_the_environment_of_what_is_started(tmp_path: Path) -> None:
    look = (
        "import os, sys; from pathlib import Path;"
        " Path(sys.argv[1]).write_text(os.environ['HOSTILE'])"
    )
    seen = watch(
        ["env", "A=1", sys.executable, "-c", look, str(tmp_path / "found")], tmp_path, SECRETS
    )
    assert seen.code == 0
    assert (tmp_path / "found").read_text() == SECRETS["HOSTILE"]


LOADED = {"LOADEDMODULES": "Stages/2025:GCCcore/.13.3.0:GCC/13.3.0:CUDA/12.6.1:MPI-settings/CUDA"}


@pytest.mark.parametrize(
    "asked", ["GCC", "GCC/13.3.0", "Stages/2025", "CUDA/12", "CUDA/12.6", "MPI-settings"]
)
def test_a_loaded_module_is_known_by_its_names(asked: str) -> None:
    assert environment_modules.missing([asked], LOADED) == []


@pytest.mark.parametrize(
    "asked", ["GC", "CUDA/1", "CUDA/11", "Stages/2024", "Stages/202", "OpenMPI"]
)
def test_another_module_is_not(asked: str) -> None:
    assert environment_modules.missing([asked], LOADED) == [asked]


def test_an_alias_is_known_where_the_command_tells() -> None:
    told = LOADED | {"__MODULES_LMALTNAME": "GCC/13.3.0&al|gcc/default&as|GCC/latest"}
    assert environment_modules.missing(["gcc", "GCC/latest"], LOADED) == ["gcc", "GCC/latest"]
    assert environment_modules.missing(["gcc/default", "GCC/latest"], told) == []


def test_the_complaint_is_a_line_that_says_what_to_type() -> None:
    said = environment_modules.complaint("juwels", ["GCC", "NCCL"], LOADED)
    assert (
        said is not None
        and missing(said, "config/machines/juwels.yaml: modules: NCCL: ", "module spider NCCL")
        == []
    )
    assert environment_modules.complaint("juwels", ["GCC"], LOADED) is None
    assert environment_modules.complaint("local", [], {}) is None
    assert "env-modules" in str(environment_modules.complaint("juwels", ["GCC"], {}))


def test_a_job_without_its_modules_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADEDMODULES", raising=False)
    environment_modules.check_loaded()  # nobody asked for any
    name, value = environment_modules.export("big", ["GCC", "CUDA/12"]).split(" ", 1)
    assert (name, value) == ("DDLBENCH_MACHINE=big", "DDLBENCH_MODULES='GCC CUDA/12'")
    monkeypatch.setenv("DDLBENCH_MACHINE", "big")
    monkeypatch.setenv("DDLBENCH_MODULES", "GCC CUDA/12")
    with refuses(SystemExit, "config/machines/big.yaml: modules: GCC, CUDA/12: "):
        environment_modules.check_loaded()
    monkeypatch.setenv("LOADEDMODULES", LOADED["LOADEDMODULES"])
    environment_modules.check_loaded()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """What a module puts into PYTHONPATH: packages numpy and nvidia of another Python."""
    for name in ("numpy/__init__.py", "nvidia/__init__.py"):
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).touch()
    return tmp_path / "bundle"


def test_a_job_takes_its_clones_package_and_nothing_of_a_modules_bundle(
    tmp_path: Path, bundle: Path
) -> None:
    clone = tmp_path / "a clone"
    (clone / "ddlbench").mkdir(parents=True)
    (clone / "ddlbench/__init__.py").touch()
    ask = "import ddlbench, numpy; print(ddlbench.__file__); print(numpy.__file__)"
    shell = f"{shell_prefix(JUWELS, clone)}python -c {ask!r}"
    environment = os.environ | {"PYTHONPATH": str(bundle)}
    done = subprocess.run(
        ["bash", "-c", shell], env=environment, capture_output=True, text=True, check=True
    )
    package, numpy = done.stdout.splitlines()
    assert package == str(clone / "ddlbench/__init__.py")
    assert Path(numpy).is_relative_to(sys.prefix)


def test_a_killed_job_prints_no_settings(tmp_path: Path) -> None:
    """A shell says of a process that was killed which line it was."""
    killed = "import os; os.kill(os.getpid(), 9)"
    shell = (
        f"{shell_prefix(JUWELS, tmp_path)}python -c {killed!r} --spec settings > {tmp_path}/log"
        " 2>&1; true"
    )
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert done.returncode == 137
    assert done.stderr == "" and "settings" not in (tmp_path / "log").read_text()


def test_a_package_from_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch, bundle: Path) -> None:
    assert scout.outside_environment() == []
    monkeypatch.syspath_prepend(bundle)
    for name in ("numpy", "nvidia"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    said = scout.outside_environment(("torch", "numpy", "nvidia", "no_such_package"))
    assert [
        missing(line, name, bundle / name)
        for line, name in zip(said, ("numpy", "nvidia"), strict=True)
    ] == [
        [],
        [],
    ]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed NCCL for CUDA 13, 40 bytes large, and one that is a module's."""
    path, about = (
        tmp_path / "nvidia/nccl/lib/libnccl.so.2",
        tmp_path / "nvidia_nccl_cu13-2.29.3.dist-info",
    )
    for folder in (path.parent, about):
        folder.mkdir(parents=True)
    path.write_bytes(bytes(40))
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.29.3\n"
    )
    (about / "RECORD").write_text("nvidia/nccl/lib/libnccl.so.2,sha256=x,40\n")
    monkeypatch.syspath_prepend(tmp_path)
    return path


def test_the_nccl_in_use_is_the_one_that_was_installed(library: Path, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    line = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42                         {}\n"
    maps.write_text(line.format(library) * 2)
    assert scout.nccl("13.0", maps) is None
    assert scout.nccl("12.6", maps) is None  # no such package: torch has its own
    library.write_bytes(bytes(41))
    over = str(scout.nccl("13.0", maps))
    assert missing(over, "another package", "pip install") == []
    assert over.endswith("nvidia-nccl-cu13==2.29.3")
    maps.write_text(line.format("/opt/nccl/lib/libnccl.so.2.26.2"))
    assert (
        missing(scout.nccl("13.0", maps), "/opt/nccl/lib/libnccl.so.2.26.2", "nvidia-nccl-cu13")
        == []
    )
    maps.write_text("")
    assert scout.nccl("13.0", maps) is None
