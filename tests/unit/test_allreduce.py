"""All-reduces measured alone: bandwidths, groups of ranks, what is started, what a failure leaves."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.plan import launch
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.preflight import allreduce
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study


def plan(study: str, machine: str, **changes: int) -> Plan:
    return make_plan(load_study(study), replace(load_machine(machine), **changes))


@pytest.mark.parametrize(
    ("size", "ranks", "seconds", "algorithm", "bus"),
    # By the formula of NCCL-tests, doc/PERFORMANCE.md: a factor of 2 (n - 1) / n.
    [(1_000_000, 2, 0.001, 1e9, 1e9), (1_000_000, 8, 0.001, 1e9, 1.75e9), (4000, 1024, 2e-5, 2e8, 2e8 * 2046 / 1024)],
)
def test_bandwidths(size: int, ranks: int, seconds: float, algorithm: float, bus: float) -> None:
    assert allreduce.bandwidths(size, ranks, seconds) == pytest.approx((algorithm, bus))


@pytest.mark.parametrize(
    ("hosts", "sizes"),
    [
        ("a", []),  # one rank alone reduces nothing
        ("ab", [2]),
        ("aaa", [2, 3]),
        ("aabbcc", [2, 4, 6]),
        ("aaaa bbbb cccc dddd".replace(" ", ""), [2, 4, 8, 16]),
        ("abab", [2, 4]),  # dealt in turns
    ],
)
def test_groups_grow_within_a_node_and_then_by_nodes(hosts: str, sizes: list[int]) -> None:
    made = allreduce.groups(hosts)
    assert [len(ranks) for ranks in made] == sizes
    for ranks in made:
        whole = {host for host in hosts if sum(hosts[rank] == host for rank in ranks) == hosts.count(host)}
        assert len({hosts[rank] for rank in ranks}) == 1 or {hosts[rank] for rank in ranks} == whole


def test_what_is_started_on_a_cluster() -> None:
    made = plan("aach2023", "juwels-booster")
    ranks, asked = allreduce.trial(made), allreduce.resources(made, "us")
    assert (ranks.workers, ranks.workers_per_node, ranks.nodes) == (1024, 4, 256)
    assert "srun" in launch.command(ranks, made.machine, allreduce.PROGRAM)
    assert str(asked["launch"]).endswith("-m ddlbench.preflight.allreduce measure")
    assert (asked["nodes"], asked["tasks"], asked["gres"], asked["runtime"]) == (256, 1024, "gpu:4", 15)


def test_nodes_that_runs_share_with_others_are_measured_alone() -> None:
    made = plan("demo", "juwels-booster")  # its runs have one and two workers
    assert allreduce.trial(made).workers == 2
    assert "--exclusive" in str(allreduce.resources(made, None)["slurm_extra"])


@pytest.mark.parametrize("has", [2, 8])
def test_what_is_started_here(has: int) -> None:
    assert allreduce.trial(plan("demo", "local", workers_per_node=has)).workers == 2


@pytest.mark.parametrize(("has", "workers"), [(1, 1), (8, 2)])
def test_a_study_of_others_records_has_no_runs(has: int, workers: int) -> None:
    made = plan("demo", "local", workers_per_node=8)
    made = replace(made, runs={}, machine=replace(made.machine, workers_per_node=has))
    assert allreduce.trial(made).workers == workers


TIMES = [0.010, 0.011, 0.012, 0.013, 0.014, 0.016, 0.017, 0.018, 0.019, 0.020]
LEFT = {"bytes": 1 << 20, "workers": 8, "nodes": 2, "backend": "nccl", "times_s": TIMES}


def test_a_row_has_medians_and_intervals() -> None:
    row = allreduce.row(LEFT)
    assert tuple(row) == allreduce.COLUMNS
    assert row["seconds"] == pytest.approx((0.014 * 0.016) ** 0.5)
    # Of ten values the second and the ninth hold the median with 97.9 %, the third and the eighth with 89.1 %.
    assert 0.011 <= row["seconds_low"] < 0.012 and 0.018 < row["seconds_high"] <= 0.019
    assert row["bus_bytes_per_s"] == pytest.approx(1.75 * (1 << 20) / row["seconds"])
    assert row["bus_bytes_per_s_low"] == pytest.approx(1.75 * (1 << 20) / row["seconds_high"])
    assert row["bus_bytes_per_s_low"] < row["bus_bytes_per_s"] < row["bus_bytes_per_s_high"]
    assert allreduce.said([row])[1].startswith("     1 MiB, 8 workers on 2 nodes: 14.967 ms, 0.123 (0.")
    assert "nothing" in allreduce.said([])[0]


def started(output: Path, code: int) -> int:
    """The job with a launcher that leaves what rank 0 leaves, and ends with this exit code."""
    shell = f"echo '{json.dumps([LEFT])}' > $1/{allreduce.TIMES}; exit {code}"
    return allreduce.execute(output, "local", "cpu", 2, ["env", "sh", "-c", shell, "sh"])


def test_the_table_is_there_only_if_all_ranks_ended_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "machines/m/allreduce-s.csv"
    assert started(output, 3) == 3
    assert list(output.parent.iterdir()) == []
    (output.parent / "allreduce-s.partial").mkdir()  # of a job that was killed
    assert started(output, 0) == 0
    assert list(output.parent.iterdir()) == [output]
    with output.open(encoding="utf-8", newline="") as lines:
        assert [row["workers"] for row in csv.DictReader(lines)] == ["8"]
    assert "8 workers on 2 nodes" in capfd.readouterr().out
