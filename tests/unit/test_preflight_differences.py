"""What a preflight keeps of a thousand ranks: no more than differs among them, and nothing is lost."""

import copy
import json
from typing import Any

import pytest
from ddlbench.preflight.differences import WHOLE, differences

from tests.unit.screens import sound

NODES, PER_NODE = 256, 4
Facts = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks() -> Facts:
    """Of 256 nodes with four GPUs that are screened, as `scout.py` leaves them."""
    of_all = []
    for rank, screen in enumerate(sound(NODES, PER_NODE)):
        node = rank // PER_NODE
        of_all.append(
            {
                "host": f"jwb{node:04d}.juwels",
                "pid": 10_000 + 7 * rank,
                "started": 1795348367.02 + rank / 7,
                "local_rank": rank % PER_NODE,
                "topology": f"root.leaf{node // 48}.jwb{node:04d}",
                "rank": rank,
                "world": NODES * PER_NODE,
                "met": [f"jwb{n // PER_NODE:04d}.juwels" for n in range(NODES * PER_NODE)]
                if rank in (0, PER_NODE)
                else None,
                "read": [{"folder": "/p/scratch/data/imagenet/raw", "bytes_per_s": 1.2345678901e9 + rank}]
                if rank % PER_NODE == 0
                else [],
                "doing": None,
                "versions": {f"package{n}": "1.2.3+cu130" for n in range(12)},
                "modules": {"LOADEDMODULES": ":".join(f"Module{n}/2025.1-GCC-13" for n in range(60))},
                "cores": list(range(rank % PER_NODE * 12, rank % PER_NODE * 12 + 12)),
                "interfaces": ["lo", "eth0", "ib0", "ib1", "ib2", "ib3"],
                "gpu": {"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 42_297_786_368, "uuid": f"uuid-{rank}"},
                "clocks": {f"jwb{n:04d}": {"offset_s": 1e-5 / 3} for n in range(NODES)} if rank == 0 else {},
                "screen": screen,
            }
        )
    return of_all


def whole(rows: Facts) -> Facts:
    """The ranks' facts again."""
    found = []
    for row in rows:
        if row.get(WHOLE):
            found.append({key: value for key, value in row.items() if key != WHOLE})
            continue
        facts = copy.deepcopy(rows[0])
        for name, value in row.items():
            place, *keys = facts, *name.split(".")
            for key in keys[:-1]:
                place = place[key]
            assert keys[-1] in place
            place[keys[-1]] = value
        found.append(facts)
    return found


def short(value: Any) -> Any:
    """Six digits."""
    if isinstance(value, dict):
        return {key: one if key == "started" else short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [short(one) for one in value]
    return float(f"{value:.5e}") if isinstance(value, float) else value


def test_a_thousand_ranks_take_little_room(ranks: Facts) -> None:
    """Before, 15 MB were the names of all hosts, in each rank's facts."""
    assert len(json.dumps(differences(ranks))) < 750_000
    assert len(json.dumps(ranks)) > 3_000_000


def test_nothing_is_lost_but_digits(ranks: Facts) -> None:
    ranks = copy.deepcopy(ranks)
    ranks[5]["gpu"] = None
    ranks[6]["screen"]["rates"] = None
    ranks[7] = {"rank": 7, "host": "jwb0001.juwels", "error": "WorldError: no"}
    rows = differences(ranks)
    assert [row["rank"] for row in rows] == list(range(len(ranks)))
    assert whole(rows) == [short(facts) for facts in ranks]


def test_no_rank_and_one_rank() -> None:
    assert differences([]) == []
    assert differences([{"rank": 0, "seconds": 1 / 3}]) == [{"rank": 0, "seconds": 0.333333}]
