"""The table of nodes: which of them is sound and as fast as the others, and why not. Pure; `screen.py` measures.

`analysis/slow.py` says what is slow. Devices are compared with those of the same kind on other nodes (of a single node:
with its other devices). What has to be equal, such as the number of links, is compared with most of the others.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.analysis.slow import below, error_of_median, is_slow
from ddlbench.core.plural import count_of
from ddlbench.preflight import gpu

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "?"


@dataclass(frozen=True)
class Quantity:
    """A number of each device. `like`: it has to be what most others have; else it may be slow."""

    name: str
    words: str
    unit: str  # for people
    per: float = 1.0  # one of these units in SI
    like: bool = False


RATES = (
    Quantity("matmul_flops_per_s", "matrix product", "TFLOP/s", 1e12),
    Quantity("memory_bytes_per_s", "memory bandwidth", "GB/s", 1e9),
)
STATES = (
    Quantity("sm_clock_mhz", "clock under load", "MHz"),
    Quantity("power_limit_w", "power limit", "W", like=True),
    Quantity("pcie_generation", "PCIe generation", "", like=True),
    Quantity("pcie_lanes", "PCIe lanes", "", like=True),
    Quantity("nvlinks", "active NVLinks", "", like=True),
)
QUANTITIES = (*RATES, *STATES)
NAMES = (
    *("node", "verdict", "why", "remarks", "devices", "kind"),
    *(quantity.name for quantity in QUANTITIES),  # of the node's lowest device
    *("governor", "infiniband_ports", "infiniband_gbit_per_s", "topology"),
)
Screen = Mapping[str, Any]  # what `screen.py` left of a rank
Row = dict[str, Any]


def rows(screens: Sequence[Screen], allocated: Sequence[str] = ()) -> list[Row]:
    """One row (NAMES) per node, the failed ones first. `allocated` are the nodes that ranks were started on, if known.

    A node is `?` if no node was measured; one that alone left nothing, or did not get to the end, has failed.
    """
    of_node: dict[str, list[Screen]] = defaultdict(list)
    for screen in screens:
        numbers = {quantity.name: _value(screen, quantity) for quantity in QUANTITIES}
        of_node[screen["node"]].append({**screen, "numbers": numbers})
    measured = any(screen["rates"] for screen in screens)
    made = []
    # Where ranks know their nodes by other names than SLURM does, nobody can tell which are missing.
    known = set(allocated) if of_node and set(of_node) <= set(allocated) else set()
    for node in sorted({*of_node, *known}):
        mine = of_node.get(node, [])
        made.append(_row(node, mine, [of for name, of in of_node.items() if name != node], measured))
    return sorted(made, key=lambda row: (row["verdict"] != FAIL, row["node"]))


def _row(node: str, mine: Sequence[Screen], nodes: Sequence[Sequence[Screen]], measured: bool) -> Row:
    row: Row = dict.fromkeys(NAMES) | {"node": node, "devices": len(mine)}
    why: list[str] = []
    remarks: list[str] = []
    if not mine:
        return row | {"verdict": FAIL, "why": "no report from its ranks", "remarks": ""}
    others = [screen for of in nodes for screen in of]
    for number, screen in enumerate(mine):
        alike = [other for other in others or [*mine[:number], *mine[number + 1 :]] if other["kind"] == screen["kind"]]
        label = f"device {number}: " if len(mine) > 1 else ""
        why += [label + text for text in _of_device(screen, alike)]
        if not screen["rates"] and measured:
            why.append(f"{label}did not get to the end of its load")
        if not alike and len(mine) + len(others) > 1:
            remarks.append(f"{label}no other device is of its kind, so its rates are compared with none")
        remarks += [label + text for text in _remarks(screen)]
    faults, said = _of_system(mine[0], [of[0] for of in nodes])
    row |= {"kind": mine[0]["kind"], "topology": mine[0].get("topology")}
    for quantity in QUANTITIES:
        row[quantity.name] = min(_told(mine, quantity), default=None)
    active = _active(mine[0])
    row |= {"governor": _governor(mine[0]), "infiniband_ports": len(active)}
    row["infiniband_gbit_per_s"] = min((rate for rate in active.values() if rate is not None), default=None)
    why, remarks = why + faults, remarks + said
    verdict = FAIL if why else PASS if measured else UNKNOWN
    return row | {"verdict": verdict, "why": "; ".join(why), "remarks": "; ".join(dict.fromkeys(remarks))}


def _of_device(screen: Screen, alike: Sequence[Screen]) -> list[str]:
    """What is wrong with a device, beside those of its kind."""
    said = []
    for quantity in QUANTITIES:
        value, others = screen["numbers"][quantity.name], _told(alike, quantity)
        if value is None or not others:
            continue
        shown, unit = f"{value / quantity.per:.4g}", f" {quantity.unit}" if quantity.unit else ""
        if quantity.like:
            if value < statistics.mode(others):
                said.append(f"{quantity.words} {shown}{unit}, {statistics.mode(others):.4g}{unit} on most others")
        elif is_slow(value, others, _error(screen, quantity)):
            middle = f"{statistics.median(others) / quantity.per:.4g}"
            said.append(f"{quantity.words} {shown}{unit}, {below(value, others):.0%} below the others' median {middle}")
    own = screen["gpu"] or {}
    if all("ecc_uncorrected" in own.get(when, ()) for when in ("before", "busy", "after")):
        said += gpu.faults(own["before"], own["busy"], own["after"])
    return said


def _remarks(screen: Screen) -> list[str]:
    own = screen["gpu"] or {}
    unread = [said["error"] for said in own.values() if "error" in said]
    if unread or "busy" not in own:
        return unread[:1]
    return gpu.remarks(own["busy"], own["after"])


def _of_system(mine: Screen, others: Sequence[Screen]) -> tuple[list[str], list[str]]:
    """(faults, remarks) of a node's state; `others` has one rank of each other node."""
    faults, remarks = [], []
    ports, theirs = mine["system"]["infiniband"], [_active(other) for other in others]
    for port in sorted({port for active in theirs for port in active} | set(ports)):
        own = ports.get(port) or {"state": "missing", "gbit_per_s": None}
        state, rate = own["state"], own["gbit_per_s"]
        rates = [active[port] for active in theirs if port in active]
        usual = statistics.mode(rates) if rates else None
        if state != "ACTIVE" and len(rates) > len(others) / 2:
            faults.append(f"InfiniBand port {port} is {state}, ACTIVE on most others")
        elif state != "ACTIVE" and not others:
            remarks.append(f"InfiniBand port {port} is {state}")
        elif state == "ACTIVE" and rate is not None and usual is not None and rate < usual:
            faults.append(f"InfiniBand port {port} has {rate:g} Gbit/s, {usual:g} on most others")
    governor = _governor(mine)
    if governor not in (None, "performance"):
        usual_one = statistics.mode([_governor(other) for other in others]) if others else None
        of = faults if usual_one == "performance" else remarks
        of.append(f"CPU governor {governor}" + (", performance on most others" if of is faults else ""))
    return faults, remarks


