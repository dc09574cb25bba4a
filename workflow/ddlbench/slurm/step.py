"""What SLURM tells a process of a job: its job, its node, its place among the tasks of a step of
srun.

Its variables go by `e`, which is this process's environment unless another one is given. Where a
node hangs in the network is in `core/notes.py`.
"""

import os
import re
import socket
from collections.abc import Mapping

TASK = "SLURM_PROCID"  # the variable that each task of srun has: its rank
# What srun says to the tasks of a step alone, and what it leaves in a shell that it started (`srun
# --pty bash`).
OF_TASKS = {
    *(
        f"SLURM_{name}"
        for name in (
            "PROCID",
            "LOCALID",
            "NODEID",
            "NTASKS",
            "NPROCS",
            "NNODES",
            "GTIDS",
            "TASK_PID",
        )
    ),
    *(
        f"SLURM_{name}"
        for name in ("TASKS_PER_NODE", "NTASKS_PER_NODE", "DISTRIBUTION", "LAUNCH_NODE_IPADDR")
    ),
}
OF_STEPS = (
    "SLURM_STEP",
    "SLURM_SRUN_",
    "SLURM_PTY_",
    "PMI_",
    "PMIX_",
)  # how names of such variables begin


def outside(e: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of a step: for ranks that another launcher starts they
    would be wrong.
    """
    return {
        name: value
        for name, value in e.items()
        if name not in OF_TASKS and not name.startswith(OF_STEPS)
    }


def job(e: Mapping[str, str] = os.environ) -> str | None:
    """Return the job's number; None outside of jobs."""
    return e.get("SLURM_JOB_ID")


def requeued_job() -> str | None:
    """Return the job's number, if SLURM has requeued it since it first began."""
    return job() if os.environ.get("SLURM_RESTART_COUNT", "0") != "0" else None


def node(e: Mapping[str, str] = os.environ) -> str:
    """Return this node's name in SLURM; outside of jobs this host's."""
    return e.get("SLURMD_NODENAME") or socket.gethostname()


def variables(e: Mapping[str, str], first_host: str) -> dict[str, str]:
    """Return torch.distributed's variables for a task of srun.

    The port follows from the job's id, and the next port is kept free for Horovod. `first_host` is
    the name of the job's first node on the network that the ranks use.
    """
    world = int(e["SLURM_NTASKS"])
    # Two ports per job, below those that the kernel gives to outgoing connections (32768 and up).
    port = 20000 + int(job(e) or 0) % 6000 * 2
    return {
        "RANK": e[TASK],
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": e["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(world // int(e.get("SLURM_NNODES", "1"))),
        "MASTER_ADDR": first_host,
        "MASTER_PORT": str(port),
    }


def first_host() -> str:
    """Return the job's first node on the network that ranks use."""
    if os.environ.get("SLURM_NNODES", "1") == "1":
        return "127.0.0.1"
    # On JUWELS a node's name on InfiniBand ends in an i: machine key host_suffix.
    suffix = os.environ.get("DDLBENCH_HOST_SUFFIX", "")
    return first_name(os.environ["SLURM_JOB_NODELIST"]) + suffix


def first_name(nodes: str) -> str:
    """Return the first name in SLURM's list of nodes: `node07` of `node[07-12,20]-ib,gpu1`.

    `scontrol show hostnames` would say it too, but images in which ranks run have no scontrol.
    """
    first = re.split(r",(?![^\[]*\])", nodes)[0]
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first)
