"""What ranks said of memory, CPU, energy and network (`train/measure.py`), joined to columns of their run."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddlbench.core.columns import OVER_RANKS, PROFILER, SHARING, UNKNOWN, Column, Values, Why
from ddlbench.train.measure import COLUMNS as MEASURED

# What each rank's engine says of its model (`Engine.state_bytes`).
STATE = (
    Column("parameters_bytes", "Int64", "Parameters that the rank holds.", "bytes", over_ranks="max"),
    Column(
        "gradients_bytes",
        "Int64",
        "Most memory that gradients took at once in the first step, counted alike for all frameworks.",
        "bytes",
        over_ranks="max",
    ),
    Column("optimizer_bytes", "Int64", "State of the optimizer that the rank holds.", "bytes", over_ranks="max"),
)
ENERGY = Column(
    "energy_j",
    "float64",
    "Energy of devices and hosts together; on CPUs the host is the device. Null where either is missing.",
    "J",
    spoiled_by=(SHARING, PROFILER),
)
OF_RANKS = (*MEASURED, *STATE)
COLUMNS = (*OF_RANKS, ENERGY)
ONE_NODE = "all ranks ran on one node: their traffic does not pass its network"


def resources(ranks: Sequence[Mapping[str, Any]], device: str, said: Mapping[str, str]) -> Values:
    """COLUMNS from what ranks left (`ddlbench_ranks`); null where a rank lacks a value.

    `said` are the record's reasons (`ddlbench_not_measured`); a rank's own reason, in its `not_measured`, comes first.
    """
    values: Values = {}
    for column in OF_RANKS:
        name = column.in_record
        asked = [rank for rank in ranks if not column.once_a_node or rank.get("local_rank") == 0]
        given = [rank[name] for rank in asked if rank.get(name) is not None]
        if asked and len(given) == len(asked):
            values[column.name] = OVER_RANKS[column.over_ranks](given)
        else:
            reasons = (rank.get("not_measured", {}).get(name) for rank in asked)
            values[column.name] = Why(next(filter(None, reasons), said.get(name, UNKNOWN)))
    # Nodes that are namespaces of one host have a first rank each, and a network between them.
    firsts = sum(rank.get("local_rank") == 0 for rank in ranks)
    if ranks and len({rank.get("host") for rank in ranks}) == 1 and firsts <= 1:
        values |= {"network_sent_bytes": Why(ONE_NODE), "network_received_bytes": Why(ONE_NODE)}
    parts = ["device_energy_j", "host_energy_j"] if device == "cuda" else ["host_energy_j"]
    missing = [part for part in parts if isinstance(values[part], Why)]
    if missing:
        values["energy_j"] = Why(f"no {missing[0]}: {values[missing[0]]}")
    else:
        values["energy_j"] = sum(values[part] for part in parts)
    return values
