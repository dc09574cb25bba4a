"""Who am I? A rank's place among all ranks, from torch.distributed's variables (`run/local.py` sets
them) or from srun's.

SLURM's variables are translated into those of torch.distributed (`slurm/step.py`), and these into
Horovod's (`train/frameworks/horovod.py`). `plan/launch.py` says how ranks are started.
"""

import os
from dataclasses import dataclass

from ddlbench.slurm import step

RANK, WORLD, LOCAL_RANK = "RANK", "WORLD_SIZE", "LOCAL_RANK"


@dataclass(frozen=True)
class Rank:
    """A rank: number `rank` of `world` ranks (the world size), and number `local_rank` on its node.

    Both count from 0.
    """

    rank: int
    world: int
    local_rank: int


class WorldError(RuntimeError):
    """The error that the launcher started another number of ranks than the run promised, or left
    one without a GPU.
    """


def rank_number() -> int:
    """Return this process's rank, before `own_rank` was called; 0 if nothing says it."""
    e = os.environ
    return int(e.get(step.TASK) or e.get(RANK) or 0)


def own_rank(workers: int) -> Rank:
    """Return this process's rank.

    Raises WorldError if the number of ranks is not `workers`, or if no launcher has set this
    process's rank.
    """
    e = os.environ
    if step.TASK in e:  # `run/watch.py` takes it from ranks that srun does not start
        e.update(step.variables(e, step.first_host()))
    if RANK not in e:
        raise WorldError(f"neither {RANK} nor {step.TASK} is set: start runs with ddlbench.run")
    rank = Rank(int(e[RANK]), int(e[WORLD]), int(e[LOCAL_RANK]))
    if rank.world != workers:
        raise WorldError(f"expected {workers} ranks, but the launcher started {rank.world}")
    return rank


def device_number(local_rank: int, visible: int) -> int | None:
    """Return the GPU of a rank among the `visible` ones, counted from 0; None if there is none for
    it.

    Some launchers show all GPUs of a node to each rank, others each rank one of its own: JSC's
    psslurm does, unless CUDA_VISIBLE_DEVICES is set by the user. Of several that are visible a rank
    takes its own, and never one that another rank of the node takes. The only one that is visible
    is its own if CUDA_VISIBLE_DEVICES hides the others; where nobody set it, it is the node's only
    one, which the node's first rank takes.
    """
    if visible == 1 and "CUDA_VISIBLE_DEVICES" in os.environ:
        return 0
    return local_rank if local_rank < visible else None


def take_device(local_rank: int) -> None:
    """Make a rank's GPU the current one. Only this function chooses a GPU; all other code uses the
    current one.

    Raises WorldError if the rank does not see a GPU of its own.
    """
    import torch

    visible = torch.cuda.device_count()
    number = device_number(local_rank, visible)
    if number is None:
        named = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise WorldError(
            f"rank number {local_rank} of this node needs a GPU of its own and sees {visible} "
            f"(CUDA_VISIBLE_DEVICES: {named})"
        )
    torch.cuda.set_device(number)
