"""The table of nodes: which of them is sound and as fast as the others, and why not. Pure; `screen.py` measures.

`analysis/slow.py` says what is slow. Devices are compared with those of the same kind on other nodes (of a single node:
with its other devices). What has to be equal, such as the rate of a port, is compared with most of the others.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median, mode
from typing import Any, NamedTuple

from ddlbench.analysis.slow import below, error_of_median, is_slow
from ddlbench.core.plural import count_of

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "?"


class Quantity(NamedTuple):
    """A rate of each device: its column, and its words, unit and scale for people."""

    name: str
    words: str
    unit: str
    per: float  # one of these units in SI


RATES = (
    Quantity("matmul_flops_per_s", "matrix product", "TFLOP/s", 1e12),
    Quantity("memory_bytes_per_s", "memory bandwidth", "GB/s", 1e9),
)
NAMES = (
    *("node", "verdict", "why", "remarks", "devices", "kind"),
    *(rate.name for rate in RATES),  # of the node's slowest device
    *("governor", "infiniband_ports", "infiniband_gbit_per_s", "topology"),
)
Screen = Mapping[str, Any]  # what `screen.py` left of a rank
Row = dict[str, Any]


def rows(screens: Sequence[Screen], allocated: Sequence[str] = ()) -> list[Row]:
    """One row (NAMES) per node, the failed ones first. `allocated` are the nodes that ranks were started on, if known.
    A node is `?` if no node was measured; one that alone left nothing, or did not get to the end, has failed."""
    of_node: dict[str, list[Screen]] = defaultdict(list)
    for screen in screens:
        of_node[screen["node"]].append(screen)
    measured = any(screen["rates"] for screen in screens)
    # Where ranks know their nodes by other names than SLURM does, nobody can tell which are missing.
    expected = set(allocated) if of_node and set(of_node) <= set(allocated) else set()
    table = [
        _row(node, of_node.get(node, []), [group for name, group in of_node.items() if name != node], measured)
        for node in sorted({*of_node, *expected})
    ]
    return sorted(table, key=lambda row: (row["verdict"] != FAIL, row["node"]))


def _row(node: str, mine: Sequence[Screen], nodes: Sequence[Sequence[Screen]], measured: bool) -> Row:
    row: Row = dict.fromkeys(NAMES) | {"node": node, "devices": len(mine)}
    if not mine:
        return row | {"verdict": FAIL, "why": "no report from its ranks", "remarks": ""}
    others = [screen for group in nodes for screen in group]
    faults: list[str] = []
    remarks: list[str] = []
    for number, screen in enumerate(mine):
        alike = [other for other in others or [*mine[:number], *mine[number + 1 :]] if other["kind"] == screen["kind"]]
        label = f"device {number}: " if len(mine) > 1 else ""
        faults += [label + text for text in _slow(screen, alike)]
        if not screen["rates"] and measured:
            faults.append(f"{label}did not get to the end of its load")
        if not alike and len(mine) + len(others) > 1:
            remarks.append(f"{label}no other device is of its kind, so its rates are compared with none")
    of_system = _of_system(mine[0], [group[0] for group in nodes])
    faults, remarks = faults + of_system[0], remarks + of_system[1]
    ports = _active(mine[0])
    return row | {
        "kind": mine[0]["kind"],
        "topology": mine[0].get("topology"),
        **{rate.name: min(_medians(mine, rate), default=None) for rate in RATES},
        "governor": _governor(mine[0]),
        "infiniband_ports": len(ports),
        "infiniband_gbit_per_s": min((rate for rate in ports.values() if rate is not None), default=None),
        "verdict": FAIL if faults else PASS if measured else UNKNOWN,
        "why": "; ".join(faults),
        "remarks": "; ".join(dict.fromkeys(remarks)),
    }


def _slow(screen: Screen, alike: Sequence[Screen]) -> list[str]:
    """Which rates of a device are slow beside those of its kind."""
    found = []
    for rate in RATES:
        others = _medians(alike, rate)
        for value in _medians([screen], rate):
            if others and is_slow(value, others, error_of_median(screen["rates"][rate.name])):
                shown, middle = (f"{number / rate.per:.4g}" for number in (value, median(others)))
                short = f"{below(value, others):.0%} below the others' median {middle}"
                found.append(f"{rate.words} {shown} {rate.unit}, {short}")
    return found


def _of_system(mine: Screen, others: Sequence[Screen]) -> tuple[list[str], list[str]]:
    """(faults, remarks) of a node's state; `others` has one rank of each other node."""
    faults, remarks = [], []
    ports, theirs = mine["system"]["infiniband"], [_active(other) for other in others]
    for port in sorted({port for active in theirs for port in active} | set(ports)):
        here = ports.get(port) or {"state": "missing", "gbit_per_s": None}
        state, rate = here["state"], here["gbit_per_s"]
        rates = [active[port] for active in theirs if port in active]
        usual = mode(rates) if rates else None
        if state != "ACTIVE" and len(rates) > len(others) / 2:
            faults.append(f"InfiniBand port {port} is {state}, ACTIVE on most others")
        elif state != "ACTIVE" and not others:
            remarks.append(f"InfiniBand port {port} is {state}")
        elif state == "ACTIVE" and rate is not None and usual is not None and rate < usual:
            faults.append(f"InfiniBand port {port} has {rate:g} Gbit/s, {usual:g} on most others")
    governor = _governor(mine)
    if governor not in (None, "performance"):
        if others and mode([_governor(other) for other in others]) == "performance":
            faults.append(f"CPU governor {governor}, performance on most others")
        else:
            remarks.append(f"CPU governor {governor}")
    return faults, remarks


def _medians(screens: Sequence[Screen], rate: Quantity) -> list[float]:
    """Each device's rate: the median of its windows; nothing of those that were not measured."""
    return [median(screen["rates"][rate.name]) for screen in screens if screen["rates"]]


def _active(screen: Screen) -> dict[str, float | None]:
    """The rates of a node's active InfiniBand ports [Gbit/s]."""
    ports = screen["system"]["infiniband"]
    return {name: port["gbit_per_s"] for name, port in ports.items() if port["state"] == "ACTIVE"}


def _governor(screen: Screen) -> str | None:
    """The governor of most of a node's CPUs; the slower way to work counts if it is not that of all."""
    counts = screen["system"]["governors"]
    slower = {name: number for name, number in counts.items() if name != "performance"} or counts
    return max(slower, key=lambda name: slower[name], default=None)


def failed(table: Sequence[Row]) -> list[str]:
    return [row["node"] for row in table if row["verdict"] == FAIL]


def problems(table: Sequence[Row], machine: str) -> list[str]:
    """A line about each failed node, and one that says what to do."""
    bad = ", ".join(failed(table))
    found = [f"node {row['node']} fails the screening: {row['why']}" for row in table if row["verdict"] == FAIL]
    return [*found, f"leave {bad} out with config/machines/{machine}.yaml: exclude_nodes: [{bad}]"] if bad else []


def lines(table: Sequence[Row]) -> list[str]:
    """The rows for people, one line each."""
    if not table:
        return []
    wide = max(len(row["node"]) for row in table)
    text = [f"screened {count_of(len(table), 'node')}, {len(failed(table))} failed:"]
    for row in table:
        numbers = [f"{row[rate.name] / rate.per:.4g} {rate.unit}" for rate in RATES if row[rate.name] is not None]
        notes = "; ".join(filter(None, (row["why"], row["remarks"])))
        text.append(f"  {row['node']:{wide}} {row['verdict']:4}  {', '.join(numbers)}{'  ' * bool(notes)}{notes}")
    return text
