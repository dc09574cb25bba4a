"""Which modules a job lacks, by what the `module` command leaves in its environment."""

import pytest
from ddlbench.settings import environment_modules

LOADED = {"LOADEDMODULES": "Stages/2025:GCCcore/.13.3.0:GCC/13.3.0:CUDA/12.6.1:MPI-settings/CUDA"}


@pytest.mark.parametrize("asked", ["GCC", "GCC/13.3.0", "Stages/2025", "CUDA/12", "CUDA/12.6", "MPI-settings"])
def test_a_loaded_module_is_known_by_its_names(asked: str) -> None:
    assert environment_modules.missing([asked], LOADED) == []


@pytest.mark.parametrize("asked", ["GC", "CUDA/1", "CUDA/11", "Stages/2024", "Stages/202", "OpenMPI"])
def test_another_module_is_not(asked: str) -> None:
    assert environment_modules.missing([asked], LOADED) == [asked]


def test_an_alias_is_known_where_the_command_tells() -> None:
    told = LOADED | {"__MODULES_LMALTNAME": "GCC/13.3.0&al|gcc/default&as|GCC/latest"}
    assert environment_modules.missing(["gcc", "GCC/latest"], LOADED) == ["gcc", "GCC/latest"]
    assert environment_modules.missing(["gcc/default", "GCC/latest"], told) == []


def test_the_complaint_is_a_line_that_says_what_to_type() -> None:
    said = environment_modules.complaint("juwels", ["GCC", "NCCL"], LOADED)
    assert said == (
        "config/machines/juwels.yaml: modules: NCCL: not loaded in this job; see what there is with: module spider NCCL"
    )
    assert environment_modules.complaint("juwels", ["GCC"], LOADED) is None
    assert environment_modules.complaint("local", [], {}) is None
    assert "env-modules" in str(environment_modules.complaint("juwels", ["GCC"], {}))


def test_a_job_without_its_modules_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADEDMODULES", raising=False)
    environment_modules.check()  # nobody asked for any
    name, value = environment_modules.export("big", ["GCC", "CUDA/12"]).split(" ", 1)
    assert (name, value) == ("DDLBENCH_MACHINE=big", "DDLBENCH_MODULES='GCC CUDA/12'")
    monkeypatch.setenv("DDLBENCH_MACHINE", "big")
    monkeypatch.setenv("DDLBENCH_MODULES", "GCC CUDA/12")
    with pytest.raises(SystemExit, match=r"^config/machines/big.yaml: modules: GCC, CUDA/12: not loaded"):
        environment_modules.check()
    monkeypatch.setenv("LOADEDMODULES", LOADED["LOADEDMODULES"])
    environment_modules.check()
