"""Which nodes fail the screening, what is read and written for it, and who is screened; `screens.py` pretends."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlbench.analysis.slow import is_slow
from ddlbench.core import files
from ddlbench.plan import launch
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.preflight import __main__ as job
from ddlbench.preflight import nodes, promise, screen
from ddlbench.settings.machine import Preflight, load_machine
from ddlbench.settings.study import load_study
from ddlbench.slurm.jobs import node_resources

from tests.specs import JUWELS, pick
from tests.unit.screens import PORTS, of_node, slow_down, sound, verdicts, why


def test_sound_nodes_pass(tmp_path: Path) -> None:
    rows = nodes.rows(sound())
    assert [row["verdict"] for row in rows] == [nodes.PASS] * 4
    assert {row["why"] + row["remarks"] for row in rows} == {""}
    assert nodes.problems(rows, "here") == []
    files.write_csv(tmp_path / "nodes.csv", rows, nodes.NAMES)
    read = files.read_csv(tmp_path / "nodes.csv")
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


def test_eight_percent_is_not_slow_and_a_third_of_all_nodes_can_be() -> None:
    screens = sound()
    slow_down(of_node(screens, "node2")[0], "matmul_flops_per_s", 0.92)
    assert set(verdicts(screens).values()) == {nodes.PASS}
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


@pytest.mark.parametrize("hosts", [2, 4, 16, 64])
def test_false_alarms_are_rare_and_a_slow_one_is_not_missed(hosts: int) -> None:
    """Sound nodes of 2 % spread: of a hundred screenings at most one may accuse any, and two may miss a slow one."""
    chance, accused, missed = random.Random(7 + hosts), 0, 0
    for _ in range(100):
        values = [chance.gauss(100, 2) for _ in range(hosts)]
        accused += any(is_slow(value, values[:n] + values[n + 1 :]) for n, value in enumerate(values))
        missed += not is_slow(chance.gauss(80, 2), values[1:])
    assert accused <= 1 and missed <= 2


def test_what_all_have_is_no_fault() -> None:
    screens = sound()
    for one in screens:
        one["system"]["governors"] = {"powersave": 48}
    rows = nodes.rows(screens)
    assert [row["verdict"] for row in rows] == [nodes.PASS] * 4
    assert rows[0]["remarks"] == "CPU governor powersave"


@pytest.mark.parametrize(
    ("port", "governors", "said"),
    [
        ({"state": "DOWN", "gbit_per_s": 200.0}, {}, "InfiniBand port mlx5_1/1 is DOWN, ACTIVE on most others"),
        (None, {}, "InfiniBand port mlx5_1/1 is missing, ACTIVE on most others"),
        ({"state": "ACTIVE", "gbit_per_s": 100.0}, {}, "InfiniBand port mlx5_1/1 has 100 Gbit/s, 200 on most others"),
        (PORTS["mlx5_1/1"], {"powersave": 1}, "CPU governor powersave, performance on most others"),
    ],
)
def test_a_nodes_state_has_to_be_that_of_most_others(port: Any, governors: dict[str, int], said: str) -> None:
    screens = sound()
    for one in of_node(screens, "node2"):
        one["system"]["governors"] |= governors
        one["system"]["infiniband"] |= {"mlx5_1/1": port}
        if port is None:
            del one["system"]["infiniband"]["mlx5_1/1"]
    assert why(screens) == said


def test_a_port_that_nobody_uses_is_no_fault() -> None:
    screens = sound()
    for one in screens:
        one["system"]["infiniband"]["mlx5_1/1"] = {"state": "DOWN", "gbit_per_s": None}
    assert set(verdicts(screens).values()) == {nodes.PASS}


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
    rows = nodes.rows(screens)
    assert nodes.failed(rows) == []
    assert "no other device is of its kind" in rows[3]["remarks"]


def test_one_device_of_four_hundred() -> None:
    screens = sound(100)
    slow_down(of_node(screens, "node77")[0], "memory_bytes_per_s", 0.6)
    assert nodes.failed(nodes.rows(screens)) == ["node77"]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_governors_and_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    assert screen.state(tmp_path) == {"governors": {}, "infiniband": {}}
    for number, governor in enumerate(["performance", "performance", "powersave"]):
        write(tmp_path / f"devices/system/cpu/cpu{number}/cpufreq", scaling_governor=governor)
    ports = tmp_path / "class/infiniband"
    write(ports / "mlx5_0/ports/1", state="4: ACTIVE", rate="200 Gb/sec (4X HDR)", link_layer="InfiniBand")
    write(ports / "mlx5_1/ports/1", state="1: DOWN", rate="odd", link_layer="InfiniBand")
    write(ports / "mlx5_2/ports/1", state="1: DOWN", rate="25 Gb/sec (1X EDR)", link_layer="Ethernet")
    assert screen.state(tmp_path) == {
        "governors": {"performance": 2, "powersave": 1},
        "infiniband": {
            "mlx5_0/1": {"state": "ACTIVE", "gbit_per_s": 200.0},
            "mlx5_1/1": {"state": "DOWN", "gbit_per_s": None},
        },
    }


def test_a_cpu_is_put_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "WINDOW_S", 0.01)
    monkeypatch.setattr(screen, "SIZES", {"cpu": 64})
    monkeypatch.setattr(screen, "COPIED", {"cpu": 1 << 20})
    monkeypatch.setenv("SLURMD_NODENAME", "jwb0001")
    monkeypatch.setenv("SLURM_TOPOLOGY_ADDR", "root.leaf1.jwb0001")
    seen = screen.look("cpu", {})
    assert (seen["node"], seen["topology"]) == ("jwb0001", "root.leaf1.jwb0001")
    seen["rates"] = screen.rates("cpu")
    assert set(seen["rates"]) == {quantity.name for quantity in nodes.RATES}
    assert all(len(windows) == screen.WINDOWS and min(windows) > 0 for windows in seen["rates"].values())
    assert verdicts([seen]) == {"jwb0001": nodes.PASS}


def test_the_job_writes_table_and_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    screens = sound(4, 1)
    slow_down(screens[1], "matmul_flops_per_s", 0.5)
    output = tmp_path / "preflight-aach2023.json"
    said = job._screened(screens, "juwels-booster", [], output)
    assert [problem.error for problem in said] == [True, True]
    assert str(said[1]).endswith("leave node1 out with config/machines/juwels-booster.yaml: exclude_nodes: [node1]")
    assert output.with_suffix(promise.EXCLUDE).read_text() == "node1\n"
    assert len(output.with_suffix(promise.NODES).read_text().splitlines()) == 5
    assert "screened 4 nodes, 1 failed:" in capsys.readouterr().out


# The machine file


def test_all_nodes_of_a_run_are_screened(paper: Plan) -> None:
    def trial(nodes: Any) -> promise.Trial:
        return promise.trial(make_plan(paper.study, replace(JUWELS, preflight=Preflight(nodes))))

    assert trial(None).nodes == 2
    assert trial("all") == promise.Trial(JUWELS.workers, 4)
    assert trial(7).nodes == 7
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
    assert node_resources(machine, "project")["slurm_extra"] == "--exclude=jwb0001,jwb0107"
    plain = launch.resources(spec, JUWELS, 30, "project")
    assert "--exclude" not in str(plain["slurm_extra"])
    assert "slurm_extra" not in node_resources(JUWELS, "project")
