"""Which nodes fail the screening, from pretended readings, and who is screened; `screens.py` pretends."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.analysis.slow import is_slow
from ddlbench.plan import launch
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.preflight import gpu, nodes, promise
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Preflight, load_machine
from ddlbench.settings.study import load_study

from tests.specs import JUWELS, pick
from tests.unit.screens import NOTHING, of_node, slow_down, sound, verdicts, why


def test_sound_nodes_pass() -> None:
    rows = nodes.rows(sound())
    assert [row["verdict"] for row in rows] == [nodes.PASS] * 4
    assert {row["why"] + row["remarks"] for row in rows} == {""}
    assert nodes.problems(rows, "here") == []
    read = list(csv.DictReader(io.StringIO(nodes.table(rows))))
    assert [row["node"] for row in read] == ["node0", "node1", "node2", "node3"]
    assert read[3]["topology"] == "root.leaf1.node3"
    assert float(read[0]["matmul_flops_per_s"]) == pytest.approx(2.5e14, rel=0.01)
    assert (read[0]["devices"], read[0]["infiniband_ports"], read[0]["governor"]) == ("4", "4", "performance")
    assert "250" in nodes.lines(rows)[1] or "249" in nodes.lines(rows)[1]


@pytest.mark.parametrize("hosts", [2, 3, 4, 64])
@pytest.mark.parametrize("rate", [quantity.name for quantity in nodes.RATES])
def test_one_slow_device_fails_its_node(hosts: int, rate: str) -> None:
    """Of two nodes, too: there the slow one is half of all there is."""
    screens = sound(hosts)
    slow_down(of_node(screens, "node1")[2], rate, 0.8)
    assert "device 2: " in why(screens, "node1")
    assert "20% below the others' median" in why(screens, "node1")


def test_eight_percent_is_not_slow() -> None:
    screens = sound()
    slow_down(of_node(screens, "node2")[0], "matmul_flops_per_s", 0.92)
    assert set(verdicts(screens).values()) == {nodes.PASS}


def test_a_third_of_all_nodes_can_be_slow() -> None:
    screens = sound(9)
    for one in screens:
        if one["node"] in ("node1", "node4", "node7"):
            slow_down(one, "matmul_flops_per_s", 0.7)
    assert nodes.failed(nodes.rows(screens)) == ["node1", "node4", "node7"]


def test_where_all_differ_much_a_tenth_is_nothing() -> None:
    """Three of the robust standard deviations of the others: 25 % below them is within what these nodes differ by."""
    values = [70.0, 85.0, 95.0, 100.0, 105.0, 115.0, 130.0]
    assert not is_slow(75.0, values)
    assert is_slow(20.0, values)
    assert not is_slow(75.0, [])
    assert not is_slow(75.0, [100.0], error=10.0)  # a measurement that scatters so much says nothing
    assert is_slow(75.0, [100.0], error=5.0)


def test_false_alarms_are_rare() -> None:
    """Sound nodes of 2 % spread: at most one screening in a hundred may accuse one, whatever their number."""
    chance = random.Random(7)
    for hosts in (2, 4, 16, 64):
        accused = 0
        for _ in range(100):
            values = [chance.gauss(100, 2) for _ in range(hosts)]
            accused += any(is_slow(value, values[:n] + values[n + 1 :]) for n, value in enumerate(values))
        assert accused <= 1, hosts


def test_a_slow_one_is_not_missed() -> None:
    chance = random.Random(8)
    for hosts in (2, 4, 16, 64):
        missed = 0
        for _ in range(100):
            missed += not is_slow(chance.gauss(80, 2), [chance.gauss(100, 2) for _ in range(hosts - 1)])
        assert missed <= 2, hosts


# What one reading says, on one GPU of node2: (when, key, value, what is said).
FAULTS = [
    ("busy", "slowdowns", ["HwPowerBrakeSlowdown"], "its power supply slows it down (power brake)"),
    ("busy", "slowdowns", ["HwThermalSlowdown"], "too hot"),
    ("after", "ecc_uncorrected", 2, "2 uncorrectable memory errors"),
    ("after", "remapped_rows", [0, 3, 1, 0], "row remapping pending"),
    ("after", "remapped_rows", [0, 3, 1, 1], "row remapping failed"),
    ("after", "pages_pending", 1, "waits to be retired"),
    ("busy", "pcie_lanes", 8, "PCIe has 8 lanes of 16"),
    ("busy", "pcie_generation", 3, "PCIe generation 3, 4 on most others"),
    ("after", "pcie_replays", 16, "9 PCIe packets were sent again"),
    ("busy", "nvlinks", 11, "active NVLinks 11, 12 on most others"),
    ("after", "nvlink_errors", dict.fromkeys(gpu.LINK_ERRORS, 3) | {"crc_data": 5}, "2 NVLink errors (crc_data)"),
    ("busy", "power_limit_w", 300.0, "power limit 300 W, 400 W on most others"),
    ("busy", "sm_clock_mhz", 1100, "clock under load 1100 MHz, 22% below the others' median 1410"),
]


@pytest.mark.parametrize(("when", "key", "value", "said"), FAULTS, ids=[f[3] for f in FAULTS])
def test_a_reading_fails_its_node(when: str, key: str, value: Any, said: str) -> None:
    screens = sound()
    of_node(screens, "node2")[1]["gpu"][when][key] = value
    assert said in why(screens)


def test_what_all_have_is_no_fault() -> None:
    """A site's power limit, replaced rows, and what older drivers do not tell."""
    screens = sound()
    for one in screens:
        one["system"]["governors"] = {"powersave": 48}
        for reading in one["gpu"].values():
            reading |= {"power_limit_w": 300.0, "remapped_rows": [1, 2, 0, 0], "sm_clock_mhz": None, "slowdowns": None}
    rows = nodes.rows(screens)
    assert [row["verdict"] for row in rows] == [nodes.PASS] * 4
    assert "power limit 300 W, 400 W by default" in rows[0]["remarks"]
    assert "3 memory rows were replaced" in rows[0]["remarks"]
    assert "CPU governor powersave" in rows[0]["remarks"]


