"""The slow host in records: planted rows, and how often sound hosts are accused over made-up studies."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import nodes
from ddlbench.analysis.nodes import HARDWARE, LIKE, UNKNOWN, WANDERS, HostEpoch, beside
from ddlbench.core.columns import write_csv
from ddlbench.core.record import STEP_PARTS
from ddlbench.records import ours

from tests.specs import run_spec
from tests.unit.records import RANKS, replace_steps, with_clocks, write_record


def study(
    hosts: int,
    runs: int,
    epochs: int,
    seed: int = 1,
    compute: dict[str, float] | None = None,
    stalls: float = 0.0,
    noise: float = 0.02,
) -> list[HostEpoch]:
    """Runs on all hosts: 0.2 s compute and 0.05 s data wait a step, with noise of each host in each run and epoch.

    `compute` makes hosts slower by these factors. With chance `stalls` one host, another each time, waits 0.2 s more.
    """
    chance = np.random.default_rng(seed)
    names = [f"node{number}" for number in range(hosts)]
    found = []
    for run in range(runs):
        level = np.exp(chance.normal(0, noise / 2, hosts))
        for epoch in range(epochs):
            own = 0.2 * level * np.exp(chance.normal(0, noise, hosts))
            wait = 0.05 * np.exp(chance.normal(0, 5 * noise, hosts))
            if chance.random() < stalls:
                wait[chance.integers(hosts)] += 0.2
            took = {name: float(own[n]) * (compute or {}).get(name, 1.0) for n, name in enumerate(names)}
            waits = dict(zip(names, wait.tolist(), strict=True))
            some = beside({"compute": took, "data_wait": waits})
            found += [HostEpoch(f"r{run}", "kind", float(run), epoch, of) for of in some]
    return found


def verdicts(spells: list[HostEpoch]) -> dict[tuple[str, str], str]:
    """Those that are not as the others."""
    rows = nodes.rows(spells)
    return {(str(r["host"]), str(r["part"])): str(r["verdict"]) for r in rows if r["verdict"] != LIKE}


@pytest.mark.parametrize("hosts", [2, 4, 64])
@pytest.mark.parametrize("runs", [1, 2, 5])
def test_a_host_that_is_always_slow_says_hardware(hosts: int, runs: int) -> None:
    spells = study(hosts, runs, 4, compute={"node1": 1.3})
    assert verdicts(spells) == {("node1", "compute"): HARDWARE}
    row = nodes.rows(spells)[0]
    assert row["ratio"] == pytest.approx(1 + 0.06 / 0.25, abs=0.03)
    assert row["excess_s"] == pytest.approx(0.06, abs=0.01)
    assert (row["runs"], row["epochs"]) == (runs, 4 * runs)
    assert 0.9 * 4 * runs <= float(str(row["slow_epochs"])) <= 4 * runs
    assert row["over"] == ("runs" if runs > 2 else "epochs")
    assert float(str(row["low"])) < float(str(row["ratio"])) < float(str(row["high"]))


def test_a_slow_host_that_changes_says_loader_or_file_system() -> None:
    found = verdicts(study(4, 3, 8, stalls=0.7))
    assert set(found.values()) == {WANDERS}
    assert {part for _, part in found} == {"data_wait"}
    assert len(found) == 4


def test_slow_hardware_beside_a_slow_file_system() -> None:
    found = verdicts(study(4, 3, 8, compute={"node2": 1.4}, stalls=0.7))
    assert found.pop(("node2", "compute")) == HARDWARE
    assert set(found.values()) == {WANDERS}


def test_one_epoch_of_one_run_is_not_enough() -> None:
    assert set(verdicts(study(4, 1, 1, compute={"node2": 1.5})).values()) == {UNKNOWN}


def test_a_host_against_its_own_best() -> None:
    """It became slower in the last of three runs, and so did all others: beside them nothing is to be seen."""
    spells = study(4, 3, 4, noise=0.001)
    late = [s._replace(of=s.of._replace(time_s=s.of.time_s * 1.5)) if s.run == "r2" else s for s in spells]
    for row in nodes.rows(late):
        assert row["verdict"] == LIKE
        assert row["over_own_best"] == pytest.approx(1.5, rel=0.02)
    assert all(row["over_own_best"] is None for row in nodes.rows(study(4, 1, 4)))


def test_sound_hosts_are_hardly_ever_accused() -> None:
    """200 made-up studies of 2 to 16 hosts whose epochs scatter by 1 to 4 %: at most 5 % accuse anybody."""
    chance = random.Random(5)
    accused = 0
    for seed in range(200):
        noise = chance.choice([0.01, 0.02, 0.04])  # of compute; data wait scatters five times as much
        spells = study(chance.choice([2, 3, 4, 8, 16]), chance.randint(1, 4), chance.randint(2, 6), seed, noise=noise)
        accused += any(verdict in (HARDWARE, WANDERS) for verdict in verdicts(spells).values())
    assert accused <= 10, accused


def test_slow_hosts_are_hardly_ever_missed() -> None:
    chance = random.Random(6)
    missed = 0
    for seed in range(100):
        spells = study(chance.choice([2, 4, 8]), chance.randint(1, 4), 4, seed, compute={"node0": 1.25})
        missed += verdicts(spells).get(("node0", "compute")) != HARDWARE
    assert missed <= 5, missed


# Records


def planted(folder: Path, repeat: int = 1, factor: float = 3.0, measured: bool = True) -> Path:
    """A run of four epochs on node7 and node8, which computes `factor` times as long."""
    spec = run_spec(workers=2, global_batch=8, workers_per_node=1, machine="here", epochs=4, repeat=repeat)
    record = write_record(folder, spec, images=160)
    steps = pd.read_parquet(record / "steps.parquet")
    slow = steps["rank"] == 1
    steps["data_wait_s"], steps["forward_s"], steps["backward_s"], steps["optimizer_s"] = 0.01, 0.1, 0.2, 0.01
    steps.loc[slow, ["forward_s", "backward_s", "optimizer_s"]] *= factor
    steps["communication_s"] = np.where(slow, 0.0, 0.31 * (factor - 1)) if measured else np.nan
    replace_steps(record, with_clocks(steps))
    return record


def test_records_name_the_slow_host(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        planted(tmp_path, repeat)
    write_record(tmp_path, run_spec(workers=1, machine="here", global_batch=8))  # one host
    spells, runs, refused = nodes.records("here", tmp_path)
    assert (runs, refused) == (3, [])
    rows = nodes.rows(spells)
    assert (rows[0]["host"], rows[0]["part"], rows[0]["verdict"]) == ("node8", "compute", HARDWARE)
    assert rows[0]["ratio"] == pytest.approx((0.01 + 0.31 * 3) / (0.01 + 0.31))
    assert rows[0]["excess_s"] == pytest.approx(0.62)
    assert [row["verdict"] for row in rows[1:]] == [LIKE] * 3
    (said, *_) = nodes.lines(rows)
    assert said.startswith("node8 compute")
    assert said.endswith("epochs of 3 runs, mostly by rank 0 there: hardware")
    write_csv(rows, nodes.COLUMNS, tmp_path / "machines/here/nodes.csv")
    assert next(iter(pd.read_csv(tmp_path / "machines/here/nodes.csv")["host"])) == "node8"


def test_one_bad_device_of_four_is_not_averaged_away(tmp_path: Path) -> None:
    spec = run_spec(workers=8, global_batch=16, workers_per_node=4, machine="here", epochs=4)
    ranks = [RANKS[0] | {"host": f"node{rank // 4}", "local_rank": rank % 4} for rank in range(8)]
    record = write_record(tmp_path, spec, images=320, ranks=ranks)
    steps = pd.read_parquet(record / "steps.parquet")
    steps[[*STEP_PARTS]] = [0.01, 0.1, 0.2, 0.02, 0.01]
    steps.loc[steps["rank"] == 6, "backward_s"] *= 1.3
    replace_steps(record, with_clocks(steps))
    rows = nodes.rows(nodes.spells(ours.record(record)))
    assert (rows[0]["host"], rows[0]["part"], rows[0]["local_rank"]) == ("node1", "compute", 2)
    assert rows[0]["verdict"] == HARDWARE
    assert "rank 2 there" in nodes.lines(rows)[0]
    assert rows[0]["ratio"] == pytest.approx((0.32 + 0.06) / 0.32)


def test_where_waiting_is_not_measured_apart_compute_says_nothing(tmp_path: Path) -> None:
    record = planted(tmp_path, measured=False)
    assert {spell.of.part for spell in nodes.spells(ours.record(record))} == {"data_wait"}


def test_records_that_tell_nothing(tmp_path: Path) -> None:
    planted(tmp_path)
    assert nodes.records("her", tmp_path) == ([], 0, [])  # another machine, whose name begins like this one's
    assert nodes.records("nowhere", tmp_path) == ([], 0, [])
    assert nodes.rows([]) == nodes.lines([]) == []
    broken = planted(tmp_path, 2)
    (broken / "steps.parquet").write_bytes(b"no table")
    _, runs, refused = nodes.records("here", tmp_path)
    assert (len(refused), runs) == (1, 1)
    assert "steps.parquet" in refused[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("ddlbench_ranks", '[{"host": ["a"]}, {"host": {}}]'), ("ddlbench_ranks", "7"), ("ddlbench_spec", '["here"]')],
)
def test_a_log_that_makes_no_sense_is_refused_and_stops_nothing(tmp_path: Path, key: str, value: str) -> None:
    planted(tmp_path)
    log = planted(tmp_path, 2) / "run.mllog"
    line = f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": 1, "metadata": null}}'
    log.write_text(log.read_text() + line + "\n:::MLLOG {}\n")
    _, runs, refused = nodes.records("here", tmp_path)
    assert (runs, len(refused)) == (1, 1)
    assert "run.mllog" in refused[0]


def test_ranks_of_one_host_are_no_comparison(tmp_path: Path) -> None:
    spec = run_spec(workers=2, global_batch=8, epochs=3)
    record = write_record(tmp_path, spec, ranks=[rank | {"host": "node7"} for rank in RANKS])
    assert list(nodes.spells(ours.record(record))) == []
