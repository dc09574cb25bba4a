"""DeepSpeed 0.19 on CPUs: its one-bit optimizers, where a release still has them, and a start that
compiles nothing.

These optimizers pack numbers into bits, with CuPy on NVIDIA GPUs and with a kernel of DeepSpeed's
on Intel GPUs. For CPUs it has nothing, so NumPy packs them here. And DeepSpeed would compile a
collective by shared memory for two minutes at its first start; Gloo reduces here.

Upstream (deepspeedai/DeepSpeed): `runtime/comm/compressed.py` builds `PackbitsBuilder`, which the
CPU accelerator does not have, and sends a scale without dimensions into buffers of one number,
which Gloo refuses. A builder that packs with NumPy, as below, and `scale.reshape(1)` would make
OneBitAdam, OneBitLamb and ZeroOneAdam run on CPUs.
"""

from importlib.util import find_spec
from typing import Any

from ddlbench import patches

BACKEND = "deepspeed.runtime.comm.compressed"  # 0.19.8 has none


def enable() -> None:
    """Let DeepSpeed start on CPUs, its 'compressed' backend too. Call it before its start. Raises
    ReleaseError.
    """
    patches.only_for("deepspeed", ("0.19",), "deepspeed_on_cpu")
    import deepspeed.ops.op_builder

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if find_spec(BACKEND) is None:
        return
    if not hasattr(deepspeed.ops.op_builder, "PackbitsBuilder"):
        deepspeed.ops.op_builder.PackbitsBuilder = Builder
    import deepspeed.runtime.comm.compressed as backend

    backend.PackbitsBuilder, backend.dist = Builder, _Comm()


class Packer:
    """A replacement of DeepSpeed's kernel that packs bits with NumPy.

    DeepSpeed also passes the rank, which is not used.
    """

    @staticmethod
    def packbits(numbers: Any, count: int, rank: int) -> Any:
        """Pack one bit per number, set where the number is not negative: float [count] -> uint8
        [count / 8].
        """
        import numpy as np
        import torch

        return torch.from_numpy(np.packbits(numbers.detach().flatten().numpy() >= 0))

    @staticmethod
    def unpackbits(packed: Any, count: int, rank: int) -> Any:
        """Unpack 1 for a bit that is set, -1 for others: uint8 [count] -> float32 [8 * count]."""
        import numpy as np
        import torch

        return torch.from_numpy(np.unpackbits(packed.numpy()).astype(np.float32) * 2 - 1)


class Builder:
    """A replacement of the class with which DeepSpeed compiles its kernel: nothing is compiled."""

    def load(self, verbose: bool = True) -> type[Packer]:
        return Packer


class _Comm:
    """The module deepspeed.comm with one change: `all_gather` gives what is sent the shape of the
    buffers that receive it.

    DeepSpeed sends a scale without dimensions into buffers of one number, which Gloo refuses.
    """

    def __getattr__(self, name: str) -> Any:
        import deepspeed.comm

        return getattr(deepspeed.comm, name)

    def all_gather(self, received: list[Any], sent: Any, group: Any = None) -> Any:
        import deepspeed.comm

        return deepspeed.comm.all_gather(received, sent.reshape(received[0].shape), group=group)
