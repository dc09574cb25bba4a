"""The meter against trees of files that look like the kernel's, and against this very process."""

import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
from ddlbench.train import measure
from ddlbench.train.counters import (
    NotMeasuredError,
    Rapl,
    loader_processes,
    network_bytes,
    nvml,
    peak_resident_bytes,
)
from ddlbench.train.measure import Meter

from tests.conftest import until
from tests.facts import missing, refuses

RAPL = "class/powercap"


def put(root: Path, **files: object) -> None:
    """Files of one folder by name; renamed into place, because the meter may be reading."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        aside = root / f".{name}"
        aside.write_text(f"{text}\n")
        aside.replace(root / name)


def zone(sys: Path, number: str, name: str, energy_uj: int, largest: int = 1_000_000_000) -> None:
    put(
        sys / RAPL / f"intel-rapl:{number}",
        name=name,
        energy_uj=energy_uj,
        max_energy_range_uj=largest,
    )


def interface(
    sys: Path, name: str, sent: int, received: int, device: bool = True, kind: int = 1
) -> None:
    put(sys / "class/net" / name, type=kind)
    put(sys / "class/net" / name / "statistics", tx_bytes=sent, rx_bytes=received)
    if device:
        (sys / "class/net" / name / "device").mkdir(exist_ok=True)


def test_host_energy_is_of_packages_and_their_memory(tmp_path: Path) -> None:
    for number, name in {
        "0": "package-0",
        "0:0": "core",
        "0:1": "dram",
        "1": "package-1",
        "2": "psys",
    }.items():
        zone(tmp_path, number, name, 5_000_000)
    rapl = Rapl(tmp_path)
    for number, energy in {"0": 7, "0:0": 9, "0:1": 6, "1": 25, "2": 99}.items():
        put(tmp_path / RAPL / f"intel-rapl:{number}", energy_uj=energy * 1_000_000)
    assert rapl.joules() == 2 + 1 + 20
    assert rapl.joules() == 23


def test_host_energy_goes_on_when_the_counter_begins_again(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 990_000, largest=999_999)
    rapl = Rapl(tmp_path)
    total = 0.0
    for reading in (
        10_000,
        600_000,
        5_000,
    ):  # two wraps, each seen because it was read between them
        put(tmp_path / RAPL / "intel-rapl:0", energy_uj=reading)
        total = rapl.joules()
    assert total == pytest.approx((20_000 + 590_000 + 405_000) / 1e6)


def test_host_energy_that_may_not_be_read_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="has no RAPL zones"):
        Rapl(tmp_path)
    zone(tmp_path, "0", "package-0", 1)
    (tmp_path / RAPL / "intel-rapl:0/energy_uj").unlink()
    (tmp_path / RAPL / "intel-rapl:0/energy_uj").mkdir()  # root may read everything, but no folder
    with refuses(NotMeasuredError, "intel-rapl:0/energy_uj: ", "directory"):
        Rapl(tmp_path)


def test_long_runs_follow_the_counter_between_start_and_stop(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 0, largest=999_999)
    meter = Meter("cpu", 0, tmp_path, rapl_s=0.02)
    meter.start()
    for reading in (
        600_000,
        200_000,
        800_000,
    ):  # 0.6, 0.6 and 0.6 J: 1.8 J in a counter that holds 1 J
        put(tmp_path / RAPL / "intel-rapl:0", energy_uj=reading)
        time.sleep(0.5)
    assert meter.stop()["values"]["host_energy_j"] == pytest.approx(1.8)


def test_network_counts_each_byte_once(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 1, 1, device=False)
    interface(tmp_path, "eth0", 1_000, 20)
    interface(tmp_path, "bond0", 1_000, 20, device=False)  # carries what eth0 carries
    assert network_bytes(tmp_path) == (1_000, 20)
    interface(tmp_path, "ib0", 500, 500, kind=32)  # IP over InfiniBand
    assert network_bytes(tmp_path) == (1_500, 520)
    put(
        tmp_path / "class/infiniband/mlx5_0/ports/1/counters",
        port_xmit_data=1_000,
        port_rcv_data=2_000,
    )
    assert network_bytes(tmp_path) == (1_000 + 4 * 1_000, 20 + 4 * 2_000)


def test_network_of_a_container(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 1, 1, device=False)
    with pytest.raises(NotMeasuredError, match="no interface but loopback"):
        network_bytes(tmp_path)
    interface(tmp_path, "eth0", 7, 8, device=False)
    assert network_bytes(tmp_path) == (7, 8)


def measured(
    sys: Path, local_rank: int = 0, meanwhile: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """What a meter reads when this happens between its start and its stop."""
    meter = Meter("cpu", local_rank, sys)
    meter.start()
    meanwhile()
    return meter.stop()


@pytest.mark.parametrize(("sent", "value"), [(130, 30), (10, None)])
def test_values_are_differences_and_a_counter_that_went_back_measures_nothing(
    tmp_path: Path, sent: int, value: int | None
) -> None:
    interface(tmp_path, "eth0", 100, 200)
    found = measured(tmp_path, meanwhile=lambda: interface(tmp_path, "eth0", sent, 250))
    assert (found["values"]["network_sent_bytes"], found["values"]["network_received_bytes"]) == (
        value,
        50,
    )
    assert ("was reset" in found["not_measured"].get("network_sent_bytes", "")) is (value is None)


def test_every_null_has_a_reason_and_nothing_else(tmp_path: Path) -> None:
    found = measured(tmp_path)
    nulls = {column for column, value in found["values"].items() if value is None}
    assert nulls == set(found["not_measured"])
    assert nulls == {
        "peak_device_memory_bytes", "peak_device_reserved_bytes", "device_used_bytes", "device_energy_j",
        "device_clock_mhz", "device_power_limit_w", "device_temperature_c", "near_cores_share",
        "host_energy_j", "network_sent_bytes", "network_received_bytes",
    }  # fmt: skip
    assert missing(found["not_measured"]["device_energy_j"], "CPU") == []


def test_what_is_the_nodes_is_measured_once_a_node(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", 100, 200)
    zone(tmp_path, "0", "package-0", 1)
    found = measured(tmp_path, 1)
    ours = {"cpu_s", "cpu_share", "peak_resident_bytes", "loader_resident_bytes"}
    assert {column for column in found["values"] if column.startswith(("host", "network"))} == set()
    assert ours <= {column for column, value in found["values"].items() if value is not None}


def _burn(seconds: float, ready, end) -> None:
    kept = bytearray(64 << 20)
    until = time.process_time() + seconds
    while time.process_time() < until:
        kept[0] ^= 1
    ready.set()
    end.wait()


@pytest.mark.parametrize("alive", [True, False])
def test_processor_time_of_processes_that_it_started(tmp_path: Path, alive: bool) -> None:
    context = get_context("spawn")
    ready, end = context.Event(), context.Event()
    child = context.Process(target=_burn, args=(0.5, ready, end))
    meter = Meter("cpu", 1, tmp_path)
    began = time.monotonic()
    meter.start()
    started = time.monotonic()
    child.start()
    assert ready.wait(60)
    if not alive:
        end.set()
        child.join()
    least_s = time.monotonic() - started
    found = meter.stop()
    wall_s = time.monotonic() - began
    end.set()
    child.join()
    values = found["values"]
    assert 0.5 <= values["cpu_s"] < 0.5 + 2 * wall_s
    # The meter's own times are between; on a busy machine they are not these.
    assert values["cpu_s"] / wall_s <= values["cpu_share"] <= values["cpu_s"] / least_s
    if alive:
        assert values["loader_resident_bytes"] > 64 << 20


def test_loader_processes_that_ended_are_not_called_zero() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass"
    code = f"""