def test_a_gpu_that_nvml_does_not_answer_for_is_compared_by_its_rates() -> None:
    screens = sound()
    one = of_node(screens, "node2")[0]
    one["gpu"] = {when: {"error": "NVML: Driver/library version mismatch"} for when in one["gpu"]}
    assert verdicts(screens)["node2"] == nodes.PASS
    (row,) = [row for row in nodes.rows(screens) if row["node"] == "node2"]
    assert row["remarks"] == "device 0: NVML: Driver/library version mismatch"
    slow_down(one, "matmul_flops_per_s", 0.5)
    assert "50% below" in why(screens)


def test_infiniband_ports_have_to_be_what_most_others_have() -> None:
    screens = sound()
    for one in of_node(screens, "node2"):
        one["system"]["infiniband"]["mlx5_1/1"]["state"] = "DOWN"
    assert why(screens) == "InfiniBand port mlx5_1/1 is DOWN, ACTIVE on most others"
    for one in of_node(screens, "node2"):
        del one["system"]["infiniband"]["mlx5_1/1"]
    assert why(screens) == "InfiniBand port mlx5_1/1 is missing, ACTIVE on most others"
    for one in of_node(screens, "node2"):
        one["system"]["infiniband"]["mlx5_1/1"] = {"state": "ACTIVE", "gbit_per_s": 100.0}
    assert why(screens) == "InfiniBand port mlx5_1/1 has 100 Gbit/s, 200 on most others"
    for one in screens:  # a port that nobody uses
        one["system"]["infiniband"]["mlx5_1/1"] = {"state": "DOWN", "gbit_per_s": None}
    assert set(verdicts(screens).values()) == {nodes.PASS}


def test_a_governor_that_saves_power_among_others() -> None:
    screens = sound()
    for one in of_node(screens, "node2"):
        one["system"]["governors"] = {"performance": 47, "powersave": 1}
    assert why(screens) == "CPU governor powersave, performance on most others"


def test_nodes_that_leave_nothing() -> None:
    screens = sound(3)
    rows = nodes.rows(screens, ["node0", "node1", "node2", "node9"])
    assert (rows[0]["node"], rows[0]["why"]) == ("node9", "no report from its ranks")
    named = [f"{node}.example.org" for node in ("node0", "node1", "node2", "node9")]  # ranks know other names
    assert len(nodes.rows(screens, named)) == 3
    of_node(screens, "node2")[3]["rates"] = None
    assert why(screens) == "device 3: did not get to the end of its load"
    for one in screens:  # the ranks did not meet: that is nobody's fault yet
        one["rates"] = None
        one["gpu"] = {"before": NOTHING}
    assert set(verdicts(screens).values()) == {nodes.UNKNOWN}
    assert nodes.rows([], ["node0"]) == []
    for one in of_node(screens, "node1"):
        one["system"]["infiniband"] = {}
    assert "missing" in why(screens, "node1")


