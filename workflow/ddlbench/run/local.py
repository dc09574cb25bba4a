"""Ranks on this machine: one process each, with the variables that torchrun sets.

    python -m ddlbench.run.local --workers=2 python -m ddlbench.train

`plan/launch.py` names this command for machines with launcher local, for every framework. torchrun
and horovodrun would import torch to do the same, which costs a run 1.4 CPU-s, and torchrun leaves a
folder in /tmp.
"""

import argparse
import errno
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ddlbench.core import living

HOST = "127.0.0.1"
# Two for each launcher, as Horovod's rendezvous takes the next one. Below those that the kernel
# gives to outgoing connections (32768 and up) and those of SLURM jobs (`slurm/step.py`).
PORTS = range(10000, 20000, 2)
TIMEOUT_S = 10.0  # that the other ranks get to say why they failed too, once one has failed
POLL_S = 0.05


def place(rank: int, workers: int, port: int) -> dict[str, str]:
    """Return torch.distributed's variables for a rank of this machine."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
    }


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a free port whose next one is free too, for ranks that listen there seconds later.

    Until then another launcher may look for one. Each holds a name for its port: an abstract socket,
    which ends with its process, and which is the network namespace's, as a port is. Raises OSError
    if no port is free.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket(socket.AF_UNIX) as name:
            if _bind(name, f"\0ddlbench-port-{port}") and _is_free(port) and _is_free(port + 1):
                yield port
                return
    raise OSError(f"no port of {PORTS[0]} to {PORTS[-1]} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        # As listeners do: connections that have ended take no port.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _bind(one, ("", port))


def _bind(one: socket.socket, address: str | tuple[str, int]) -> bool:
    try:
        one.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for the ranks: return 0 if all end well; else the first other code, once all have ended
    or TIMEOUT_S later.
    """
    first, give_up = 0, float("inf")
    while time.monotonic() < give_up:
        codes = [rank.poll() for rank in ranks]
        failed = [code for code in codes if code]
        if failed and not first:
            first = failed[0] if failed[0] > 0 else 128 - failed[0]
            give_up = time.monotonic() + TIMEOUT_S
        if None not in codes:
            break
        time.sleep(POLL_S)
    return first


def run(program: Sequence[str], workers: int) -> int:
    """Start a rank per worker and wait for all. The first exit code that is not 0 ends the others,
    and is returned. Raises OSError if the program cannot be started.
    """
    ranks: list[subprocess.Popen[bytes]] = []
    with reserved_port() as port:
        try:
            for rank in range(workers):
                variables = os.environ | place(rank, workers, port)
                ranks.append(
                    subprocess.Popen(program, env=variables, preexec_fn=living.die_with_parent)
                )
            return wait(ranks)
        finally:
            for started in ranks:
                started.kill()
                started.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, required=True, help="ranks")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what each rank executes")
    a = parser.parse_args()
    try:
        sys.exit(run(a.program, a.workers))
    except OSError as error:
        sys.exit(f"launcher local: {error}")


if __name__ == "__main__":
    main()