def _told(screens: Sequence[Screen], quantity: Quantity) -> list[float]:
    return [number for screen in screens if (number := screen["numbers"][quantity.name]) is not None]


def _active(screen: Screen) -> dict[str, float | None]:
    """The rates of a node's active InfiniBand ports [Gbit/s]."""
    ports = screen["system"]["infiniband"]
    return {name: port["gbit_per_s"] for name, port in ports.items() if port["state"] == "ACTIVE"}


def _governor(screen: Screen) -> str | None:
    """The governor of most of a node's CPUs; the slower way to work counts if it is not that of all."""
    counts = screen["system"]["governors"]
    slower = {name: number for name, number in counts.items() if name != "performance"} or counts
    return max(slower, key=lambda name: slower[name], default=None)


def _value(screen: Screen, quantity: Quantity) -> float | None:
    """A device's number: of rates the median of its windows."""
    if quantity in RATES:
        return statistics.median(screen["rates"][quantity.name]) if screen["rates"] else None
    busy = (screen["gpu"] or {}).get("busy") or {}
    value: float | None = busy.get(quantity.name)
    return value


def _error(screen: Screen, quantity: Quantity) -> float:
    return error_of_median(screen["rates"][quantity.name]) if quantity in RATES else 0.0


def failed(of: Sequence[Row]) -> list[str]:
    """The nodes to exclude."""
    return [row["node"] for row in of if row["verdict"] == FAIL]


def problems(of: Sequence[Row], machine: str) -> list[str]:
    """A line about each failed node, and one that says what to do."""
    bad = failed(of)
    said = [f"node {row['node']} fails the screening: {row['why']}" for row in of if row["verdict"] == FAIL]
    if bad:
        said.append(f"leave {', '.join(bad)} out with config/machines/{machine}.yaml: exclude_nodes: {_listed(bad)}")
    return said


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def table(of: Sequence[Row]) -> str:
    """The rows as csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(of)
    return text.getvalue()


def lines(of: Sequence[Row]) -> list[str]:
    """The rows for people, one line each."""
    if not of:
        return []
    wide = max(len(row["node"]) for row in of)
    said = [f"screened {count_of(len(of), 'node')}, {len(failed(of))} failed:"]
    for row in of:
        numbers = [
            f"{row[quantity.name] / quantity.per:.4g} {quantity.unit}"
            for quantity in (*RATES, STATES[0])
            if row[quantity.name] is not None
        ]
        notes = "; ".join(text for text in (row["why"], row["remarks"]) if text)
        said.append(f"  {row['node']:{wide}} {row['verdict']:4}  {', '.join(numbers)}{'  ' * bool(notes)}{notes}")
    return said