import subprocess, sys
sys.path.insert(0, {str(Path(measure.__file__).parents[2])!r})
from ddlbench.train.measure import Meter
meter = Meter("cpu", 1)
meter.start()
before = meter.stop()
subprocess.run([sys.executable, "-c", {code!r}])
after = meter.stop()
assert before["values"]["loader_resident_bytes"] == 0, before
assert after["values"]["loader_resident_bytes"] is None, after
assert "had ended" in after["not_measured"]["loader_resident_bytes"], after
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_most_memory_is_remembered_after_it_was_given_back(tmp_path: Path) -> None:
    before = peak_resident_bytes("self")
    after = measured(tmp_path, 1, lambda: bytearray(b"x" * (256 << 20)))["values"][
        "peak_resident_bytes"
    ]
    assert after >= max(before, 256 << 20)


class NVMLError(Exception):
    """As pynvml has it."""


def test_processes_that_compile_are_not_the_loaders(tmp_path: Path) -> None:
    """torch.compile keeps a pool of them beside the rank: gigabytes that no loader takes."""
    program = tmp_path / "torch/_inductor/compile_worker/__main__.py"
    put(program.parent, **{program.name: "import subprocess, sys; subprocess.run(['sleep', '60'])"})
    with (
        subprocess.Popen([sys.executable, str(program)]) as compiling,
        subprocess.Popen(["sleep", "60"]) as loading,
    ):
        until(lambda: psutil.Process(compiling.pid).children(), 30)
        try:
            found = {process.pid for process in loader_processes()}
            assert loading.pid in found and compiling.pid not in found
            assert not found & {process.pid for process in psutil.Process(compiling.pid).children()}
        finally:
            for process in (*psutil.Process(compiling.pid).children(), compiling, loading):
                process.kill()


def fake_nvml(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    module = ModuleType("pynvml")
    functions = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: SimpleNamespace(uuid=uuid),
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: {"GPU-1": 5_500, "GPU-2": 7}[
            handle.uuid
        ],
        "nvmlDeviceGetClockInfo": lambda handle, clock: 1755 if clock == 1 else 0,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 55,
    }
    for name, value in (functions | changes).items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_what_the_current_gpu_says_of_itself_is_in_si_units(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_nvml(monkeypatch)
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda *device: 7 if device == () else 0)
    monkeypatch.setattr(
        "torch.cuda.mem_get_info", lambda *device: (30, 40) if device == () else (0, 0)
    )
    of = SimpleNamespace(uuid="1", pci_domain_id=0, pci_bus_id=193, pci_device_id=0)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: [of][number])
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 4, 5, 6, 40, 41, 42, 43})
    put(tmp_path / "bus/pci/devices/0000:c1:00.0", local_cpulist="0-5,40")
    meter = Meter("cuda", 1, tmp_path)
    read = {m.column.name: m for m in measure.MEASURES}
    told = {
        "device_clock_mhz": 1755,
        "device_power_limit_w": 700,
        "device_temperature_c": 55,
        "device_energy_j": 5.5,
    }
    told |= {"near_cores_share": 0.5, "peak_device_memory_bytes": 7, "device_used_bytes": 10}
    assert {name: read[name].read(meter) for name in told} == told


def test_device_energy_without_nvml_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NotMeasuredError, match="nvidia-ml-py is not installed"):
        nvml("GPU-1", "TotalEnergyConsumption")

    def refuse(handle: object) -> int:
        raise NVMLError("Not Supported")

    fake_nvml(monkeypatch, nvmlDeviceGetTotalEnergyConsumption=refuse)
    with pytest.raises(NotMeasuredError, match="NVML: Not Supported"):
        nvml("GPU-1", "TotalEnergyConsumption")
