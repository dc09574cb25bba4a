"""Who reduces the gradients: one file per framework, and the contract that every one of them keeps.

`Framework` is what a file of this room offers, `Engine` what the training loop (`train/loop.py`)
drives. A further framework is one more file: the planner, the tables, the figures, the checkpoints
and the tests ask the room for its members. `_common.py` has what frameworks share;
begin there, and with `ddp.py` as the example.

A framework never touches learning rate, batch size, autocast or seed. The recipe owns them and the
loop applies them, so that all frameworks train the same thing. Clipping and the loss scaling of
fp16 belong to the engine, because they come between the reduction and the update.

Importing a member is cheap: torch, Horovod, DeepSpeed are imported inside functions, because the
planner asks members on login nodes that have none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ddlbench.core.spec import RunSpec
    from ddlbench.settings.machine import Machine

TIMEOUT = "DDLBENCH_TIMEOUT_S"  # the variable that says how long a rank waits for another
# What a clock marks: seconds on a CPU, a recorded event on a GPU.
Moment: TypeAlias = Any
# An option's JSON schema, with a `description` and a `default`.
Options: TypeAlias = dict[str, dict[str, Any]]
# Makes the recipe's optimizer over a model's parameters, as the framework has laid them out by
# then.
MakeOptimizer: TypeAlias = "Callable[[nn.Module], Optimizer]"


class Clock(Protocol):
    """A clock that marks moments of training (`train/clock.py`)."""

    def mark(self) -> Moment:
        """Mark this moment; on a GPU, the moment when its stream comes to this point."""


class Engine(Protocol):
    """A model in training. One step is: for each micro-batch a forward and a backward pass, then
    `step`.

    Micro-batches' gradients are added up on each rank. With the last one the sum is averaged over
    ranks.
    """

    @property
    def model(self) -> nn.Module:
        """Return the model itself, under its own names of parameters, not a wrapper."""

    @property
    def optimizer(self) -> Optimizer:
        """Return the optimizer. The loop writes the learning rate into its `param_groups` before
        each step.
        """

    @property
    def waits(self) -> Sequence[tuple[Moment, Moment]] | None:
        """Return when the last step waited for gradients: pairs of begin and end.

        None if this is unknown.
        """

    @property
    def skipped_steps(self) -> int:
        """Return the number of steps left out because a gradient overflowed under fp16; the same on
        all ranks.
        """

    def __call__(self, images: Tensor) -> Tensor:
        """Compute the model's scores, float [n, classes], of float32 images [n, 3, size, size]; for
        validation too.
        """

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add a micro-batch's gradients to those of this step; with the `last`, average them over
        ranks.
        """

    def step(self) -> None:
        """Clip the gradients if the recipe says so, update the model, and forget the gradients."""

    def state(self) -> dict[str, Any]:
        """Return all that training changes on this rank: nested dicts and lists of tensors, numbers
        and strings.

        Tensors are not copied: save them before the next step.
        """

    def load(self, state: dict[str, Any]) -> None:
        """Resume from what the same rank of an equal run returned, perhaps in another process, to
        the last bit.
        """

    def state_bytes(self) -> dict[str, int]:
        """Return the bytes that this rank holds.

        What is measured is counted from tensors' storages, each once however many views it has.

        - `parameters_bytes`: the model's parameters and buffers.
        - `optimizer_bytes`: the optimizer's state, with its own copy of the parameters, if it keeps
          one.
        - `gradients_bytes`: gradients that it keeps for its update. It is not measured but
          computed, from the number of parameters and from what ranks share out (`core/zero.py`), so
          that all frameworks are counted alike.
        """


_Engine: TypeAlias = Engine  # within `Framework` the name is the member's own class


class Framework(Protocol):
    """The contract of a file of this room."""

    PACKAGE: str  # what must be importable
    INSTALL: str  # the command that installs it
    DISTRIBUTION: str  # the package whose version a record names
    SPLITS: str  # what is shared out over ranks; for table `frameworks`
    COMMUNICATES: str  # what ranks send each other, when, and by which library
    OPTIONS: Options  # by name; those that all frameworks have are `_common.OPTIONS`
    NOT_MEASURED: dict[
        str, str
    ]  # {"communication_s": why}, where `waits` is None always or with some option

    def refuses(self, spec: RunSpec) -> str | None:
        """Return why this run cannot be trained, naming the option and its allowed values; None if
        it can. Pure.
        """

    def lacks(self, device: str, options: Mapping[str, Any]) -> str | None:
        """Return what the installed framework cannot do that a run with these options needs, and
        how to fix that; else None.

        Asked on a node that trains, by the preflight and by every rank before `start`.
        """

    def environment(self, spec: RunSpec, machine: Machine) -> dict[str, str]:
        """Return the environment variables that every rank gets. Pure."""

    def start(self, device: str) -> None:
        """Join the other ranks; torch.distributed's variables are set."""

    def Engine(
        self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock
    ) -> _Engine:
        """Wrap a model that lies on its device. All ranks begin with the same weights."""

    def average(self, tensor: Tensor) -> Tensor:
        """Return the mean of a tensor over ranks, the same on all; the given tensor may be
        overwritten.
        """

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, of one shape and type, one after the other: [ranks,
        *shape]. The result is the same on all ranks, to the last bit. The tensor lies on the run's
        device.
        """

    def sync_batch_norm(self) -> type[nn.Module]:
        """Return the class of batch norm that takes mean and variance over the images of all ranks,
        on GPUs.
        """

    def close(self) -> None:
        """Leave the other ranks, at the end of a run that went well."""