def test_devices_of_one_node_are_compared_with_each_other() -> None:
    screens = sound(1)
    assert verdicts(screens) == {"node0": nodes.PASS}
    slow_down(screens[3], "matmul_flops_per_s", 0.7)
    assert why(screens, "node0").startswith("device 3: matrix product")


def test_other_kinds_are_not_compared() -> None:
    screens = sound(4, 1)
    one = of_node(screens, "node3")[0]
    one["kind"] = "Tesla V100-SXM2-16GB"
    slow_down(one, "matmul_flops_per_s", 0.4)
    one["gpu"]["busy"]["nvlinks"] = 6
    rows = nodes.rows(screens)
    assert nodes.failed(rows) == []
    assert "no other device is of its kind" in rows[3]["remarks"]


def test_one_device_of_four_hundred() -> None:
    screens = sound(100)
    slow_down(of_node(screens, "node77")[0], "memory_bytes_per_s", 0.6)
    assert nodes.failed(nodes.rows(screens)) == ["node77"]


# The machine file


def test_all_nodes_of_a_run_are_screened(paper: Plan) -> None:
    def trial(nodes: str | None) -> promise.Trial:
        return promise.trial(make_plan(paper.study, replace(JUWELS, preflight=Preflight(nodes))))

    assert trial(None).nodes == 2
    assert trial("all") == promise.Trial(JUWELS.workers, 4)
    assert trial("7").nodes == 7
    assert "screened" not in promise.promised(paper)
    of = make_plan(paper.study, replace(JUWELS, preflight=Preflight("all")))
    assert promise.promised(of)["screened"] is True
    assert f"srun --nodes={JUWELS.nodes} " in str(promise.resources(of, None)["launch"])
    local = replace(load_machine("local"), workers_per_node=3, preflight=Preflight("all"))
    assert promise.trial(make_plan(load_study("demo"), local)) == promise.Trial(3, 3)


def test_excluded_nodes_are_asked_for_by_no_job(paper: Plan) -> None:
    machine = replace(JUWELS, exclude_nodes=("jwb0001", "jwb0107"))
    spec = pick(paper, workers=8)
    asked = launch.resources(spec, machine, 30, "project")
    assert " --exclude=jwb0001,jwb0107" in str(asked["slurm_extra"])
    assert launch.node_resources(machine, "project")["slurm_extra"] == "--exclude=jwb0001,jwb0107"
    plain = launch.resources(spec, JUWELS, 30, "project")
    assert "--exclude" not in str(plain["slurm_extra"])
    assert "slurm_extra" not in launch.node_resources(JUWELS, "project")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"preflight": {"nodes": "most"}}, 'preflight.nodes: "most" is not allowed; allowed: text matching ^all$'),
        ({"preflight": {"nodes": 0}}, "preflight.nodes: 0 is not allowed; allowed: at least 1"),
        ({"preflight": {"nodes": 9}}, "preflight.nodes: 9 is not allowed; allowed: all, null, or a number up to 4"),
        ({"preflight": {"node": 1}}, "preflight.node: unknown key; allowed: nodes"),
        ({"exclude_nodes": ["a b"]}, 'exclude_nodes.0: "a b" is not allowed'),
        ({"exclude_nodes": "node3"}, 'exclude_nodes: "node3" is not allowed; allowed: a list (write it as [node3])'),
    ],
)
def test_wrong_keys_of_a_machine_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    machine = {
        "launcher": "slurm",
        "device": "cpu",
        "device_name": "core",
        "workers_per_node": 2,
        "partitions": [{"name": "booster", "max_nodes": 4, "max_minutes": 60}],
    }
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(machine | changes))
    with pytest.raises(ConfigError) as caught:
        load_machine("one", tmp_path)
    assert said in str(caught.value)


def test_a_local_machine_excludes_nothing(tmp_path: Path) -> None:
    machine = {"launcher": "local", "device": "cpu", "device_name": "core", "exclude_nodes": ["node3"]}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(machine))
    with pytest.raises(ConfigError, match=r"exclude_nodes.*allowed: none, because launcher is local"):
        load_machine("one", tmp_path)
