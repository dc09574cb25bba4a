"""Ranks on this machine with a cable between them: each node is a network namespace of its own, one
rank in each.

`python -m ddlbench.run.namespaces --nodes=2 --mbit=100 python -m ddlbench.train` is what
`plan/launch.py` says for machines with launcher namespaces. It needs root, iproute2 and util-linux.

The namespaces have no names. The kernel removes each with its last process, and the cable with it;
ranks are killed when this process dies. So nothing is left after a kill -9 either, and nobody has
to look for what an earlier run left.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddlbench.core import living
from ddlbench.run.local import wait
from ddlbench.settings.machine import CABLE

TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
PORT = 29500  # each run has a network of its own, where all ports are free
TIMEOUT_S = 10.0  # in which a namespace must be there
QUEUE_S, BURST_S, LEAST_BURST = 0.1, 0.004, 16384


def lacks() -> str | None:
    """Return what is missing for network namespaces, and how to fix it; None if nothing is."""
    if os.geteuid() != 0:
        return (
            "launcher namespaces makes network namespaces, for which it needs root: start Snakemake"
            " as root"
        )
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"launcher namespaces needs {tool}, which is not on the path: install {package}"
    return None


# In its namespaces: `/sys` anew, because it shows the interfaces of the namespace that it was
# mounted in; and this host's name for its address on the cable ($0), because Horovod meets by it
# whatever HOROVOD_GLOO_IFACE says. Wait.
SHELL = """mount -t sysfs sysfs /sys && hosts=$(mktemp) &&
printf '127.0.0.1 localhost\\n%s %s\\n' "$0" "$(uname -n)" > "$hosts" &&
mount --bind "$hosts" /etc/hosts && rm "$hosts" && read -r _ && exec "$@"
"""


def wiring(pids: Sequence[int], mbit: int | None) -> list[list[str]]:
    """Return the commands that lay a cable between the namespaces of two processes; of one, from it
    to itself. Both ends send at most `mbit` [Mbit/s]; None leaves them unlimited. What the bucket
    lets through at once is as much as the rate gives in BURST_S, and more than a packet; what waits
    longer than QUEUE_S is dropped.
    """
    peer = CABLE if len(pids) > 1 else f"{CABLE}-back"
    ends = ["netns", str(pids[0]), "type", "veth", "peer", "name", peer, "netns", str(pids[-1])]
    commands = [["ip", "link", "add", CABLE, *ends]]
    for node, pid in enumerate(pids):
        inside = ["nsenter", f"--target={pid}", "--net"]
        commands += [
            [*inside, "ip", "address", "add", f"{address(node)}/24", "dev", CABLE],
            [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "link", "set", CABLE, "up"],
        ]
        if mbit is not None:
            burst = max(LEAST_BURST, round(mbit * 1e6 / 8 * BURST_S))
            shape = [
                "tbf",
                "rate",
                f"{mbit}mbit",
                "burst",
                str(burst),
                "latency",
                f"{round(1000 * QUEUE_S)}ms",
            ]
            commands.append([*inside, "tc", "qdisc", "add", "dev", CABLE, "root", *shape])
    return commands


def address(node: int) -> str:
    """Return a node's address on the cable."""
    return f"10.77.0.{node + 1}"


def run(program: Sequence[str], nodes: int, mbit: int | None) -> int:
    """Start a rank per node and wait for all. The first exit code that is not 0 ends the others,
    and is returned. Raises OSError, which names the command, if the cable cannot be created.
    """
    place = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address(0),
        "MASTER_PORT": str(PORT),
    }
    ranks = []
    for node in range(nodes):
        variables = os.environ | place | {"RANK": str(node), "WORLD_SIZE": str(nodes)}
        argv = ["unshare", "--net", "--mount", "sh", "-c", SHELL, address(node), *program]
        rank = subprocess.Popen(
            argv, env=variables, stdin=subprocess.PIPE, preexec_fn=living.die_with_parent
        )
        ranks.append(rank)
    try:
        for rank in ranks:
            _wait_for_namespace(rank)
        for command in wiring([rank.pid for rank in ranks], mbit):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write(b"\n")
            rank.stdin.close()
        return wait(ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _wait_for_namespace(rank: subprocess.Popen[bytes]) -> None:
    ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{rank.pid}/ns/net")
    give_up = time.monotonic() + TIMEOUT_S
    while ours.readlink() == theirs.readlink():
        if rank.poll() is not None or time.monotonic() > give_up:
            raise OSError("unshare --net --mount: makes no network namespace")
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--nodes", type=int, choices=(1, 2), required=True, help="each is a network namespace"
    )
    parser.add_argument("--mbit", type=int, help="bandwidth of the cable, each way [Mbit/s]")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what each rank executes")
    a = parser.parse_args()
    missing = lacks()
    if missing:
        sys.exit(missing)
    try:
        sys.exit(run(a.program, a.nodes, a.mbit))
    except OSError as error:
        sys.exit(f"launcher namespaces: {error}")


if __name__ == "__main__":
    main()
