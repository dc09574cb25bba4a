"""Horovod: a background thread fuses gradients and reduces them; Gloo between CPU ranks, NCCL
between GPUs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Any

from ddlbench.patches import horovod_optimizer, horovod_stalls
from ddlbench.patches.horovod_stalls import Waiting
from ddlbench.slurm import step
from ddlbench.train.frameworks import _common
from ddlbench.train.frameworks._common import flag, number, one_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.core.spec import RunSpec
    from ddlbench.settings.machine import Machine
    from ddlbench.train.frameworks import Clock, MakeOptimizer, Options

PACKAGE = "horovod"
DISTRIBUTION = "horovod"
INSTALL = "make install HOROVOD=1 (which runs envs/build-horovod.sh)"
NOT_MEASURED: dict[str, str] = {}
SPLITS = "the batch"
COMMUNICATES = (
    "all-reduce of fused gradients by a thread beside the backward pass; NCCL on GPUs, Gloo on CPUs"
)
TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"  # how long a rank waits for another
OPTIONS: Options = _common.OPTIONS | {
    "fusion_threshold_mb": number(
        "At most so many MiB of gradients are reduced together. 0: each gradient on its own.",
        128,
        "integer",
        minimum=0,
    ),
    "cycle_time_ms": number(
        "How often the background thread looks for gradients to reduce [ms].", 1, exclusiveMinimum=0
    ),
    "autotune": flag(
        "Let Horovod try fusion thresholds and cycle times while it trains, and keep the best;"
        " those of the other options are not used. Steps are slower until it has."
    ),
    "compression": one_of("Send gradients as they are, or as 16-bit floats.", "none", "fp16"),
}


def refuses(spec: RunSpec) -> str | None:
    """Return why this run cannot be trained, or None."""
    if spec.option("channels_last"):  # "Tensor is required to be contiguous."
        return "option channels_last: horovod sends contiguous gradients only; allowed: false"
    return _common.refuses(spec)


def lacks(device: str, options: Mapping[str, Any]) -> str | None:
    """Report that Horovod was built without NCCL; return None if it was not, or the run does not
    need it.
    """
    if device != "cuda":
        return None
    import horovod.torch as hvd

    if not hvd.nccl_built():
        # It would train all the same, and look like a slow Horovod.
        host = "gradients would go through the host's memory"
        return (
            f"this Horovod was built without NCCL, {host}: build it with"
            " HOROVOD_GPU_OPERATIONS=NCCL"
        )
    return None


def environment(spec: RunSpec, machine: Machine) -> dict[str, str]:
    """Return the variables for Horovod.

    On a cluster the interface is the machine's (Horovod's default is the loopback).
    """
    interface = dict(machine.environment).get("GLOO_SOCKET_IFNAME")
    tuned = {
        "HOROVOD_FUSION_THRESHOLD": str(spec.option("fusion_threshold_mb") * 2**20),
        "HOROVOD_CYCLE_TIME": str(spec.option("cycle_time_ms")),
    }
    if spec.option("autotune"):  # it leaves alone what is set
        tuned = {"HOROVOD_AUTOTUNE": "1"}
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        **tuned,
        TIMEOUT: str(_common.timeout_s(spec, machine)),
        **({"HOROVOD_GLOO_IFACE": interface} if interface else {}),
    }


def start(device: str) -> None:
    """Join the other ranks."""
    import horovod.torch as hvd

    meet()
    hvd.init()
    if TIMEOUT in os.environ:
        horovod_stalls.watch(hvd.rank(), float(os.environ[TIMEOUT]))


def meet() -> None:
    """Say to Horovod what `horovodrun` would say to a rank; rank 0 hosts what it would host."""
    os.environ.update(variables(os.environ))
    host_rendezvous()


def variables(e: Mapping[str, str]) -> dict[str, str]:
    """Translate torch.distributed's variables to those that `horovodrun` would set for a rank; the
    rendezvous has the next port.
    """
    rank, world, per_node = int(e["RANK"]), int(e["WORLD_SIZE"]), int(e["LOCAL_WORLD_SIZE"])
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(world),
        "HOROVOD_LOCAL_RANK": e["LOCAL_RANK"],
        "HOROVOD_LOCAL_SIZE": str(per_node),
        "HOROVOD_CROSS_RANK": str(rank // per_node),
        "HOROVOD_CROSS_SIZE": str(world // per_node),
        "HOROVOD_HOSTNAME": step.node(e),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": e["MASTER_ADDR"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(int(e["MASTER_PORT"]) + 1),
    }


def host_rendezvous() -> None:
    """Serve, on rank 0, the key-value store that Horovod's ranks meet in; on the others, wait until
    it answers.
    """
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if os.environ["RANK"] == "0":
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        try:
            server = RendezvousHTTPServer(("", port), RendezvousHandler, 0)
        except OSError as error:
            raise OSError(
                error.errno, f"Horovod's rendezvous, port {port}: {error.strerror}"
            ) from error
        Thread(target=server.serve_forever, daemon=True).start()
        return
    give_up = time.monotonic() + float(os.environ.get(TIMEOUT, "120"))
    while True:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > give_up:
                raise TimeoutError(
                    f"rank 0's rendezvous at {address}:{port} does not answer"
                ) from error
            time.sleep(0.2)


class Engine(_common.Engine):
    """The model with Horovod's optimizer. `waits`: the time in `synchronize()`."""

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock
    ) -> None:
        import horovod.torch as hvd

        # Horovod's batch norm waits for the other ranks within both passes.
        self.within_passes: Any = Waiting if spec.recipe.sync_batch_norm else nullcontext
        recipes = make_optimizer(model)
        optimizer = hvd.DistributedOptimizer(
            recipes,
            named_parameters=model.named_parameters(),
            compression=getattr(hvd.Compression, spec.option("compression")),
            # It counts the micro-batches of a step, adds their gradients up and averages the sum
            # over ranks.
            backward_passes_per_step=spec.recipe.accumulation,
            op=hvd.Average,
        )
        self.distributed: Any = horovod_optimizer.restore(optimizer, recipes)
        super().__init__(model, optimizer, spec, clock)
        with Waiting():
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    def __call__(self, images: Tensor) -> Tensor:
        with self.within_passes():
            return super().__call__(images)

    def reduced_backward(self, loss: Tensor, last: bool) -> None:
        with self.within_passes():
            loss.backward()

    def finish_reduction(self) -> None:
        before = self.clock.mark()
        with Waiting():
            self.distributed.synchronize()
        self.waits = [(before, self.clock.mark())]

    def update(self) -> None:
        with self.distributed.skip_synchronize():
            super().update()


def average(tensor: Tensor) -> Tensor:
    """Return the mean of a tensor over ranks, the same on all."""
    import horovod.torch as hvd

    with Waiting():
        mean: Tensor = hvd.allreduce(tensor, op=hvd.Average, name=_name("average", tensor))
    return mean


def gather(tensor: Tensor) -> Tensor:
    """Return the tensors of all ranks, [ranks, *shape], the same on all."""
    import horovod.torch as hvd

    with Waiting():
        every: Tensor = hvd.allgather(tensor[None], name=_name("gather", tensor))
    return every


def _name(what: str, tensor: Tensor) -> str:
    """Return the name of a collective, the same on all ranks.

    Ranks negotiate a name and shape once, and remember them. Horovod gives a collective without a
    name a new one each time. A name may be used again once its collective has ended.
    """
    return f"{what} {tensor.dtype} {tuple(tensor.shape)}"


def sync_batch_norm() -> type[nn.Module]:
    """Return Horovod's batch norm over the images of all ranks."""
    import horovod.torch as hvd

    layer: type[nn.Module] = hvd.SyncBatchNorm
    return layer


def close() -> None:
    """Stop the background thread."""
    import horovod.torch as hvd

    hvd.shutdown()
