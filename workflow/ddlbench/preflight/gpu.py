"""What a GPU says of itself by NVML: clocks, limits, links and errors, and which of it says that it is not sound.

`read` asks; `faults` is pure. NVML's functions are described in
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Why a GPU runs slower than it could, and what that says; `nvmlClocksEventReasons`. Its own power cap
# (SwPowerCap) is not among them: under full load it is how a GPU works.
SLOWDOWNS = {
    "HwSlowdown": "the hardware slows it down (temperature, power or its supply)",
    "SwThermalSlowdown": "the driver slows it down because it is too hot",
    "HwThermalSlowdown": "the hardware slows it down because it is too hot",
    "HwPowerBrakeSlowdown": "its power supply slows it down (power brake)",
}
LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")
# Resent PCIe packets while the node was screened. NVIDIA's DCGM warns of more than 8 in a minute.
REPLAYS = 8
NO_ROWS = (0, 0, 0, 0)  # that were remapped, as `read` gives them


def read(nvml: Any, uuid: str) -> dict[str, Any]:
    """What NVML says of this GPU now; `nvml` is pynvml, initialised. None is what this GPU or driver does not tell.

    Clocks in MHz, power in W. `remapped_rows` are (corrected, uncorrected, pending, failed); `nvlink_errors` are sums
    over links of each of LINK_ERRORS. Raises NVMLError if there is no such GPU.
    """
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, f"nvmlDeviceGet{name}")(gpu, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    links = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if ask("NvLinkState", link) == 1]
    reasons = _first(lambda: ask("CurrentClocksEventReasons"), lambda: ask("CurrentClocksThrottleReasons"))
    limit, default = ask("EnforcedPowerLimit"), ask("PowerManagementDefaultLimit")
    return {
        "sm_clock_mhz": ask("ClockInfo", nvml.NVML_CLOCK_SM),
        "slowdowns": None
        if reasons is None
        else [name for name in SLOWDOWNS if reasons & getattr(nvml, f"nvmlClocksEventReason{name}")],
        "power_limit_w": None if limit is None else limit / 1e3,
        "power_default_w": None if default is None else default / 1e3,
        "temperature_c": ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
        "pcie_generation": ask("CurrPcieLinkGeneration"),
        "pcie_lanes": ask("CurrPcieLinkWidth"),
        "pcie_most_lanes": ask("MaxPcieLinkWidth"),
        "pcie_replays": ask("PcieReplayCounter"),
        "nvlinks": len(links),
        "nvlink_errors": {
            name: sum(ask("NvLinkErrorCounter", link, number) or 0 for link in links)
            for number, name in enumerate(LINK_ERRORS)
        },
        "ecc_uncorrected": ask("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
        "remapped_rows": _plain(ask("RemappedRows")),
        "pages_pending": ask("RetiredPagesPendingStatus"),
    }


def faults(before: Mapping[str, Any], busy: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What says that a GPU is not sound, from `read` before the screening, under load and after it; in words."""
    said = [f"{SLOWDOWNS[name]}: {name}" for name in busy["slowdowns"] or ()]
    if after["ecc_uncorrected"]:
        said.append(f"{after['ecc_uncorrected']} uncorrectable memory errors since its driver was loaded (ECC)")
    _, _, pending, failed = after["remapped_rows"] or NO_ROWS
    if failed:
        said.append("a broken memory row could not be replaced (row remapping failed)")
    elif pending:
        said.append("a broken memory row waits to be replaced: the GPU needs a reset (row remapping pending)")
    if after["pages_pending"]:
        said.append("a broken memory page waits to be retired: the GPU needs a reset")
    if _less(busy["pcie_lanes"], busy["pcie_most_lanes"]):
        said.append(f"PCIe has {busy['pcie_lanes']} lanes of {busy['pcie_most_lanes']}")
    resent = _grown(before["pcie_replays"], after["pcie_replays"])
    if resent > REPLAYS:
        said.append(f"{resent} PCIe packets were sent again while it was screened")
    for name in LINK_ERRORS:
        if grown := _grown(before["nvlink_errors"][name], after["nvlink_errors"][name]):
            said.append(f"{grown} NVLink errors ({name}) while it was screened")
    return said


def remarks(busy: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What is worth knowing and no fault."""
    said = []
    if _less(busy["power_limit_w"], busy["power_default_w"]):
        said.append(f"power limit {busy['power_limit_w']:.0f} W, {busy['power_default_w']:.0f} W by default")
    corrected, uncorrected, *_ = after["remapped_rows"] or NO_ROWS
    if corrected or uncorrected:
        said.append(f"{corrected + uncorrected} memory rows were replaced")
    return said


def _first(*attempts: Callable[[], Any]) -> Any:
    """The first answer that is not None: newer drivers have new names for the same."""
    return next((answer for attempt in attempts if (answer := attempt()) is not None), None)


def _plain(rows: Any) -> list[int] | None:
    return None if rows is None else [int(row) for row in rows]


def _less(value: float | None, than: float | None) -> bool:
    return value is not None and than is not None and value < than


def _grown(before: int | None, after: int | None) -> int:
    """How much a counter grew; 0 where it is not told, or was reset meanwhile."""
    return max(0, after - before) if before is not None and after is not None else 0
