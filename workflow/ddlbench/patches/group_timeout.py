"""PyTorch 2.13 and DeepSpeed 0.19: how long ranks wait for each other in groups that are made
without saying it.

DeepSpeed makes groups of its own so, and gives no way to say it. PyTorch's defaults are 10 and 30
minutes, in which the supervisor of a run would see a rank that hangs, and not why. Without a guard:
in a release that has other names for its defaults, these are as they were.

Upstream (deepspeedai/DeepSpeed): `deepspeed.comm.new_group` and the groups of
`deepspeed/utils/groups.py` take no timeout. Handing on the one given to `init_distributed` would
make hangs end when the user said, in all groups alike.
"""

from datetime import timedelta


def set_timeout(seconds: float | None) -> timedelta:
    """Set the timeout of ranks in groups that are made from here on (None: as it is), and return
    it.
    """
    import torch.distributed.distributed_c10d as c10d

    if seconds is not None:
        c10d.default_pg_timeout = timedelta(seconds=seconds)
        c10d.default_pg_nccl_timeout = c10d.default_pg_timeout  # type: ignore[attr-defined]
    return c10d.default_pg_timeout
