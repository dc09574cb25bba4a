"""Network interfaces of a login node, from the output of `ip -brief address`: InfiniBand first. Pure
but for the system's files about them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ddlbench.slurm.sinfo import leading_number

INFINIBAND = 32  # ARPHRD_INFINIBAND, Linux's if_arp.h: what /sys/class/net/<interface>/type says


@dataclass(frozen=True)
class Interface:
    """A network interface that is up. `mbit_per_s` is None where the driver does not report it."""

    name: str
    infiniband: bool
    mbit_per_s: int | None


def interfaces(ip: str, system: Path = Path("/sys/class/net")) -> list[Interface]:
    """Return the interfaces that `ip -brief address` shows as up with an address: InfiniBand first,
    then fast ones.
    """

    def fact(path: Path) -> int | None:
        try:
            return leading_number(
                path.read_text(encoding="utf-8", errors="replace")
            )  # a speed of -1: nobody knows
        except OSError:
            return None

    up = []
    for row in (line.split() for line in ip.splitlines()):
        name = row[0].partition("@")[0] if row else ""
        if (
            len(row) > 2
            and name != "lo"
            and row[1] in ("UP", "UNKNOWN")
            and re.fullmatch(r"[\w.:-]+", name)
        ):
            type_, speed = fact(system / name / "type"), fact(system / name / "speed")
            up.append(Interface(name, type_ == INFINIBAND or name.startswith("ib"), speed))
    return sorted(
        up, key=lambda interface: (not interface.infiniband, -(interface.mbit_per_s or 0))
    )
