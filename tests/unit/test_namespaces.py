"""Ranks with a cable between them: command lines as values, and, where root may make network
namespaces, for real.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddlbench.analysis.recorded import ONE_NODE, resources
from ddlbench.plan import launch
from ddlbench.plan.runs import make_plan
from ddlbench.run import namespaces
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from ddlbench.slurm.sbatch import node_resources

from tests.builders.machines import LAPTOP
from tests.builders.plans import pick, write_study
from tests.facts import missing, refuses

NETEM = load_machine("local-netem")
STUDY = "deepspeed-features-bandwidth"


def can_make_namespaces() -> bool:
    script = "mount -t sysfs sysfs /sys && ip link add one type veth peer two"
    tried = ["unshare", "--net", "--mount", "sh", "-c", script]
    return namespaces.lacks() is None and subprocess.run(tried, capture_output=True).returncode == 0


REAL = pytest.mark.skipif(
    not can_make_namespaces(), reason="this machine lets nobody make network namespaces"
)


def test_a_cable_of_a_rate() -> None:
    one, two = (["nsenter", f"--target={pid}", "--net"] for pid in (71, 72))
    shape = ["tbf", "rate", "100mbit", "burst", "50000", "latency", "100ms"]
    assert namespaces.wiring([71, 72], 100) == [
        [
            "ip",
            "link",
            "add",
            "veth0",
            "netns",
            "71",
            "type",
            "veth",
            "peer",
            "name",
            "veth0",
            "netns",
            "72",
        ],
        [*one, "ip", "address", "add", "10.77.0.1/24", "dev", "veth0"],
        [*one, "ip", "link", "set", "lo", "up"],
        [*one, "ip", "link", "set", "veth0", "up"],
        [*one, "tc", "qdisc", "add", "dev", "veth0", "root", *shape],
        [*two, "ip", "address", "add", "10.77.0.2/24", "dev", "veth0"],
        [*two, "ip", "link", "set", "lo", "up"],
        [*two, "ip", "link", "set", "veth0", "up"],
        [*two, "tc", "qdisc", "add", "dev", "veth0", "root", *shape],
    ]
    assert "16384" in namespaces.wiring([71, 72], 10)[4]  # never less than a few packets
    assert not any("tc" in command for command in namespaces.wiring([71, 72], None))


def test_ranks_of_the_machine_are_started_in_namespaces() -> None:
    plan = make_plan(load_study(STUDY), NETEM)
    spec = pick(plan, framework="horovod", bandwidth_mbit=10)
    argv = launch.command(spec, NETEM)
    start = [
        "python",
        "-m",
        "ddlbench.run.namespaces",
        "--nodes=2",
        "--mbit=10",
        "python",
        "-m",
        "ddlbench.train",
    ]
    assert argv[-len(start) :] == start
    assert {"GLOO_SOCKET_IFNAME=veth0", "HOROVOD_GLOO_IFACE=veth0"} <= set(argv)
    assert "-2workers-10mbit-" in spec.id
    assert launch.resources(spec, NETEM, 30, "account").keys() == {"launch"}
    assert node_resources(NETEM, "account") == {}


def test_runs_without_a_bandwidth_are_written_as_before() -> None:
    spec = pick(make_plan(load_study("frameworks"), LAPTOP), framework="ddp")
    assert "bandwidth" not in spec.to_json()
    assert "mbit" not in spec.id


@pytest.mark.parametrize(
    ("machine", "workers", "facts"),
    [
        (LAPTOP, [2], ("runs.adam.bandwidths_mbit: 10", "machine local", "launcher local")),
        (NETEM, [1], ("bandwidths_mbit", "left out", "1 worker")),
    ],
    ids=["local", "one-worker"],
)
def test_a_bandwidth_needs_a_cable(
    tmp_path: Path, machine: Any, workers: list[int], facts: tuple[str, ...]
) -> None:
    mine = yaml.safe_load((CONFIG / f"studies/{STUDY}.yaml").read_text()) | {"workers": workers}
    with refuses(ConfigError, *facts):
        make_plan(write_study(tmp_path, mine), machine)


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (namespaces.lacks() or "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else f"/sbin/{tool}")
    assert missing(namespaces.lacks(), "namespaces", "tc", "iproute2") == []


def test_namespaces_of_one_host_have_a_network() -> None:
    ranks = [{"host": "a", "local_rank": 0, "network_sent_bytes": n} for n in (5, 7)]
    assert resources(ranks, "cpu", {})["network_sent_bytes"] == 12
    ranks[1]["local_rank"] = 1
    assert resources(ranks, "cpu", {})["network_sent_bytes"] == ONE_NODE


def launched(*program: str, mbit: int | None = None) -> list[str]:
    rate = [f"--mbit={mbit}"] if mbit else []
    return [sys.executable, "-m", "ddlbench.run.namespaces", "--nodes=2", *rate, *program]


# Rank 0 sends a megabyte over the cable and says what its interfaces are, what it sent and how long
# it took. A megabyte at 10 Mbit/s takes 0.8 s.
SENDER = """
import json, os, socket, sys, time
rank, sent = int(os.environ["RANK"]), lambda: int(open("/sys/class/net/veth0/statistics/tx_bytes").read())
if rank == 1:
    server = socket.create_server(("10.77.0.2", 4000))
    peer = server.accept()[0]
    while peer.recv(1 << 16): pass
    peer.close()
    sys.exit()
while True:
    try: peer = socket.create_connection(("10.77.0.2", 4000), 5); break
    except ConnectionRefusedError: time.sleep(0.02)
before, began = sent(), time.monotonic()
peer.sendall(bytes(1_000_000)); peer.shutdown(socket.SHUT_WR); peer.recv(1)
took = time.monotonic() - began
print(json.dumps({"interfaces": sorted(os.listdir("/sys/class/net")), "sent": sent() - before, "took_s": took}))
"""


@REAL
def test_the_cable_carries_what_it_should_and_counts_it() -> None:
    done = subprocess.run(
        launched(sys.executable, "-c", SENDER, mbit=10), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["interfaces"] == ["lo", "veth0"]
    assert 1_000_000 < said["sent"] < 1_150_000  # headers, and what was sent again
    assert 0.7 < said["took_s"] < 10


@REAL
def test_the_first_failure_is_the_exit_code() -> None:
    done = subprocess.run(
        launched("sh", "-c", "exit $((RANK * 3))"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr


@REAL
def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    """The ranks die with their launcher, and with them their namespaces and the cable."""
    told = (
        'readlink /proc/self/ns/net > "$0/$RANK.new"; mv "$0/$RANK.new" "$0/$RANK"; exec sleep 300'
    )
    process = subprocess.Popen(launched("sh", "-c", told, str(tmp_path)))
    give_up = time.monotonic() + 30
    while not all((tmp_path / str(rank)).exists() for rank in (0, 1)):
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.05)
    made = {(tmp_path / str(rank)).read_text().strip() for rank in (0, 1)}
    assert len(made) == 2
    assert made <= living()
    process.send_signal(signal.SIGKILL)
    process.wait()
    while made & living():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def living() -> set[str]:
    """The network namespaces of all processes."""
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(process.readlink()))
        except OSError:
            continue
    return found
