"""Who am I? A rank's place in the world, from its launcher's variables: torchrun, horovodrun, Open MPI's or srun.

Under srun no launcher speaks for the framework: the SLURM variables are translated, and rank 0 hosts Horovod's
rendezvous. See `launch.py` for how ranks are started.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

# Rank, world and rank on the node, as launchers say them; the first that is there is true.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)
# Set beside the variables made from SLURM's, which would otherwise look like those of a framework's launcher.
TRANSLATED = "DDLBENCH_UNDER_SRUN"


@dataclass(frozen=True)
class Rank:
    """`rank` of `world`, and `local_rank` on its node."""

    rank: int
    world: int
    local_rank: int


class WorldError(RuntimeError):
    """The launcher started another number of ranks than the run promised."""


def under_srun() -> bool:
    """True when srun started this process and no framework's launcher did; still so after `here`."""
    e = os.environ
    launched = not {"TORCHELASTIC_RUN_ID", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"}.isdisjoint(e)
    return TRANSLATED in e or ("SLURM_PROCID" in e and not launched)


def number() -> int:
    """This process's rank as its launcher says it, before `here` has looked; 0 if nobody does."""
    names = [names[0] for names in LAUNCHERS] + ["SLURM_PROCID"]
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def slurm_variables(e: Mapping[str, str], first_host: str) -> dict[str, str]:
    """torch.distributed's and Horovod's variables for a task of srun; ports derive from the job's id.

    `first_host` is the name of the job's first node on the network that the ranks use.
    """
    rank, world, local = int(e["SLURM_PROCID"]), int(e["SLURM_NTASKS"]), int(e["SLURM_LOCALID"])
    nodes = int(e.get("SLURM_NNODES", "1"))
    per_node = str(world // nodes)
    # Two ports a job, below those that the kernel gives to outgoing connections (32768 and up).
    port = 20000 + int(e.get("SLURM_JOB_ID", "0")) % 6000 * 2
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": per_node,
        "LOCAL_SIZE": per_node,
        "MASTER_ADDR": first_host,
        "MASTER_PORT": str(port),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(world),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": per_node,
        "HOROVOD_CROSS_RANK": e.get("SLURM_NODEID", "0"),
        "HOROVOD_CROSS_SIZE": str(nodes),
        "HOROVOD_HOSTNAME": e.get("SLURMD_NODENAME", socket.gethostname()),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": first_host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port + 1),
    }


def here(workers: int) -> Rank:
    """This process's rank. Raises WorldError if the world is not `workers` ranks, or no launcher said who we are."""
    e = os.environ
    if under_srun():
        e.update(slurm_variables(e, _first_host()), **{TRANSLATED: "1"})
    said = next((names for names in LAUNCHERS if names[0] in e), None)
    if said is None:
        firsts = ", ".join(names[0] for names in LAUNCHERS)
        raise WorldError(f"no launcher set {firsts} or SLURM_PROCID: start runs with ddlbench.run")
    rank = Rank(*(int(e[name]) for name in said))
    if rank.world != workers:
        raise WorldError(f"rank {rank.rank} was promised {workers} workers and finds {rank.world}")
    return rank


def _first_host() -> str:
    if int(os.environ.get("SLURM_NNODES", "1")) == 1:
        return "127.0.0.1"
    nodes = os.environ["SLURM_JOB_NODELIST"]
    hosts = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    # On JUWELS the InfiniBand name of a node is its name and an i: machine key host_suffix.
    return hosts.stdout.split()[0] + os.environ.get("DDLBENCH_HOST_SUFFIX", "")


def host_horovod_rendezvous(patience_s: float = 120.0) -> None:
    """Rank 0 serves the key-value store that Horovod's ranks meet in; the others wait until it answers."""
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if os.environ["RANK"] == "0":
        from threading import Thread

        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        try:
            server = RendezvousHTTPServer(("", port), RendezvousHandler, 0)
        except OSError as error:
            raise OSError(error.errno, f"Horovod's rendezvous, port {port}: {error.strerror}") from error
        Thread(target=server.serve_forever, daemon=True).start()
        return
    give_up = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > give_up:
                raise WorldError(f"rank 0's rendezvous at {address}:{port} does not answer") from error
            time.sleep(0.2)
