"""The screening's readings of GPUs, governors and ports are taken and parsed; its job writes table and list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ddlbench.preflight import __main__ as job
from ddlbench.preflight import gpu, load, nodes, promise, screen, system

from tests.unit.screens import NOTHING, slow_down, sound, verdicts


class Nvml:
    """NVML as pynvml has it, of an A100 whose driver is too old to know row remapping."""

    NVML_NVLINK_MAX_LINKS, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 18, 1, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        import pynvml

        if name.startswith("nvmlClocksEventReason"):
            return getattr(pynvml, name)
        values: dict[str, Any] = {
            "ClockInfo": lambda gpu, kind: 1410 if kind == 1 else None,
            "CurrentClocksThrottleReasons": lambda gpu: 0x84,  # SwPowerCap, and the power brake
            "EnforcedPowerLimit": lambda gpu: 300_000,
            "PowerManagementDefaultLimit": lambda gpu: 400_000,
            "NvLinkState": self._link_state,
            "NvLinkErrorCounter": lambda gpu, link, counter: 10 * counter + link,
            "TotalEccErrors": lambda gpu, kind, counter: 4 if (kind, counter) == (1, 0) else 0,
            "HandleByUUID": lambda uuid: uuid,
        }
        wanted = name.removeprefix("nvmlDeviceGet")
        if wanted == "CurrentClocksEventReasons":
            raise AttributeError(name)
        return values.get(wanted, self._not_supported)

    def _link_state(self, gpu: str, link: int) -> int:
        if link >= 12:
            raise self.NVMLError("Invalid Argument")
        return int(link != 5)

    def _not_supported(self, *arguments: Any) -> None:
        raise self.NVMLError("Not Supported")


def test_readings_are_parsed_as_values() -> None:
    read = gpu.read(Nvml(), "GPU-7")
    assert set(read) == set(NOTHING)
    assert (read["sm_clock_mhz"], read["slowdowns"]) == (1410, ["HwPowerBrakeSlowdown"])
    assert (read["power_limit_w"], read["power_default_w"]) == (300.0, 400.0)
    assert read["nvlinks"] == 11
    assert read["nvlink_errors"]["crc_flit"] == 11 * 20 + sum(range(12)) - 5
    assert read["ecc_uncorrected"] == 4
    assert read["remapped_rows"] is read["pages_pending"] is read["pcie_replays"] is None
    said = gpu.faults(read, read, read)
    assert len(said) == 2
    assert "power brake" in said[0]
    assert "4 uncorrectable" in said[1]


def test_the_package_has_every_function_that_is_asked_for() -> None:
    """A name that pynvml does not know would be None for ever, in silence."""
    import pynvml

    asked: set[str] = set()

    class Listed(Nvml):
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return super().__getattr__(name)

    gpu.read(Listed(), "GPU-7")
    assert len(asked) > 15
    assert [name for name in asked if not hasattr(pynvml, name)] == []


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_governors_and_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    assert system.state(tmp_path) == {"governors": {}, "infiniband": {}}
    for number, governor in enumerate(["performance", "performance", "powersave"]):
        write(tmp_path / f"devices/system/cpu/cpu{number}/cpufreq", scaling_governor=governor)
    ports = tmp_path / "class/infiniband"
    write(ports / "mlx5_0/ports/1", state="4: ACTIVE", rate="200 Gb/sec (4X HDR)", link_layer="InfiniBand")
    write(ports / "mlx5_1/ports/1", state="1: DOWN", rate="odd", link_layer="InfiniBand")
    write(ports / "mlx5_2/ports/1", state="1: DOWN", rate="25 Gb/sec (1X EDR)", link_layer="Ethernet")
    assert system.state(tmp_path) == {
        "governors": {"performance": 2, "powersave": 1},
        "infiniband": {
            "mlx5_0/1": {"state": "ACTIVE", "gbit_per_s": 200.0},
            "mlx5_1/1": {"state": "DOWN", "gbit_per_s": None},
        },
    }


def test_a_cpu_is_put_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "WINDOW_S", 0.01)
    monkeypatch.setattr(load, "SIZES", {"cpu": 64})
    monkeypatch.setattr(load, "COPIED", {"cpu": 1 << 20})
    monkeypatch.setenv("SLURMD_NODENAME", "jwb0001")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", "root.leaf1.jwb0001")
    seen = screen.look("cpu", {})
    assert (seen["node"], seen["topology"]) == ("jwb0001", "root.leaf1.jwb0001")
    screen.strain(seen, "cpu", {})
    assert set(seen["rates"]) == {quantity.name for quantity in nodes.RATES}
    assert all(len(windows) == load.WINDOWS and min(windows) > 0 for windows in seen["rates"].values())
    assert verdicts([seen]) == {"jwb0001": nodes.PASS}


def test_the_job_writes_table_and_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    screens = sound(4, 1)
    slow_down(screens[1], "matmul_flops_per_s", 0.5)
    output = tmp_path / "preflight-aach2023.json"
    said = job._screened([{"screen": one} for one in screens], "juwels-booster", [], output)
    assert [problem.error for problem in said] == [True, True]
    assert str(said[1]).endswith("leave node1 out with config/machines/juwels-booster.yaml: exclude_nodes: [node1]")
    assert promise.exclude_path(output).read_text() == "node1\n"
    assert len(promise.nodes_path(output).read_text().splitlines()) == 5
    assert "screened 4 nodes, 1 failed:" in capsys.readouterr().out
    assert job._screened([{"host": "node1"}], "juwels-booster", [], output) == []
