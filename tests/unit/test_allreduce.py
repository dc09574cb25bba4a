"""All-reduces measured alone: bandwidths, groups of nodes, what is started."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.plan import launch
from ddlbench.plan.runs import make_plan
from ddlbench.preflight import allreduce
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study


@pytest.mark.parametrize(
    ("size", "ranks", "seconds", "algorithm", "bus"),
    # By the formula of NCCL-tests, doc/PERFORMANCE.md: a factor of 2 (n - 1) / n.
    [(1_000_000, 2, 0.001, 1e9, 1e9), (1_000_000, 8, 0.001, 1e9, 1.75e9), (4000, 1024, 2e-5, 2e8, 2e8 * 2046 / 1024)],
)
def test_bandwidths(size: int, ranks: int, seconds: float, algorithm: float, bus: float) -> None:
    assert allreduce.bandwidths(size, ranks, seconds) == pytest.approx((algorithm, bus))


def test_groups_are_the_first_nodes() -> None:
    hosts = ["a", "a", "b", "b", "c", "c"]
    assert allreduce.groups(hosts) == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert allreduce.groups(["a", "b"]) == [[0, 1]]  # one rank alone reduces nothing
    assert allreduce.groups(["a"]) == []


def test_what_is_started_on_a_cluster() -> None:
    plan = make_plan(load_study("aach2023"), load_machine("juwels-booster"))
    ranks = allreduce.trial(plan)
    assert (ranks.workers, ranks.workers_per_node, ranks.nodes) == (1024, 4, 256)
    asked = launch.resources(ranks, plan.machine, allreduce.MINUTES, None, allreduce.PROGRAM)
    argv = launch.command(ranks, plan.machine, allreduce.PROGRAM)
    assert "srun" in argv and argv[-3:] == ["-m", "ddlbench.preflight.allreduce", "measure"]
    assert (asked["nodes"], asked["tasks"], asked["gres"], asked["runtime"]) == (256, 1024, "gpu:4", 15)


def test_what_is_started_here() -> None:
    plan = make_plan(load_study("demo"), replace(load_machine("local"), workers_per_node=8))
    assert allreduce.trial(plan).workers == 2


def test_the_table_for_people(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    with table.open("w", newline="") as lines:
        out = csv.DictWriter(lines, allreduce.COLUMNS)
        out.writeheader()
        out.writerows([allreduce.row(4096, 2, 1, 1e-4, "gloo"), allreduce.row(1 << 28, 8, 2, 0.1, "nccl")])
    assert allreduce.said(table)[1:] == [
        "     4 KiB, 2 ranks on 1 node: 0.100 ms, bus 0.041 GB/s",
        "   256 MiB, 8 ranks on 2 nodes: 100.000 ms, bus 4.7 GB/s",
    ]
    table.write_text(table.read_text().splitlines()[0])
    assert "no all-reduce was measured" in allreduce.said(table)[0]
